"""The GPU receipt: a whole run on the CPU under RAPIDS' explain-only mode, and what would stay off the GPU.

Only what the mode needs differs from the cluster's conf: master, resources, mode, and the switches under which an
operator on the CPU would pass for one on the GPU (adaptive plans, the expression bridge, the architecture check).
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rec.core.errors import MissingDependencyError
from rec.core.records import Artifact, newest_records
from rec.etl.gpuplan import Fallback, fallbacks, reads_delta_log, split_log
from rec.etl.session import JARS_FOLDER, read_spark_conf, session_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The name of the Spark conf among a receipt's inputs; the others are the source's files.
CONF = "spark conf"
_DELTA_DESCRIPTIONS = ("Delta:", "$anonfun$recordDelta", "recordDeltaOperation")


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """``num_queries`` ran, ``num_plans`` of them were explained; ``fallbacks`` stay on the CPU."""

    num_queries: int
    num_plans: int
    num_gpu_operators: int
    fallbacks: tuple[Fallback, ...]

    @property
    def is_explained(self) -> bool:
        """Whether there were queries, and a plan for each."""
        return 0 < self.num_queries <= self.num_plans

    @property
    def is_whole(self) -> bool:
        """Whether every query was explained and all of it runs on the GPU."""
        return self.is_explained and not self.fallbacks

    def figures(self) -> dict[str, Any]:
        """Return what the run record keeps."""
        return {
            "operators_on_gpu": self.num_gpu_operators,
            "fallbacks": [[f.operator, f.reason] for f in self.fallbacks],
            "queries": self.num_queries,
            "plans": self.num_plans,
            "is_whole": self.is_whole,
        }


def rapids_jar(folder: Path = JARS_FOLDER / "gpu") -> Path:
    """Return the RAPIDS jar. Raises MissingDependencyError where it was not fetched."""
    jars = sorted(folder.glob("rapids-4-spark_*.jar"))
    if not jars:
        raise MissingDependencyError(f"{folder}: no rapids-4-spark jar; run: gradle jars -Pgpu")
    return jars[-1]


def explain_conf(cluster_conf: str | Path, *, broadcasts: bool = True) -> dict[str, str]:
    """Return the cluster's settings as an explain-only session on this machine takes them."""
    settings = read_spark_conf(cluster_conf)
    kept = {k: v for k, v in settings.items() if ".resource.gpu." not in k and not k.startswith("spark.executor.")}
    jars = [*session_jars(), str(rapids_jar())]
    return {
        **kept,
        "spark.master": "local[2]",
        "spark.driver.memory": "4g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.ui.retainedExecutions": "100000",
        "spark.sql.shuffle.partitions": "4",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.jars": ",".join(jars),
        "spark.driver.extraClassPath": ":".join(jars),
        "spark.log.level": "WARN",
        "spark.rapids.sql.mode": "explainOnly",
        "spark.rapids.sql.explain": "ALL",
        "spark.rapids.sql.expression.cpuBridge.enabled": "false",
        "spark.rapids.skipGpuArchitectureCheck": "true",
        "spark.sql.adaptive.enabled": "false",
        **({} if broadcasts else {"spark.sql.autoBroadcastJoinThreshold": "-1"}),
    }


@contextmanager
def captured_stderr() -> Iterator[Path]:
    """Send what this process and the JVM it starts write to standard error into a file, for the time of the block."""
    with tempfile.TemporaryDirectory(prefix="reclake-receipt-") as folder:
        path, kept = Path(folder) / "driver.log", os.dup(2)
        with open(path, "wb") as file:
            os.dup2(file.fileno(), 2)
        try:
            yield path
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def make_receipt(spark: "SparkSession", log: Path) -> Receipt:
    """Return the receipt of all that the session ran, from its log and its list of queries."""
    plans = [p for p in split_log(read_log(log)) if not reads_delta_log(p)]
    return Receipt(
        num_queries=len(executed_queries(spark)),
        num_plans=len(plans),
        num_gpu_operators=sum(line.is_exec and line.mark == "*" for plan in plans for line in plan),
        fallbacks=tuple(dict.fromkeys(f for plan in plans for f in fallbacks(plan))),
    )


def kept_receipt(root: str | Path, config: dict[str, Any], files: Mapping[str, Artifact]) -> dict[str, Any] | None:
    """Return the newest receipt under a root that was taken of a recipe's source and features, over files of the same
    bytes (a blank line in one moves its scan to the CPU), with its run's id."""
    digests = sorted(str(file.sha256) for file in files.values())
    for record in newest_records(root, "explain"):
        held = sorted(str(file.sha256) for name, file in record.inputs.items() if name != CONF)
        same = all(record.config.get(section) == config[section] for section in ("source", "features"))
        if same and held == digests:
            return {**record.figures, "run_id": record.run_id}
    return None


def read_log(log: Path) -> str:
    """Return the log's text with its carriage returns: plans show them as they stand in literals."""
    return log.read_bytes().decode(errors="replace")


def executed_queries(spark: "SparkSession") -> list[str]:
    """Return the description of every query of the session but Delta's reads of its own log."""
    store = spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    found = []
    for position in range(executions.size()):
        execution = executions.apply(position)
        description, plan = execution.description(), execution.physicalPlanDescription()
        if not description.startswith(_DELTA_DESCRIPTIONS) and "Delta Table State" not in plan:
            found.append(description)
    return found
