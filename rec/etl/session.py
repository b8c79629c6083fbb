"""A Spark session from a spark-defaults file, with the settings that always hold."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rec.core.errors import ConfigError, MissingDependencyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS_FOLDER = Path(__file__).resolve().parents[2] / "jars"
LOGGING = Path(__file__).with_name("log4j2.properties")

ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
# Exactly 65,536 rows a Parquet row group: the writer takes these from the session and from nowhere else. It
# closes a group at the first check, one in 65,536 rows, that finds more bytes than this: row keys alone take more.
WRITER = {
    "parquet.block.size": "262144",
    "parquet.page.size.row.check.min": "65536",
    "parquet.page.size.row.check.max": "65536",
}
# A reader that skips a damaged or missing file turns a loss into fewer rows without a word.
REFUSED = {"spark.sql.files.ignoreCorruptFiles": "true", "spark.sql.files.ignoreMissingFiles": "true"}


def read_spark_conf(path: str | Path) -> dict[str, str]:
    """Return the settings of a spark-defaults file: a key, white space, a value; # starts a comment line."""
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"Spark conf {path}: no such file; pass one such as conf/spark/local.conf")
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    pairs = (line.split(None, 1) for line in lines if line and not line.startswith("#"))
    return {pair[0]: pair[1] if len(pair) > 1 else "" for pair in pairs}


def session_jars(folder: Path = JARS_FOLDER) -> list[str]:
    """Return the jars of a session. Raises MissingDependencyError when Delta's is not there."""
    jars = sorted(str(p) for p in folder.glob("*.jar"))
    if not any("delta-spark" in jar for jar in jars):
        raise MissingDependencyError(f"{folder}: no delta-spark jar; run: gradle jars")
    return jars


def is_submitted() -> bool:
    """Whether spark-submit started this program: then master, jars and memory are its to say."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def spark_session(conf: str | Path | None = None, extra: dict[str, str] | None = None) -> "SparkSession":
    """Return the running session, or start one from a spark-defaults file; ``extra`` wins over the file.

    Under spark-submit the file is given by --properties-file and ``conf`` may be left out.
    """
    from pyspark.sql import SparkSession

    settings = {**(read_spark_conf(conf) if conf else {}), **(extra or {}), **ALWAYS}
    for key, value in REFUSED.items():
        if settings.get(key, "").lower() == value:
            raise ConfigError(f"{key}={value} hides lost rows; remove it from the Spark conf")
    # Executors start this name: without it a worker runs another Python than the driver.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("reclake")
    if "spark.jars" not in settings and not is_submitted():
        builder = builder.config("spark.jars", ",".join(session_jars()))
    options = settings.get("spark.driver.extraJavaOptions", "")
    if "log4j2.configurationFile" not in options:
        settings["spark.driver.extraJavaOptions"] = f"{options} -Dlog4j2.configurationFile={LOGGING}".strip()
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    for key, value in WRITER.items():
        session.conf.set(key, value)
    return session
