"""A Source over rows made here, with the ledger of lines that were all accepted."""

import hashlib

from rec.core.schema import Column, FeatureSchema
from rec.etl.intake import SourceFile
from rec.etl.ledger import Ledger
from rec.etl.source import Source
from rec.ops.categorify import Categorify
from rec.ops.clip import Clip
from rec.ops.fill_missing import FillMissing
from rec.ops.log import LogOp
from rec.ops.pipeline import Pipeline

SCHEMA = FeatureSchema(
    columns=(
        Column(name="label", role="label", dtype="int32"),
        Column(name="I1", role="dense", dtype="int64"),
        Column(name="I2", role="dense", dtype="int64"),
        Column(name="C1", role="sparse", dtype="string", key="hex32"),
        Column(name="C2", role="sparse", dtype="string", key="hex32"),
        Column(name="C3", role="sparse", dtype="string", key="string"),
    )
)
SQL_TYPES = {"int32": "INT", "int64": "BIGINT", "float64": "DOUBLE", "string": "STRING"}


def make_rows(day, num_rows, salt=""):
    """Return rows of (label, I1, I2, C1, C2, C3) that depend on the day, the row and ``salt`` alone."""

    def number(place, name):
        return int.from_bytes(hashlib.sha256(f"{salt}{day}.{place}.{name}".encode()).digest()[:4], "big")

    rows = []
    for place in range(num_rows):
        i1 = None if number(place, "I1") % 7 == 0 else number(place, "I1") % 50 - 5
        c1 = None if number(place, "C1") % 11 == 0 else f"{number(place, 'C1') % 13 * 330382099:08x}"
        c2 = f"{number(place, 'C2') % 5 + day * 3:08x}"
        c3 = [None, "a", "b", "é", "a "][number(place, "C3") % 5]
        rows.append((number(place, "label") % 2, i1, number(place, "I2"), c1, c2, c3))
    return rows


def make_source(spark, days, schema=SCHEMA, num_partitions=2, quarantined=()):
    """Return a Source of ``days``, {day: rows in schema order}: one file a day, lines in order of the rows.

    ``quarantined`` are (day, reason) of lines that follow a day's rows.
    """
    types = ", ".join(f"`{c.name}` {SQL_TYPES[c.dtype]}" for c in schema.columns)
    ddl = f"{types}, row_key BIGINT, day INT"
    frames, files, lines, bad = [], [], [], []
    num_dense = len(schema.dense)
    for position, (day, rows) in enumerate(days.items()):
        content = repr(rows).encode()
        keyed = [(*row, (position << 40) + line, day) for line, row in enumerate(rows, 1)]
        frames += keyed
        lines += [(row[-2], day, None, row[0], *row[1 : 1 + num_dense]) for row in keyed]
        reasons = [reason for of_day, reason in quarantined if of_day == day]
        for line, reason in enumerate(reasons, len(rows) + 1):
            lines.append(((position << 40) + line, day, reason, *[None] * (1 + num_dense)))
            bad.append((position, f"/raw/day_{day}", line, "?", reason, day, (position << 40) + line))
        files.append(
            SourceFile(
                path=f"/raw/day_{day}",
                sha256=hashlib.sha256(content + repr(reasons).encode()).hexdigest(),
                num_bytes=len(content),
                modified_ns=0,
                num_lines=len(rows) + len(reasons),
                layout="labelled",
                day=day,
            )
        )
    frame = spark.createDataFrame(frames, ddl).repartition(num_partitions)
    dense = [f"`{c.name}` {SQL_TYPES[c.dtype]}" for c in schema.dense]
    binned = spark.createDataFrame(lines, ", ".join(["row_key BIGINT, day INT, _outcome STRING, label INT", *dense]))
    quarantine = "file INT, file_name STRING, line BIGINT, text STRING, reason STRING, day INT, row_key BIGINT"
    return Source(
        frame=frame,
        keyed=frame,
        schema=schema,
        ledger=Ledger(files=tuple(files), schema=schema, lines=binned),
        quarantine=spark.createDataFrame(bad, quarantine),
        files=tuple(files),
        max_quarantine_fraction=1.0,
    )


def make_pipeline(freq_threshold=2, schema=SCHEMA, **arguments):
    dense = schema.dense >> FillMissing(0) >> Clip(min=0) >> LogOp()
    return Pipeline(dense, schema.sparse >> Categorify(freq_threshold=freq_threshold, **arguments))
