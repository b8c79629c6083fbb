"""What a session is made with: the settings that rows depend on, and nothing that spark-submit was asked for."""

from pathlib import Path

import pytest

from rec.core.errors import ConfigError, MissingDependencyError
from rec.etl.session import (
    DELTA,
    REFUSED,
    REQUIRED,
    check_settings,
    read_spark_conf,
    session_jars,
    settings_to_make,
    spark_session,
)

CONFS = sorted((Path(__file__).resolve().parents[2] / "conf/spark").glob("*.conf"))
EXTENSIONS, CATALOG = DELTA


@pytest.mark.parametrize("path", CONFS, ids=lambda p: p.name)
def test_nothing_that_a_shipped_conf_gives_is_set_again(path):
    given = read_spark_conf(path)
    assert not settings_to_make(given).keys() & given.keys()
    assert (given | settings_to_make(given)).items() >= (REQUIRED | DELTA).items()


def test_a_bare_submit_gets_all_that_rows_depend_on():
    assert settings_to_make({"spark.app.name": "theirs"}) == REQUIRED | DELTA


def test_other_extensions_and_another_catalog_stay():
    given = {EXTENSIONS: "org.example.Audit,org.example.Lineage", CATALOG: "org.example.DeltaCatalog"}
    made = settings_to_make(given)
    assert made[EXTENSIONS] == f"{given[EXTENSIONS]},{DELTA[EXTENSIONS]}"
    assert CATALOG not in made
    assert EXTENSIONS not in settings_to_make({EXTENSIONS: f"{DELTA[EXTENSIONS]},org.example.Audit"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"spark.sql.ansi.enabled": "true"}, "spark.sql.ansi.enabled is true .*set it to false"),
        ({"spark.sql.session.timeZone": "Europe/Berlin"}, "timeZone is Europe/Berlin .*set it to UTC"),
        *[({key: value.upper()}, f"{key}={value} hides lost rows; remove it") for key, value in REFUSED.items()],
    ],
)
def test_a_setting_under_which_rows_change_is_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        settings_to_make(given)
    with pytest.raises(ConfigError, match=message):
        check_settings(given)


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("spark.a=1\nspark.b = 2\nspark.c : 3\nspark.d   4 = 5\n", {"a": "1", "b": "2", "c": "3", "d": "4 = 5"}),
        ("spark.x\\=y=z\n! c\n# d\n\n  spark.e\n", {"x=y": "z", "e": ""}),
        ("spark.f a\\\n   b\\\n#c\nspark.g \\u0041\\t.\\\\d+\n", {"f": "ab#c", "g": "A\t.\\d+"}),
        ("spark.h -Dk=v -Dm:n\r\nspark.i=  pad  \r\n", {"h": "-Dk=v -Dm:n", "i": "pad"}),
        ("spark.j=a\\\\\nspark.k=b\nspark.l tail\\", {"j": "a\\", "k": "b", "l": "tail"}),
    ],
)
def test_a_conf_file_means_what_it_means_to_spark_submit(tmp_path, text, settings):
    (tmp_path / "some.conf").write_bytes(text.encode())
    assert read_spark_conf(tmp_path / "some.conf") == {f"spark.{key}": value for key, value in settings.items()}


def test_a_conf_file_that_changes_rows_is_refused_before_a_session_starts(tmp_path):
    conf = tmp_path / "wrong.conf"
    conf.write_text("# a comment\nspark.sql.ansi.enabled  true\n")
    with pytest.raises(ConfigError, match="ansi"):
        spark_session(conf)
    conf.write_text("spark.sql.ansi.enabled=true\n")
    with pytest.raises(ConfigError, match="ansi"):
        spark_session(conf)
    with pytest.raises(ConfigError, match=r"nowhere\.conf: no such file"):
        spark_session(tmp_path / "nowhere.conf")


def test_a_folder_without_deltas_jar_names_the_remedy(tmp_path):
    (tmp_path / "other.jar").touch()
    with pytest.raises(MissingDependencyError, match="no delta-spark jar; run: make jars"):
        session_jars(tmp_path)


def test_a_running_session_that_hides_lost_rows_is_refused(spark):
    key = next(iter(REFUSED))
    spark.conf.set(key, "true")
    try:
        with pytest.raises(ConfigError, match=f"{key}=true hides lost rows"):
            spark_session()
    finally:
        spark.conf.unset(key)
    assert spark_session() is not None
