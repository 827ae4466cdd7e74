"""The report's files: nothing outside itself is asked for, nothing of a user's text becomes markup, the data validate."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest

from octavo.bench.report import schema
from octavo.bench.report.document import Chart, Section, Series, Table
from octavo.bench.report.markdown import table_markdown
from octavo.bench.report.write import check_folder, write_report
from octavo.errors import InvalidRequestError
from support.documents import EVIL, document


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    assert write_report(document(), folder) == folder / "report.html"
    return folder


class Page(HTMLParser):
    """Tags, attributes and text as a browser sees them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        (self.scripts if self.tags and self.tags[-1] == "script" else self.words).append(data)


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page((folder / "report.html").read_text())


def test_no_request_goes_out(folder: Path, page: Page) -> None:
    """No address in any attribute that a browser follows, and none in url(): the page works offline."""
    text = (folder / "report.html").read_text()
    followed = [value for name, value in page.attributes if name in ("src", "href", "srcset", "xlink:href", "action", "data", "poster")]
    assert all(value is not None and value.startswith("#") for value in followed)
    assert not re.search(r"url\(|@import|\b(?:src|href)\s*=\s*[\"']?\s*(?:https?:)?//", text)
    assert "fetch(" not in text and "XMLHttpRequest" not in text and "default-src 'none'" in text


def test_text_of_users_never_becomes_markup(page: Page) -> None:
    assert "b" not in page.tags
    assert not any(name.startswith("on") for name, _ in page.attributes)
    words = "".join(page.words)
    assert words.count(EVIL) >= 8  # title, heading, summary, cells, notes, charts
    charts = [json.loads(script) for script in page.scripts if script.startswith("{")]
    assert len(charts) == 6 and charts[0]["series"][0]["name"] == EVIL and charts[3]["categories"][0] == EVIL


def test_a_chart_can_be_read_without_a_script_and_without_eyes(page: Page) -> None:
    assert page.tags.count("figure") == page.tags.count("figcaption") == page.tags.count("details") == 6
    assert page.tags.count("desc") == 12  # wide and narrow
    assert page.attributes.count(("role", "img")) == 12


def test_both_themes_are_there(folder: Path) -> None:
    text = (folder / "report.html").read_text()
    assert "prefers-color-scheme: dark" in text and ":root[data-theme=dark]" in text and "@media print" in text


def test_markdown_has_tables_pictures_and_warnings(folder: Path) -> None:
    text = (folder / "report.md").read_text()
    assert "> **Warning.** " in text
    assert "\n| --- | ---: | --- |\n" in text
    assert not re.search(r"(?<!\\)<", text) and "\n| other | – | no |\n" in text
    pictures = re.findall(r"\]\((charts/[^)]+\.svg)\)", text)
    assert len(pictures) == 6 and all((folder / picture).is_file() for picture in pictures)


def test_another_report_in_the_same_folder_leaves_no_picture_of_the_first(tmp_path: Path) -> None:
    for sections in (document().sections, ()):
        write_report(dataclasses.replace(document(), sections=sections), tmp_path)
        assert len(list((tmp_path / "charts").iterdir())) == sum(len(section.charts) for section in sections)


def test_a_cell_cannot_break_out_of_a_markdown_table() -> None:
    said = table_markdown(Table(columns=["a"], rows=[["x | y\n<b>*z*"]]))
    assert said.splitlines()[-1] == r"| x \| y \<b\>\*z\* |"


def test_json_is_versioned_and_validates(folder: Path) -> None:
    written = json.loads((folder / "report.json").read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert written["schema"] == "octavo.bench.report/1"
    jsonschema.validate(written, schema.stored_schema("report"))
    assert written["result"] == {"output_tok_s": 1015.0, "worst": None, "name": EVIL}
    assert written["sections"][0]["charts"][0]["series"][0]["y"] == [1.0, None, 4.0, 2.0]
    del written["title"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(written, schema.stored_schema("report"))


def test_stored_schemas_are_those_of_the_types() -> None:
    for name, made in schema.schemas().items():
        stored = schema.stored_schema(name.removesuffix(".json"))
        assert stored == json.loads(json.dumps(made)), "python -m octavo.bench.report.schema writes them again"
        jsonschema.Draft202012Validator.check_schema(made)


def test_a_folder_that_cannot_be_made_is_refused_at_once() -> None:
    with pytest.raises(InvalidRequestError, match="report = /proc/no: No such file"):
        check_folder(Path("/proc/no"))


def test_a_long_run_makes_a_page_of_a_bearable_size(tmp_path: Path) -> None:
    """20,000 points in each of five series: under 3 MB, and the worst is drawn."""
    n = 20_000
    y = [float(i % 97) for i in range(n)]
    y[7_777] = 5000.0
    series = [Series(name=f"s{i}", x=range(n), y=y) for i in range(5)]
    charts = [Chart(title="many", kind="scatter", x_label="s", y_label="ms", series=series)]
    big = dataclasses.replace(document("plain"), sections=[Section(heading="h", charts=charts)])
    page = write_report(big, tmp_path).read_text()
    assert len(page) < 3_000_000
    assert "5000.0" in page
