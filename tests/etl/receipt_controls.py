"""Run queries in an explain-only session and print, by name, the operators of each that stay off the GPU."""

import json
import sys
from pathlib import Path

from rec.etl.gpuplan import fallbacks, reads_delta_log, split_log
from rec.etl.receipt import captured_stderr, explain_conf, read_log
from rec.etl.session import spark_session


def main(folder: str) -> dict[str, list[str]]:
    found = {}
    with captured_stderr() as log:
        spark = spark_session(extra=explain_conf(Path(__file__).parents[2] / "conf/spark/cluster-gpu.conf"))
        # Row-by-row batches keep the frame's rows in a file: the leaf is a scan.
        spark.range(100).selectExpr("id", "CAST(id AS STRING) AS text").write.parquet(f"{folder}/rows")
        rows = spark.read.schema("id BIGINT, text STRING").parquet(f"{folder}/rows")
        queries = {
            "clean": rows.groupBy("id").count(),
            "try_cast": rows.selectExpr("try_cast(text AS BIGINT) AS number"),
            "python": rows.mapInArrow(lambda batches: batches, rows.schema),
            "local rows": spark.createDataFrame([(1,)], "id BIGINT").where("id > 0"),
        }
        for name, query in queries.items():
            seen = len(read_log(log))
            query.collect()
            plans = [p for p in split_log(read_log(log)[seen:]) if not reads_delta_log(p)]
            found[name] = [f.operator for plan in plans for f in fallbacks(plan)] if plans else ["no plan"]
        spark.stop()
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1])))
