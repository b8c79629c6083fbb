"""The report in a real browser: a phone's width, a wide screen, dark and light, the column filter, print."""

import base64

import pytest
from conftest import stage_records, write_run
from test_report_html import plant

from rec.report.html import write_report


@pytest.fixture(params=["whole", "hostile"])
def report(request, tmp_path):
    records = stage_records() if request.param == "whole" else plant("<b>" + "W" * 5000)
    return write_report(write_run(tmp_path, records), tmp_path / "report.html")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 800, 1600])
def test_page_fits_and_the_console_is_silent(chromium, report, width, scheme):
    chromium.open(report, width, scheme)
    root = "document.documentElement"
    assert chromium.evaluate(f"{root}.scrollWidth") <= chromium.evaluate(f"{root}.clientWidth") <= width
    assert chromium.errors() == []
    assert chromium.requests() == [report.as_uri()]


def test_dark_and_light_differ_and_plots_follow(chromium, report):
    colours = []
    for scheme in ("light", "dark"):
        chromium.open(report, 800, scheme)
        text = "svg.plot text"
        colours.append(
            [chromium.evaluate(f"getComputedStyle(document.querySelector('{q}')).fill") for q in (text, "rect")]
            + [chromium.evaluate("getComputedStyle(document.body).backgroundColor")]
        )
    assert all(light != dark for light, dark in zip(*colours))


def test_text_has_contrast(chromium, report):
    """Muted text is the faintest of the page: at least 4.5 to 1 on both grounds, as WCAG AA asks."""
    script = """(() => {
      const channel = (c) => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
      const style = getComputedStyle(document.documentElement);
      const light = (name) => { const hex = style.getPropertyValue(name).trim();
        const [r, g, b] = [1, 3, 5].map((i) => channel(parseInt(hex.slice(i, i + 2), 16)));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
      return Math.min(...["--ink", "--muted", "--accent", "--good", "--bad", "--warn", "--second"]
        .flatMap((name) => [ratio(name, "--paper"), ratio(name, "--sheet")]));
    })()"""
    for scheme in ("light", "dark"):
        chromium.open(report, 800, scheme)
        assert chromium.evaluate(script) >= 4.5


def test_columns_are_filtered_and_ordered(chromium, tmp_path):
    records = stage_records()
    report = write_report(write_run(tmp_path, records), tmp_path / "report.html")
    chromium.open(report, 800)
    visible = "[...document.querySelectorAll('.card')].filter((card) => card.offsetParent).map((c) => c.dataset.column)"
    columns = [column["name"] for column in records["etl"].figures["columns"]]
    assert chromium.evaluate(visible) == columns
    change = (
        "(() => {{ const e = document.getElementById('{}'); e.value = '{}'; e.dispatchEvent(new Event('{}')); }})()"
    )
    chromium.evaluate(change.format("column-role", "dense", "change"))
    assert chromium.evaluate(visible) == columns[:13]
    chromium.evaluate(change.format("column-name", "i1", "input"))
    assert chromium.evaluate(visible) == ["I1", "I10", "I11", "I12", "I13"]
    assert chromium.evaluate("document.getElementById('column-status').textContent") == "5 of 39 columns"
    chromium.evaluate(change.format("column-name", "", "input"))
    chromium.evaluate(change.format("column-order", "missing", "change"))
    missing = {c["name"]: c["missing"] for c in records["etl"].figures["columns"]}
    assert chromium.evaluate(visible) == sorted(columns[:13], key=lambda name: -missing[name])


def test_print_is_light_and_whole(chromium, report):
    chromium.open(report, 800, "dark")
    chromium.call("Emulation.setEmulatedMedia", media="print")
    assert chromium.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert chromium.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    # The printable width of A4 with 1 cm margins.
    chromium.call("Emulation.setDeviceMetricsOverride", width=718, height=900, deviceScaleFactor=1, mobile=False)
    assert chromium.evaluate("document.documentElement.scrollWidth") <= 718
    pages = base64.b64decode(chromium.call("Page.printToPDF", printBackground=True)["data"])
    assert pages.startswith(b"%PDF")


def test_the_ledger_of_a_phone_needs_no_scrolling_and_names_its_cells(chromium, report):
    chromium.open(report, 400)
    wider = "[...document.querySelectorAll('#ledger .scroll')].filter((e) => e.scrollWidth > e.clientWidth).length"
    assert chromium.evaluate(wider) == 0
    cell = "document.querySelector('.ledger tbody td.n:nth-of-type(2)')"
    assert chromium.evaluate(f"getComputedStyle({cell}, '::before').content") == '"lines"'
    chromium.open(report, 1200)
    assert chromium.evaluate(f"getComputedStyle({cell}, '::before').content") == "none"
