"""A Spark session from a spark-defaults file, with the settings that always hold."""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rec.core.errors import ConfigError, MissingDependencyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS_FOLDER = Path(__file__).resolve().parents[2] / "jars"
LOGGING = Path(__file__).with_name("log4j2.properties")

_NAME, _JAVA_OPTIONS = "spark.app.name", "spark.driver.extraJavaOptions"
_EXTENSIONS, _CATALOG = "spark.sql.extensions", "spark.sql.catalog.spark_catalog"
DELTA = {
    _EXTENSIONS: "io.delta.sql.DeltaSparkSessionExtension",
    _CATALOG: "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
# A cast that raises, or a date of another zone, would give other rows.
REQUIRED = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "false"}
# Exactly 65,536 rows a Parquet row group: the writer takes these from the session and from nowhere else. It
# closes a group at the first check, one in 65,536 rows, that finds more bytes than this: row keys alone take more.
WRITER = {
    "parquet.block.size": "262144",
    "parquet.page.size.row.check.min": "65536",
    "parquet.page.size.row.check.max": "65536",
}
# A reader that skips a damaged or missing file turns a loss into fewer rows without a word.
REFUSED = {"spark.sql.files.ignoreCorruptFiles": "true", "spark.sql.files.ignoreMissingFiles": "true"}

# The lines of Java's properties files. What no pattern fits cannot be: each takes any text.
_BLANK = " \t\f"
_PROPERTY = re.compile(r"((?:\\.|[^\\=: \t\f])*)(?:[ \t\f]*[=:][ \t\f]*|[ \t\f]*)(.*)", re.DOTALL)
_GOES_ON = re.compile(r"(?<!\\)(?:\\\\)*\\$")
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_spark_conf(path: str | Path) -> dict[str, str]:
    """Return the settings of a spark-defaults file, read as spark-submit reads it: as Java properties.

    Key and value stand apart by white space, = or :. Lines that start with # or ! are comments, a line that ends in a
    backslash goes on in the next, and a backslash makes the character after it an ordinary one.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"Spark conf {path}: no such file; pass one such as conf/spark/local.conf")
    settings, whole = {}, ""
    # The last line is empty: it ends one that would go on.
    for line in (path.read_text(encoding="utf-8") + "\n").split("\n"):
        line = line.lstrip(_BLANK)
        if not whole and line.startswith(("#", "!")):
            continue
        whole += line
        if _GOES_ON.search(line):
            whole = whole[:-1]
            continue
        key, value = _PROPERTY.fullmatch(whole).groups()  # type: ignore[union-attr]
        whole = ""
        if key or value:
            settings[_unescaped(key)] = _unescaped(value).strip()
    return settings


def _unescaped(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        return chr(int(found[1][1:], 16)) if len(found[1]) > 1 else _ESCAPES.get(found[1], found[1])

    return _ESCAPED.sub(character, text)


def session_jars(folder: Path = JARS_FOLDER) -> list[str]:
    """Return the jars of a session. Raises MissingDependencyError when Delta's is not there."""
    jars = sorted(str(p) for p in folder.glob("*.jar"))
    if not any("delta-spark" in jar for jar in jars):
        raise MissingDependencyError(f"{folder}: no delta-spark jar; run: make jars (or gradle jars)")
    return jars


def is_submitted() -> bool:
    """Whether spark-submit started this program: then master, jars and memory are its to say."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def submitted_conf() -> dict[str, str]:
    """Return what spark-submit was given, by options and by its properties file; nothing where it did not start us."""
    if not is_submitted():
        return {}
    from pyspark import SparkConf, SparkContext

    # Without the JVM a SparkConf is empty.
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def settings_to_make(given: Mapping[str, str]) -> dict[str, str]:
    """Return what a session needs beside the settings that are ``given``: none of those is set again.

    Raises ConfigError for a given one that would change or lose rows.
    """
    check_settings(given)
    made = {key: value for key, value in (REQUIRED | DELTA).items() if key not in given}
    extensions = given.get(_EXTENSIONS, "")
    if extensions and DELTA[_EXTENSIONS] not in extensions.split(","):
        # A list: Delta's stands beside what else the session is extended by.
        made[_EXTENSIONS] = f"{extensions},{DELTA[_EXTENSIONS]}"
    return made


def check_settings(given: Mapping[str, str]) -> None:
    """Raise ConfigError for a setting under which rows change or get lost."""
    for key, value in REQUIRED.items():
        if given.get(key, value).lower() != value.lower():
            raise ConfigError(f"{key} is {given[key]} in the Spark conf, rows would differ; set it to {value}")
    for key, value in REFUSED.items():
        if given.get(key, "").lower() == value:
            raise ConfigError(f"{key}={value} hides lost rows; remove it from the Spark conf")


def spark_session(conf: str | Path | None = None, extra: dict[str, str] | None = None) -> "SparkSession":
    """Return the running session, or start one from a spark-defaults file; ``extra`` wins over the file.

    Under spark-submit the file is given by --properties-file and ``conf`` may be left out: what spark-submit was
    given stays as it is.
    """
    from pyspark.sql import SparkSession

    asked = {**(read_spark_conf(conf) if conf else {}), **(extra or {})}
    settings = asked | settings_to_make(submitted_conf() | asked)
    if not is_submitted():
        settings |= _launch_settings(asked)
    # Executors start this name: without it a worker runs another Python than the driver.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    check_settings({key: session.conf.get(key, None) or "" for key in REQUIRED | REFUSED})
    for key, value in WRITER.items():
        session.conf.set(key, value)
    return session


def _launch_settings(asked: Mapping[str, str]) -> dict[str, str]:
    """Return what a JVM is started with, and spark-submit's to say where that starts it."""
    made = {} if _NAME in asked else {_NAME: "reclake"}
    if "spark.jars" not in asked:
        made["spark.jars"] = ",".join(session_jars())
    options = asked.get(_JAVA_OPTIONS, "")
    if "log4j2.configurationFile" not in options:
        made[_JAVA_OPTIONS] = f"{options} -Dlog4j2.configurationFile={LOGGING}".strip()
    return made
