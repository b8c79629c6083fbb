"""The report of a run: every section from the records, hostile values as text, nothing fetched."""

import copy
import re
from html.parser import HTMLParser

import pytest
from conftest import CONFIG, stage_records, write_run

from rec.core.errors import ConfigError
from rec.core.records import Artifact, StageRecord
from rec.report import plots
from rec.report.columns import histogram
from rec.report.html import render, write_report
from rec.report.plots import valid_auc

SECTIONS = ["verdict", "ledger", "columns", "training", "evaluation", "plan", "gpu", "serving", "lineage"]
SECTIONS += ["warnings", "config"]
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style></title></pre><svg onload=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "\x00\x07\x1b[31mred\x1b]0;title\x07",
    "\u202egnp.exe\u2066",
    "a\nb\tc",
    "é" * 200_000,
    "javascript:alert(1)",
]


class Page(HTMLParser):
    """Elements with their attributes, the text outside style and script, and tags that were never closed."""

    VOID = frozenset(("meta", "link", "br", "input", "img", "hr"))

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] not in ("style", "script"):
            self.text += data

    def ids(self) -> list[str]:
        return [attributes["id"] for _, attributes in self.elements if attributes.get("id")]

    def tags(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == name]


@pytest.fixture
def draw(tmp_path):
    """Write records, draw them, return the page's text."""

    def drawn(records: dict[str, StageRecord]) -> str:
        return write_report(write_run(tmp_path, records), tmp_path / "report.html").read_text(encoding="utf-8")

    return drawn


def with_figures(records, stage, **figures):
    record = records[stage]
    return records | {stage: record.model_copy(update={"figures": record.figures | figures})}


def test_every_section_is_drawn_from_a_whole_run(draw, records):
    text = draw(records)
    page = Page(text)
    assert set(SECTIONS) <= set(page.ids())
    assert len(page.ids()) == len(set(page.ids()))
    assert "makes it" not in page.text
    assert "holds no" not in page.text
    assert len(page.tags("article")) == 39
    charts = [a for a in page.tags("svg") if a.get("class") == "plot"]
    assert len(charts) == 6
    assert all(a["aria-label"] for a in page.tags("svg"))
    for wanted in ("criteo_demo", "1,200,272", "0.7849", "0.7817–0.7881", "0.7712", "0.8043", "41.4 %", "6.7 min"):
        assert wanted in page.text


def test_headings_and_captions_name_every_part(draw, records):
    page = Page(draw(records))
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert len(page.tags("caption")) == len(page.tags("table"))
    assert len(page.tags("figcaption")) == len(page.tags("figure"))
    links = {a["href"][1:] for a in page.tags("a")}
    assert links <= set(page.ids())


def test_a_missing_stage_names_the_command_that_makes_it(draw, records):
    page = Page(draw({"etl": records["etl"]}))
    assert len(page.tags("article")) == 39
    for stage in ("train", "evaluate", "push"):
        assert f"rec {stage} RECIPE" in page.text
    assert "rec etl RECIPE makes" not in page.text


def test_a_run_without_etl_names_its_command(draw, records):
    page = Page(draw({"evaluate": records["evaluate"]}))
    assert "rec etl RECIPE" in page.text
    assert "0.7849" in page.text


def _paths(value, path=()):
    """Every dict key below a value; of a list, the first member stands for all."""
    if isinstance(value, dict):
        for key, member in value.items():
            yield (*path, key)
            yield from _paths(member, (*path, key))
    elif isinstance(value, list) and value:
        yield from _paths(value[0], (*path, 0))


def _without(figures, path):
    """Return a copy of the figures that lacks one of them."""
    figures = copy.deepcopy(figures)
    *parents, last = path
    place = figures
    for step in parents:
        place = place[step]
    del place[last]
    return figures


@pytest.mark.parametrize("stage", ["etl", "train", "evaluate", "push"])
def test_any_figure_may_be_absent(stage):
    original = stage_records()[stage]
    for path in _paths(original.figures):
        Page(render({stage: original.model_copy(update={"figures": _without(original.figures, path)})}))


def test_a_null_figure_is_drawn_as_one_not_there(tmp_path, records):
    evaluate = records["evaluate"].figures
    null = evaluate | {"roc": None, "test": evaluate["test"] | {"auc": None}}
    absent = _without(_without(evaluate, ("roc",)), ("test", "auc"))
    pages = []
    for root, figures in (("null", null), ("absent", absent)):
        folder = write_run(tmp_path / root, records | _stage(records, "evaluate", figures))
        pages.append(write_report(folder, tmp_path / f"{root}.html").read_text(encoding="utf-8"))
    assert pages[0] == pages[1]


