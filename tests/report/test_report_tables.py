"""The terminal's tables: the same sums, and raw values that cannot drive the terminal."""

import copy
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from rec.report.folded import folded
from rec.report.tables import evaluation_table, ledger_table, push_table, training_line


def text_of(renderable, width: int = 140) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"), color_system=None)  # noqa: SIM115
    console.print(renderable)
    return console.export_text()


def test_ledger_sums_and_reasons(records):
    text = text_of(ledger_table(records["etl"].figures))
    assert "Bins add up to 1,200,606 lines in 6 files, reasons to 333 quarantined." in text
    assert "short:37 × 261" in text
    assert "1,200,272" in text


def test_ledger_that_fails_says_where(records):
    figures = copy.deepcopy(records["etl"].figures)
    figures["ledger"][2]["header"] = 5
    text = text_of(ledger_table(figures))
    assert "✗ Bins do not add up: raw/day_2, day 2 has 250,113 lines, its bins 250,118." in text


@pytest.mark.parametrize("value", ["\x1b[31mred", "[bold red]x[/]", "[/nonsense]", "\x07\x08", "é" * 10_000])
def test_raw_values_cannot_drive_the_terminal(records, value):
    figures = copy.deepcopy(records["etl"].figures)
    figures["ledger"][0] |= {"file": value, "reasons": {value: 63}}
    text = text_of(ledger_table(figures))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "Bins add up" in text
    assert text.count("\n") < 40
    if value.startswith("["):
        assert value in text


def test_many_files_are_folded(records):
    row = records["etl"].figures["ledger"][0]
    text = text_of(ledger_table({"ledger": [row | {"file": f"part-{i}"} for i in range(300)]}))
    assert "261 further entries, summed" in text
    assert f"{300 * row['lines']:,}" in text


def test_evaluation_beside_its_bounds(records):
    text = text_of(evaluation_table(records["evaluate"].figures))
    for wanted in ("0.7849", "0.7817–0.7881", "0.7712", "0.8043", "100,011"):
        assert wanted in text
    assert "41.4 % of the way from logistic regression to the best possible" in text


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (32_000, "below logistic regression: 32,000 training rows are few for 641,600 numbers"),
        (900_000, "below logistic regression on 900,000 training rows; try more epochs or other learning rates."),
        (None, "The trained model is below logistic regression."),
    ],
)
def test_a_model_below_the_baseline_is_explained_by_its_figures(records, rows, sentence):
    figures = copy.deepcopy(records["evaluate"].figures) | {"num_train_rows": rows, "num_parameters": 641_600}
    assert "below" not in text_of(evaluation_table(figures))
    figures["test"]["auc"] = 0.7701
    assert sentence in text_of(evaluation_table(figures))
    del figures["baselines"]["planted"]
    assert sentence in text_of(evaluation_table(figures))


def test_evaluation_without_baselines(records):
    text = text_of(evaluation_table({"test": records["evaluate"].figures["test"]}))
    assert "0.7849" in text
    assert "of the way" not in text


def test_a_ledger_of_nothing_written_names_the_runs_that_wrote(records):
    earlier = {"no_op": True, "written_by": [{"run_id": "first", "seconds": 96.2}, {"run_id": "api", "seconds": None}]}
    text = text_of(ledger_table(records["etl"].figures | earlier))
    assert "nothing was written; its days were written by run first in 1 min 36 s and run api." in text
    assert "nothing was written" not in text_of(ledger_table(records["etl"].figures))


def test_the_training_line_tells_size_and_speed(records):
    line = "Training: 3,904 steps on 2 ranks, 41,870 rows/s, 61,450,113 parameters"
    assert line in text_of(training_line(records["train"].figures))


def test_the_training_line_tells_what_ended_it(records):
    figures = records["train"].figures
    early = "Stopped early, after 4 of 8 epochs: 1 epoch without a better valid AUC than epoch 3's;"
    assert f"{early} its weights are the result." in text_of(training_line(figures))
    assert f"{early} the final training has 3 epochs." in text_of(training_line({"choice": figures}))
    whole = figures | {"stopped_early": False, "max_epochs": 4, "metric": "log_loss"}
    end = "Trained for 4 epochs, as many as asked; epoch 3 has the best valid log loss."
    assert end in text_of(training_line(whole))
    one = whole | {"epochs": figures["epochs"][:1], "max_epochs": 1, "best_epoch": 1}
    assert "Trained for 1 epoch, as many as asked." in text_of(training_line(one))


