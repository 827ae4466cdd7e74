"use strict";
// Says the values under the pointer, hides series, switches light and dark. The page is whole without it.
(() => {
  const figures = [...document.querySelectorAll("figure")].map((figure) => ({
    figure,
    data: JSON.parse(figure.querySelector("script").textContent),
    svgs: [...figure.querySelectorAll("svg.wide, svg.narrow")],
    readout: figure.querySelector(".readout"),
    off: new Set(),
  }));

  const place = (value, [low, high, log], start, end) => {
    const at = (v) => (log ? Math.log10(Math.max(v, low)) : v);
    return start + ((at(value) - at(low)) / (at(high) - at(low))) * (end - start);
  };
  const value = (place, [low, high, log], start, end) => {
    const share = (place - start) / (end - start);
    return log ? 10 ** (Math.log10(low) + share * (Math.log10(high) - Math.log10(low))) : low + share * (high - low);
  };
  const shown = (number) => {
    if (number === null || number === undefined) return "–";
    const size = Math.abs(number);
    if (size !== 0 && size < 1e-4) return number.toExponential(1);
    const digits = size === 0 || size >= 100 ? 0 : Math.min(6, 2 - Math.floor(Math.log10(size)));
    return number.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  };
  const element = (name, attributes) => {
    const made = document.createElementNS("http" + "://www.w3.org/2000/svg", name);
    for (const [key, content] of Object.entries(attributes)) made.setAttribute(key, content);
    return made;
  };

  // The drawing that is visible at this width, with its plot.
  const visible = (chart) => {
    const which = chart.svgs.findIndex((svg) => svg.getBoundingClientRect().width > 0);
    return which < 0 ? null : { svg: chart.svgs[which], plot: chart.data.plots[which] };
  };

  // Index of the point nearest to x, in a series sorted by x; for steps, of the last that is not after it.
  const nearest = (xs, x, steps) => {
    let low = 0, high = xs.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (xs[middle] <= x) low = middle; else high = middle - 1;
    }
    return !steps && low + 1 < xs.length && xs[low + 1] - x < x - xs[low] ? low + 1 : low;
  };

  const clear = (chart) => {
    chart.readout.hidden = true;
    chart.figure.querySelectorAll(".cursor, .dot").forEach((mark) => mark.remove());
  };

  // Points to speak of at (x, y), in values: one of each visible series, or the nearest of all in a scatter plot.
  const points = (chart, plot, x, y) => {
    const { kind, series } = chart.data;
    const [left, top, right, bottom] = plot.box;
    const found = [];
    series.forEach((each, index) => {
      if (chart.off.has(index) || !each.x.length) return;
      if (kind !== "scatter" || y === null) {
        const i = nearest(each.x, x, kind === "steps");
        if (each.y[i] !== null) found.push({ each, index, i, far: Math.abs(place(each.x[i], plot.x, left, right) - place(x, plot.x, left, right)) });
        return;
      }
      const px = place(x, plot.x, left, right), py = place(y, plot.y, bottom, top);
      let best = null;
      each.x.forEach((at, i) => {
        if (each.y[i] === null) return;
        const far = Math.hypot(place(at, plot.x, left, right) - px, place(each.y[i], plot.y, bottom, top) - py);
        if (!best || far < best.far) best = { each, index, i, far };
      });
      if (best) found.push(best);
    });
    if (kind !== "scatter" || !found.length) return found;
    return [found.reduce((one, other) => (other.far < one.far ? other : one))];
  };

  const row = (name, colour, number) => {
    const line = document.createElement("div"), swatch = document.createElement("span"), bold = document.createElement("b");
    line.className = colour;
    swatch.className = "swatch";
    bold.textContent = shown(number);
    line.append(swatch, `${name} `, bold);
    return line;
  };

  const say = (chart, svg, px, head, rows, said) => {
    const readout = chart.readout, first = document.createElement("div");
    first.textContent = head;
    readout.replaceChildren(first, ...rows);
    for (const text of said) {
      const line = document.createElement("span");
      line.className = "said";
      line.textContent = text;
      readout.append(line);
    }
    readout.hidden = false;
    const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
    const at = px * scale, width = readout.offsetWidth;
    readout.style.transform = `translate(${Math.max(0, at + 14 + width > box.width ? at - 14 - width : at + 14)}px, 8px)`;
  };

  const show = (chart, x, y) => {
    clear(chart);
    const drawing = visible(chart);
    if (!drawing) return;
    const { svg, plot } = drawing, [left, top, right, bottom] = plot.box;
    let found = points(chart, plot, x, y);
    if (!found.length) return;
    if (chart.data.kind !== "scatter") {
      const close = Math.min(...found.map((point) => point.far));
      if (chart.data.kind !== "steps") found = found.filter((point) => point.far < close + 12);
    } else if (y !== null) {
      x = found[0].each.x[found[0].i];
    }
    const px = place(x, plot.x, left, right);
    if (px < left - 1 || px > right + 1) return;
    svg.append(element("line", { class: "cursor", x1: px, x2: px, y1: top, y2: bottom }));
    for (const { each, i } of found) {
      const dot = element("circle", { class: `dot ${each.class}`, r: 4, cx: place(each.x[i], plot.x, left, right), cy: place(each.y[i], plot.y, bottom, top) });
      if (chart.data.kind !== "steps") svg.append(dot);
    }
    const said = found.flatMap(({ each, i }) => (each.labels ? [each.labels[i]] : []));
    const at = found.length === 1 && chart.data.kind !== "steps" ? found[0].each.x[found[0].i] : x;
    say(chart, svg, px, `${chart.data.x}: ${shown(at)}`, found.map(({ each, i }) => row(each.name, each.class, each.y[i])), said);
  };

  const showBars = (chart, place) => {
    clear(chart);
    const { svg, plot } = visible(chart), { categories, series } = chart.data;
    const [left, top, right, bottom] = plot.box, count = Math.max(1, Math.round((plot.across ? plot.y : plot.x)[1]));
    const share = plot.across ? (place.y - top) / (bottom - top) : (place.x - left) / (right - left);
    const index = Math.floor(share * count);
    if (index < 0 || index >= count) return;
    const rows = series.flatMap((each, i) => {
      const at = each.x.findIndex((x) => Math.round(x) === index);
      return chart.off.has(i) || at < 0 ? [] : [row(each.name, each.class, each.y[at])];
    });
    say(chart, svg, place.x, categories[index] ?? String(index + 1), rows, []);
  };

  const together = (chart) => {
    const name = chart.figure.dataset.group;
    return name ? figures.filter((other) => other.figure.dataset.group === name && other.data.kind !== "bars") : [chart];
  };

  const moved = (chart, event) => {
    const drawing = visible(chart);
    if (!drawing) return;
    const { svg, plot } = drawing, box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
    const at = { x: (event.clientX - box.left) * scale, y: (event.clientY - box.top) * scale };
    const [left, top, right, bottom] = plot.box;
    if (chart.data.kind === "bars") return showBars(chart, at);
    if (at.x < left - 6 || at.x > right + 6) return together(chart).forEach(clear);
    const x = value(Math.min(Math.max(at.x, left), right), plot.x, left, right);
    for (const other of together(chart)) show(other, x, other === chart ? value(at.y, plot.y, bottom, top) : null);
  };

  for (const chart of figures) {
    for (const svg of chart.svgs) {
      svg.addEventListener("pointermove", (event) => moved(chart, event));
      svg.addEventListener("pointerdown", (event) => moved(chart, event));
      svg.addEventListener("pointerleave", () => together(chart).forEach(clear));
    }
    for (const button of chart.figure.querySelectorAll(".legend button")) {
      button.addEventListener("click", () => {
        const index = Number(button.dataset.series), hidden = !chart.off.has(index);
        if (hidden) chart.off.add(index); else chart.off.delete(index);
        button.setAttribute("aria-pressed", String(!hidden));
        chart.figure.querySelectorAll(`g[data-series="${index}"]`).forEach((group) => group.classList.toggle("off", hidden));
      });
    }
  }

  const root = document.documentElement, names = { "": "as the system", light: "light", dark: "dark" }, order = Object.keys(names);
  const button = document.createElement("button");
  const name = () => { button.textContent = `Colours: ${names[root.dataset.theme ?? ""]}`; };
  button.type = "button";
  button.addEventListener("click", () => {
    const next = order[(order.indexOf(root.dataset.theme ?? "") + 1) % order.length];
    if (next) root.dataset.theme = next; else delete root.dataset.theme;
    name();
  });
  name();
  document.querySelector(".tools").append(button);
})();
