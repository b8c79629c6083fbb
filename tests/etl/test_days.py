"""The rule that tells a row's day."""

import pytest

from rec.core.config import parse_config
from rec.core.errors import ConfigError, DayError
from rec.etl.config import DayRule, SourceConfig
from rec.etl.days import day_of_path, last_lines


@pytest.mark.parametrize(
    "rule", [{}, {"column": "ts", "path": r"(\d+)"}, {"path": r"day_\d+"}, {"path": "("}, {"lines": [0]}, {"when": "x"}]
)
def test_a_rule_that_is_not_exactly_one_is_refused(rule):
    with pytest.raises(ConfigError, match=r"^source.day: "):
        parse_config(DayRule, rule, "source.day")


def test_no_rule_says_which_there_are():
    with pytest.raises(ConfigError, match=r"no way to tell the day.*column.*path.*lines"):
        parse_config(SourceConfig, {"path": "x", "day": {}}, "source")


@pytest.mark.parametrize(
    ("path", "day"), [("/a/day_3.tsv", 3), ("/day_9/day_07/part-0", 7), ("/x/day_20240229.gz", 20240229)]
)
def test_the_last_match_in_a_path_is_its_day(path, day):
    assert day_of_path(r"day_(\d+)", path) == day


@pytest.mark.parametrize("path", ["/a/night_3.tsv", "/a/day_99999999999.tsv"])
def test_a_path_without_a_day_is_refused_by_name(path):
    with pytest.raises(DayError, match=path):
        day_of_path(r"day_(\d+)", path)


@pytest.mark.parametrize(
    ("cuts", "lines"),
    [([0.8, 0.9], [10055, 11312]), ([8000, 10000], [8000, 10000]), ([100, 0.9], [100, 11312]), ([12569], [12569])],
)
def test_cuts_are_lines_or_fractions_of_all_lines(cuts, lines):
    assert last_lines(cuts, 12569) == lines


def test_a_fraction_is_taken_as_its_digits_say():
    assert last_lines([0.29, 0.57], 100) == [29, 57]


@pytest.mark.parametrize("cuts", [[5, 5], [5, 4], [0.9, 0.8], [101], [0.001]])
def test_cuts_that_leave_a_day_without_lines_are_refused(cuts):
    with pytest.raises(DayError, match=r"day.lines \["):
        last_lines(cuts, 100)