def test_latency_stands_beside_the_bundle_in_process(records):
    text = text_of(push_table(records["push"].figures), 80)
    assert re.search(r"64 +3\.11 +5\.02 +20,579 +2\.26 +1\.38 +≤ 1\.5 +✓", text)


def test_a_latency_above_its_budget_is_marked_and_parity_still_holds(records):
    figures = records["push"].figures | {"latency_ratio": {"1": 6.19, "64": 2.59, "2048": 1.2}}
    text = text_of(push_table(figures), 80)
    assert re.search(r"2\.59 +≤ 1\.5 +✗", text)
    assert re.search(r"1\.20 +≤ 1\.2 +✓", text)
    assert text.count("✗") == 1
    assert "✓ served = offline" in text


def test_push_verdict(records):
    text = text_of(push_table(records["push"].figures))
    assert "serving criteo version 3" in text
    assert "✓ served = offline on 100,011 rows" in text
    assert "94,378" in text


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        ("ids_differ", 1),
        ("dense_differ", 3),
        ("scores_differ", 2),
        ("max_logit_delta", 1.1e-5),
        ("auc_delta", -2e-6),
        ("auc_delta", None),
    ],
)
def test_push_that_differs(records, figure, value):
    figures = copy.deepcopy(records["push"].figures)
    figures["parity"][figure] = value
    text = text_of(push_table(figures))
    assert "served = offline" not in text
    assert "✗" in text


def test_absent_figures_render(records):
    assert "no ledger recorded" in text_of(ledger_table({}))
    assert "not measured" in text_of(push_table({}))
    text_of(evaluation_table({}))
    text_of(training_line({}))


@pytest.mark.parametrize("width", [80, 200])
def test_numbers_and_file_names_are_never_cut(records, width):
    figures = copy.deepcopy(records["etl"].figures)
    figures["ledger"][0]["file"] = "/" + "folder/" * 20 + "day_0"
    text = text_of(ledger_table(figures), width)
    assert "1,200,606" in text
    assert "…" not in text
    first_column = "".join(line.split(" ")[0] for line in text.splitlines())
    assert figures["ledger"][0]["file"] in first_column


def first_column(text: str) -> list[str]:
    return [line.split(" ")[0] for line in text.splitlines()]


@pytest.mark.parametrize("folder", ["lake/raw_tiny/", "/data/" + "some_company/" * 9 + "raw/", "s3://bucket/raw/"])
def test_a_common_folder_is_named_once_and_no_name_is_broken(records, folder):
    rows = [row | {"file": f"{folder}{row['file']}"} for row in records["etl"].figures["ledger"]]
    text = text_of(ledger_table({"ledger": rows}), 80)
    assert [f"day_{day}" for day in range(6)] == first_column(text)[-9:-3]
    title = "".join(line.rstrip() for line in text[: text.index("file ")].splitlines())
    assert title == f"Ledger of {folder}raw/"


def test_files_of_many_folders_are_broken_at_slashes(records):
    rows = [
        row | {"file": f"/data/{'ab'[row['day'] % 2]}/warehouse/exports/{row['file']}"}
        for row in records["etl"].figures["ledger"]
    ]
    text = text_of(ledger_table({"ledger": rows}), 80)
    assert text.startswith("Ledger of /data/")
    found = first_column(text)
    assert found.count("day_3") == 1
    assert all(cell.endswith("/") or not cell or cell.startswith(("day_", "a/", "b/", "raw/")) for cell in found[2:-4])
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("width", range(1, 30))
def test_a_folded_path_is_whole_and_within_its_width(width):
    path = "/data/day=2026-01-01/a very long name.part-00000.tsv.gz/é世界/x"
    lines = folded(path, width)
    assert "".join(lines) == path
    assert all(cell_len(line) <= max(width, 2) for line in lines)
