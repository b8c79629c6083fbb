"""Reading RAPIDS' explain output: a fallback is never taken for a GPU operator."""

import pytest

from rec.core.errors import TableError
from rec.etl.gpuplan import fallbacks, parse_plan, reads_delta_log, split_log

ON_GPU = """*Exec <HashAggregateExec> will run on GPU
  *Expression <Count> count(1) will run on GPU
  *Exec <ShuffleExchangeExec> will run on GPU
    *Partitioning <HashPartitioning> will run on GPU
    *Exec <FileSourceScanExec> will run on GPU
"""
HEAD = "26/01/02 03:04:05 WARN GpuOverrides: \n"


def test_a_plan_on_the_gpu_has_no_fallback():
    assert fallbacks(parse_plan(ON_GPU)) == []


@pytest.mark.parametrize("mark", ["!", "@", "$", "^"])
def test_every_mark_that_is_off_the_gpu_is_a_fallback(mark):
    text = ON_GPU.replace("*Exec <Shuffle", f"{mark}Exec <Shuffle").replace(
        "ShuffleExchangeExec> will", "X> it cannot because Y; will"
    )
    found = fallbacks(parse_plan(text))
    assert [(f.operator, f.reason) for f in found] == [("X", "Y; will run on GPU")]


def test_a_line_without_a_kind_is_read():
    line = "! <RDDScanExec> cannot run on GPU because GPU does not currently support the operator class"
    assert fallbacks(parse_plan(ON_GPU + "    " + line))[0].operator == "RDDScanExec"


@pytest.mark.parametrize("leaf", ["LocalTableScanExec", "RangeExec", "InMemoryTableScanExec"])
def test_a_leaf_that_is_no_scan_is_a_fallback(leaf):
    found = fallbacks(parse_plan(ON_GPU.replace("FileSourceScanExec", leaf)))
    assert [f.operator for f in found] == [leaf]


def test_one_of_two_leaves_that_is_no_scan_is_found():
    text = (
        "*Exec <BroadcastHashJoinExec> will run on GPU\n"
        "  *Exec <LocalTableScanExec> will run on GPU\n"
        "  *Exec <FileSourceScanExec> will run on GPU\n"
    )
    assert [f.operator for f in fallbacks(parse_plan(text))] == ["LocalTableScanExec"]


def test_nothing_explained_is_an_error():
    with pytest.raises(TableError, match="RAPIDS jar"):
        parse_plan("java.lang.ClassNotFoundException")


def test_the_log_is_split_by_query_and_delta_log_reads_are_told_apart():
    delta = ON_GPU.replace("count(1)", "isnotnull(add#63)")
    log = f"noise\n{HEAD}{ON_GPU}\nmore\n[Stage 1:>  (0 + 2) / 4] {HEAD}{delta}"
    plans = split_log(log)
    assert [reads_delta_log(p) for p in plans] == [False, True]
    assert next(line.operator for line in plans[0]) == "HashAggregateExec"


@pytest.mark.parametrize("literal", ["\r", "\n", "\u2028", "\x1c"])
def test_a_literal_that_breaks_a_line_does_not_end_the_plan(literal):
    plan = ON_GPU.replace("count(1) will", f"split(x, {literal}) will")
    [found] = split_log(f"{HEAD}{plan}\nnoise")
    assert [line.operator for line in found][-1] == "FileSourceScanExec"


@pytest.mark.parametrize(
    "operator", ["MapInArrowExec", "ArrowEvalPythonExec", "MapInPandasExec", "PythonMapInArrowExec"]
)
def test_a_python_step_is_a_fallback_whatever_its_mark(operator):
    found = fallbacks(parse_plan(ON_GPU.replace("ShuffleExchangeExec", operator)))
    assert [(f.operator, f.reason) for f in found] == [(operator, "a Python step")]
