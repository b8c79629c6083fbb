"""A run that kills itself around one commit. argv: root, table, before or after, which commit, salt of day 1."""

import os
import signal
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def main(root: str, table: str, when: str, number: str, salt: str) -> None:
    from make_source import make_pipeline, make_rows, make_source

    from rec.etl import delta, vocabulary
    from rec.etl.fit import fit_features
    from rec.etl.session import spark_session
    from rec.etl.sink import write_features

    left = [int(number)]
    real = delta.commit

    def commit(uri, write, metadata):
        mine = uri.endswith(f"/{table}")
        left[0] -= mine
        if mine and left[0] == 0 and when == "before":
            os.killpg(0, signal.SIGKILL)
        done = real(uri, write, metadata)
        if mine and left[0] == 0 and when == "after":
            os.killpg(0, signal.SIGKILL)
        return done

    # The vocabulary's MERGE calls it by a name of its own.
    delta.commit = vocabulary.commit = commit
    spark = spark_session(REPOSITORY / "conf/spark/local.conf", {"spark.driver.memory": "1g"})
    days = {0: make_rows(0, 60), 1: make_rows(1, 70, salt=salt)}
    source = make_source(spark, days, quarantined=[(0, "blank"), (1, "blank")])
    write_features(source, fit_features(source, make_pipeline(), root, [0, 1]))


if __name__ == "__main__":
    main(*sys.argv[1:])