def _stage(records, stage, figures):
    return {stage: records[stage].model_copy(update={"figures": figures})}


@pytest.mark.parametrize("stage", ["etl", "train", "evaluate", "push"])
def test_a_stage_without_figures_says_what_is_not_there(draw, records, stage):
    text = draw({stage: records[stage].model_copy(update={"figures": {}})})
    assert f"The {stage} record of this run holds no" in text


@pytest.mark.parametrize("value", HOSTILE, ids=lambda v: ascii(v[:24]))
def test_hostile_values_stay_text(tmp_path, value):
    clean = Page(write_report(write_run(tmp_path, plant("x")), tmp_path / "clean.html").read_text(encoding="utf-8"))
    records = {stage: r.model_copy(update={"run_id": "hostile"}) for stage, r in plant(value).items()}
    out = write_report(write_run(tmp_path, records), tmp_path / "report.html")
    page = Page(out.read_text(encoding="utf-8"))
    # What a reader's browser acts on is the same as for a harmless value.
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in clean.elements]
    assert [sorted(a) for _, a in page.elements] == [sorted(a) for _, a in clean.elements]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", out.read_text(encoding="utf-8"))
    assert out.stat().st_size < 3_000_000


def plant(value: str) -> dict[str, StageRecord]:
    """A run with one value in every place that comes from data, files or names."""
    records = stage_records("clean")
    etl = copy.deepcopy(records["etl"].figures)
    etl["ledger"][0] |= {"file": value, "reasons": {value: 63}}
    etl["columns"][0]["name"] = value
    etl["columns"][20] |= {"name": value, "top_values": [[value, 12]]}
    etl["gpu_receipt"]["fallbacks"] = [[value, value]]
    plan = [dict(records["train"].figures["plan"][0], table=value, sharding=value)]
    records = with_figures(records, "etl", **etl)
    records = with_figures(records, "train", plan=plan)
    records = with_figures(records, "push", model=value)
    planted = {"config": CONFIG | {"name": value, "deep": [{"x": value}]}, "warnings": (value,)}
    planted["inputs"] = {"raw": Artifact(uri=value, sha256=value)}
    return {stage: r.model_copy(update=planted) for stage, r in records.items()}


def test_a_lone_surrogate_is_written_out(tmp_path, records):
    folder = write_run(tmp_path, records)
    record = folder / "etl.json"
    record.write_text(record.read_text().replace('"file": "raw/day_3"', r'"file": "raw/\udcff"'))
    out = write_report(folder, tmp_path / "report.html")
    assert r"raw/\udcff" in Page(out.read_text(encoding="utf-8")).text


def test_nothing_is_fetched(draw, records):
    text = draw(records)
    page = Page(text)
    assert not re.search(r"https?:|//[a-z]", text)
    assert not re.search(r"url\((?!#)|@import", text)
    addresses = [a[key] for _, a in page.elements for key in ("src", "href", "xlink:href", "action") if a.get(key)]
    assert [x for x in addresses if not x.startswith(("#", "data:,"))] == []
    policy = next(a["content"] for a in page.tags("meta") if a.get("http-equiv"))
    assert policy.startswith("default-src 'none'")


def test_the_sums_shown_are_those_of_the_record(draw, records):
    page = Page(draw(records))
    rows = records["etl"].figures["ledger"]
    for name in ("lines", "accepted", "quarantined", "unlabelled"):
        assert f"{sum(row[name] for row in rows):,}" in page.text
    assert "Bins add up to 1,200,606 lines in 6 files, reasons to 333 quarantined." in page.text


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"accepted": 250_048}, "raw/day_0, day 0 has 250,113 lines, its bins 250,112."),
        ({"reasons": {"blank": 62}}, "raw/day_0, day 0 has 63 quarantined, reasons 62."),
    ],
)
def test_sums_that_fail_are_named(draw, records, change, sentence):
    rows = copy.deepcopy(records["etl"].figures["ledger"])
    rows[0] |= change
    page = Page(draw(with_figures(records, "etl", ledger=rows)))
    assert sentence in page.text
    assert "Bins add up to" not in page.text


def test_many_files_are_folded_with_their_sums_whole(draw, records):
    row = {"day": 0, "lines": 10, "accepted": 9, "padded": 0, "header": 1, "quarantined": 0, "unlabelled": 0}
    rows = [row | {"file": f"part-{i:05}", "reasons": {}} for i in range(5000)]
    text = draw(with_figures(records, "etl", ledger=rows))
    assert "Bins add up to 50,000 lines in 5,000 files" in text
    assert "4,501 further entries, summed" in text
    assert "45,010" in text
    assert len(text) < 1_500_000


