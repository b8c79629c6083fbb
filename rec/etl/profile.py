"""What a feature table holds, column by column: figures for the report, made by three queries."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rec.core.ids import MISSING, UNSEEN
from rec.core.schema import Column, FeatureSchema
from rec.ops.op import quoted, text_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NUM_TOP_VALUES = 10
NUM_HISTOGRAM_BINS = 20


def column_figures(
    features: "DataFrame", vocabulary: "DataFrame", schema: FeatureSchema, missing: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Return a card for each feature: missing, unseen, vocabulary and top values, or range, mean and histogram.

    ``features`` is the encoded table, ``vocabulary`` the table of ids, values and counts over the fitted days,
    ``missing`` the dense columns' count of it, which the encoded table no longer tells.
    """
    [total] = features.selectExpr("COUNT(*) AS rows", *_sums(schema)).collect()
    totals = total.asDict()
    tops = _top_values(vocabulary)
    histograms = _histograms(features, schema.dense, totals)
    sparse = [_sparse_card(c, totals, tops.get(c.name, [])) for c in schema.sparse]
    return [*(_dense_card(c, totals, histograms.get(c.name, []), missing[c.name]) for c in schema.dense), *sparse]


def _sums(schema: FeatureSchema) -> list[str]:
    ids = {"missing": MISSING, "unseen": UNSEEN}
    counts = [
        f"COUNT_IF({quoted(c.name)} = {value}) AS {quoted(f'{c.name}.{what}')}"
        for c in schema.sparse
        for what, value in ids.items()
    ]
    ranges = [
        f"{function}(CAST({quoted(c.name)} AS DOUBLE)) AS {quoted(f'{c.name}.{function}')}"
        for c in schema.dense
        for function in ("min", "max", "mean")
    ]
    return [*counts, *ranges]


def _sparse_card(column: Column, totals: dict[str, Any], top_values: list[list[Any]]) -> dict[str, Any]:
    assert column.num_embeddings is not None, column
    return {
        "name": column.name,
        "role": "sparse",
        "rows": totals["rows"],
        "missing": totals[f"{column.name}.missing"],
        "unseen": totals[f"{column.name}.unseen"],
        "vocabulary": column.num_embeddings - 3,
        "num_embeddings": column.num_embeddings,
        "top_values": top_values,
    }


def _dense_card(column: Column, totals: dict[str, Any], histogram: list[list[float]], missing: int) -> dict[str, Any]:
    ranges = {name: totals[f"{column.name}.{name}"] for name in ("min", "max", "mean")}
    about = {"name": column.name, "role": "dense", "rows": totals["rows"], "missing": missing}
    return {**about, **ranges, "histogram": histogram}


def _top_values(vocabulary: "DataFrame") -> dict[str, list[list[Any]]]:
    ranked = vocabulary.selectExpr(
        "column", "value", "count", "ROW_NUMBER() OVER (PARTITION BY column ORDER BY count DESC, id) AS place"
    )
    tops: dict[str, list[list[Any]]] = {}
    for row in ranked.where(f"place <= {NUM_TOP_VALUES}").orderBy("column", "place").collect():
        tops.setdefault(row["column"], []).append([str(row["value"]), row["count"]])
    return tops


def _histograms(
    features: "DataFrame", columns: tuple[Column, ...], totals: dict[str, Any]
) -> dict[str, list[list[float]]]:
    """Return bins of equal width as [low, high, count]; a constant column has one bin."""
    widths = {}
    for column in columns:
        low, high = totals[f"{column.name}.min"], totals[f"{column.name}.max"]
        if low is not None and high is not None:
            widths[column.name] = (low, (high - low) / NUM_HISTOGRAM_BINS)
    if not widths:
        return {}
    bins = [
        f"STRUCT({text_literal(name)} AS column, "
        f"LEAST(FLOOR((CAST({quoted(name)} AS DOUBLE) - {low!r}D) / {width!r}D), {NUM_HISTOGRAM_BINS - 1}) AS bin)"
        if width > 0
        else f"STRUCT({text_literal(name)} AS column, CAST(0 AS BIGINT) AS bin)"
        for name, (low, width) in widths.items()
    ]
    entries = features.selectExpr(f"EXPLODE(ARRAY({', '.join(bins)})) AS entry").selectExpr("entry.column", "entry.bin")
    counted = entries.groupBy("column", "bin").count()
    found: dict[str, list[list[float]]] = {}
    for row in counted.orderBy("column", "bin").collect():
        low, width = widths[row["column"]]
        edge = low + row["bin"] * width
        found.setdefault(row["column"], []).append([edge, edge + width, row["count"]])
    return found
