"""Draws the pictures of docs/kv.md from results: python benchmarks/kv/draw.py RESULT.json SIMULATED.json docs/img"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from octavo.bench.kv.report import fragmentation_charts, slots_chart
from octavo.bench.report.standalone import standalone


def main() -> None:
    """Slots from the first result; fragmentation over time from the second, which may be of --simulate."""
    result, simulated, folder = (Path(argument) for argument in sys.argv[1:])
    (folder / "kv_slots.svg").write_text(standalone(slots_chart(json.loads(result.read_text()))), encoding="utf-8")
    (chart,) = fragmentation_charts(json.loads(simulated.read_text()))
    (folder / "kv_fragmentation.svg").write_text(standalone(chart), encoding="utf-8")


if __name__ == "__main__":
    main()