def test_thousands_of_inputs_are_counted(draw, records):
    inputs = {f"part-{i}": Artifact(uri=f"raw/part-{i}", sha256="0" * 64) for i in range(20_000)}
    text = draw({"etl": records["etl"].model_copy(update={"inputs": inputs})})
    assert "19,992 more" in text
    assert "and 19,800 more in the record" in text
    assert len(text) < 1_000_000


def test_served_that_differs_is_said(draw, records):
    parity = records["push"].figures["parity"] | {"ids_differ": 4}
    page = Page(draw(with_figures(records, "push", parity=parity)))
    assert "Served ids that differ from the feature table: 4, wanted 0" in page.text
    assert "Served equals offline" not in page.text


def test_fallbacks_are_listed(draw, records):
    receipt = {"operators_on_gpu": 400, "queries": 31, "fallbacks": [["ProjectExec", "try_cast is not supported"]]}
    page = Page(draw(with_figures(records, "etl", gpu_receipt=receipt)))
    assert "try_cast is not supported" in page.text
    assert "RAPIDS plans all" not in page.text


@pytest.mark.parametrize(("queries", "plans"), [(12, 3), (0, 0)])
def test_a_receipt_of_queries_that_were_not_explained_is_no_good_one(draw, records, queries, plans):
    receipt = {"operators_on_gpu": 30, "queries": queries, "plans": plans, "fallbacks": [], "is_whole": False}
    page = Page(draw(with_figures(records, "etl", gpu_receipt=receipt)))
    assert f"Only {plans} of {queries} queries were explained" in page.text
    assert "RAPIDS plans all" not in page.text


def test_a_receipt_names_the_run_that_took_it(draw, records):
    page = Page(draw(records))
    assert "Taken by run 20260228T190000000000 of this source and these features." in page.text
    assert "broadcast joins off" not in page.text


def test_without_a_receipt_its_command_is_named(draw, records):
    page = Page(draw(with_figures(records, "etl", gpu_receipt=None)))
    assert "rec etl RECIPE --explain" in page.text


def test_a_stage_with_nothing_to_write_shows_the_run_that_wrote(draw, records):
    earlier = {"no_op": True, "written_by": [{"run_id": "20260228T020000000000", "seconds": 734.0}]}
    text = Page(draw(with_figures(records, "etl", **earlier))).text
    assert "nothing was written; its days were written by run 20260228T020000000000 in 12 min 14 s." in text
    assert "etl 1 min 36 s (nothing to write; 12 min 14 s in an earlier run) · train" in text


def test_latency_stands_beside_the_bundle_in_process(draw, records):
    page = Page(draw(records))
    assert re.search(r"✓\s*64\s*3\.11\s*5\.02\s*20,579\s*2\.26\s*1\.38\s*≤ 1\.5", page.text)
    page = Page(render(with_figures(records, "push", latency_ratio={"64": 2.59, "2048": 1.1})))
    assert re.search(r"✗\s*64\s*3\.11", page.text)
    assert re.search(r"✓\s*2,048\s*21\.70", page.text)
    assert "Served equals offline" in page.text


def test_training_that_stopped_early_shows_every_epoch_and_why(records):
    text = Page(render(records)).text
    assert "Stopped early, after 4 of 8 epochs: 1 epoch without a better valid AUC than epoch 3's" in text
    assert all(auc in text for auc in ("0.7701", "0.7818", "0.7862", "0.7849"))


def test_a_model_below_the_baseline_is_explained(records):
    evaluate = records["evaluate"].figures
    below = {"num_train_rows": 32_000, "num_parameters": 641_600, "test": evaluate["test"] | {"auc": 0.77}}
    text = Page(render(with_figures(records, "evaluate", **below))).text
    assert "32,000 training rows are few for 641,600 numbers in its embedding tables." in text
    assert "below logistic regression; see Evaluation" in text
    assert "below logistic regression" not in Page(render(records)).text


def test_one_epoch_has_one_whole_tick(records):
    drawn = valid_auc({"epochs": records["train"].figures["epochs"][:1], "best_epoch": 1})
    assert {tick for tick in texts(drawn) if "." not in tick} >= {"0", "1", "2"}
    assert not any(re.fullmatch(r"[012]\.\d+", tick) and not tick.startswith("0.7") for tick in texts(drawn))


def texts(drawn: str) -> list[str]:
    return [text.strip() for text in re.findall(r"<text[^>]*>([^<]*)</text>", drawn)]


@pytest.mark.parametrize("rows", [3, 40, 300, 100_000])
def test_every_whisker_ends_below_the_top(monkeypatch, rows):
    monkeypatch.setattr(plots, "_svg", lambda figure, *_: figure)
    figure = plots.calibration({"calibration": [[0.1 * i, 0.1 * i + 0.02, rows] for i in range(1, 7)]})
    [axes] = figure.axes
    [bars] = [found for collection in axes.collections if len(found := collection.get_segments())]
    tops = [float(max(bar[:, 1])) for bar in bars]
    assert max(tops) == pytest.approx(min(1.0, 0.62 + 2 * (0.62 * 0.38 / rows) ** 0.5))
    assert axes.get_ylim()[1] >= max(tops)


@pytest.mark.parametrize(
    ("megabytes", "shown"), [(12.345, "12.3 MB"), (0.1, "0.1 MB"), (0.0043, "4.3 KB"), (0, "0.0 KB")]
)
def test_small_tables_have_a_size(records, megabytes, shown):
    plan = [dict(records["train"].figures["plan"][0], megabytes=megabytes, ranks=[0])]
    text = Page(render(with_figures(records, "train", plan=plan))).text
    assert f"Rank 0 holds {shown}." in text
    assert text.count(shown) == 2


def test_a_refit_shows_the_epochs_of_the_run_that_chose(draw, records):
    chosen = records["train"].figures
    refit = {"loss_curve": [[1, 0.7], [2, 0.5]], "num_steps": 2, "world_size": 2, "choice": chosen}
    refit |= {"epochs": [{"epoch": 1, "train_loss": 0.5, "valid": None}], "best_epoch": 1}
    page = Page(draw({"train": records["train"].model_copy(update={"figures": refit})}))
    assert "Epochs of the run that chose their number" in page.text
    assert "best epoch 3" in page.text
    assert "choosing the epochs" in page.text


def test_an_input_is_linked_to_the_stage_that_wrote_that_version(draw, records):
    stale = records["evaluate"].model_copy(
        update={"inputs": {"features": Artifact(uri="lake/criteo_demo/features", version=5)}}
    )
    page = Page(draw({"etl": records["etl"], "train": records["train"], "evaluate": stale}))
    assert page.text.count("from etl") == 1


def test_histogram_bars_lie_where_their_buckets_do():
    """Empty buckets may be left out; the bars around them do not move together, and a wide bucket is no taller."""
    drawn = histogram([[0, 1, 100], [3, 4, 50], [4, 8, 100]], "I1")
    bars = [tuple(map(float, bar)) for bar in re.findall(r'x="(\S+)" y="\S+" width="(\S+)" height="(\S+)"', drawn)]
    assert bars == [(0.0, 24.0, 64.0), (75.0, 24.0, 32.0), (100.0, 99.0, 16.0)]


@pytest.mark.parametrize("rows", [[[5.0, 5.0, 12]], [[5.0, 5.0, 0]], [[i, i + 1, 1] for i in range(10_000)]])
def test_histogram_of_one_value_or_of_very_many_buckets(rows):
    drawn = histogram(rows, "I1")
    assert 1 <= drawn.count("<rect") <= 40
    assert "nan" not in drawn


def test_size_with_39_columns_is_small(draw, records):
    assert len(draw(records).encode()) < 1_000_000


def test_the_same_records_give_the_same_bytes(tmp_path, records):
    folder = write_run(tmp_path, records)
    first, second = (write_report(folder, tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
    assert first == second


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"no such run; name a folder <root>/runs/<run id>"):
        write_report(tmp_path / "runs" / "none", tmp_path / "report.html")
    (tmp_path / "runs" / "empty").mkdir(parents=True)
    with pytest.raises(ConfigError, match="holds no record; rec etl RECIPE makes the first"):
        write_report(tmp_path / "runs" / "empty", tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_a_damaged_record_is_refused_in_one_line(tmp_path, records):
    folder = write_run(tmp_path, records)
    (folder / "train.json").write_text('{"run_id": ')
    with pytest.raises(ConfigError, match="a record cannot be read") as error:
        write_report(folder, tmp_path / "report.html")
    assert "\n" not in str(error.value)


def test_a_folder_as_target_is_refused(tmp_path, records):
    with pytest.raises(ConfigError, match="is a folder; name a file"):
        write_report(write_run(tmp_path, records), tmp_path)
