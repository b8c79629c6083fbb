"""The row ledger: every physical line of a source in exactly one bin, by file and day."""

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rec.core.errors import InputError, QuarantineLimitError
from rec.core.schema import FeatureSchema
from rec.etl.intake import SourceFile
from rec.etl.rows import HEADER, PADDED
from rec.etl.scan import FILE_BITS
from rec.ops.op import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class LedgerRow:
    """The lines of one file and day. ``day`` is null for lines that have none.

    ``unlabelled`` and ``positive`` count among ``accepted`` and ``padded``; ``quarantined`` goes by reason, ``missing``
    by dense column.
    """

    file: int
    path: str
    day: int | None
    accepted: int = 0
    padded: int = 0
    header: int = 0
    quarantined: dict[str, int] = field(default_factory=dict)
    unlabelled: int = 0
    positive: int = 0
    missing: dict[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Lines that became rows of the frame."""
        return self.accepted + self.padded

    @property
    def lines(self) -> int:
        return self.rows + self.header + sum(self.quarantined.values())

    def figures(self) -> dict[str, Any]:
        """Return the row as the run record holds it."""
        return {
            "file": self.path,
            "day": self.day,
            "lines": self.lines,
            "accepted": self.accepted,
            "padded": self.padded,
            "header": self.header,
            "quarantined": sum(self.quarantined.values()),
            "unlabelled": self.unlabelled,
            "reasons": self.quarantined,
        }


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """Counts of a source's lines, made by one pass over them when first asked for.

    ``lines`` has ``row_key``, ``day``, ``_outcome`` (null for accepted, a bin or a reason) and the values of each line.
    """

    files: tuple[SourceFile, ...]
    schema: FeatureSchema
    lines: "DataFrame"

    @cached_property
    def rows(self) -> tuple[LedgerRow, ...]:
        """One row for each file and day. Raises InputError where a file's bins don't add up to its lines at intake."""
        file = f"CAST(SHIFTRIGHT(row_key, {FILE_BITS}) AS INT) AS _file"
        dense = [quoted(c.name) for c in self.schema.dense]
        bins = self.lines.selectExpr(file, "day", "_outcome", "label", *dense)
        counts = bins.groupBy("_file", "day", "_outcome", "label").agg({"*": "count", **dict.fromkeys(dense, "count")})
        found: dict[tuple[int, int | None], list[Any]] = {}
        for count in counts.collect():
            found.setdefault((count["_file"], count["day"]), []).append(count)
        rows = [self._row(place, counts) for place, counts in found.items()]
        rows += [self._row((k, f.day), []) for k, f in enumerate(self.files) if not f.num_lines]
        self._check_sums(rows)
        return tuple(sorted(rows, key=lambda row: (row.file, row.day is None, row.day or 0)))

    def _row(self, place: tuple[int, int | None], counts: list[Any]) -> LedgerRow:
        bins: Counter[str] = Counter()
        labels: Counter[int | None] = Counter()
        missing = Counter(dict.fromkeys((c.name for c in self.schema.dense), 0))
        for count in counts:
            bins[count["_outcome"] or "accepted"] += count["count(1)"]
            if count["_outcome"] in (None, PADDED):
                labels[count["label"]] += count["count(1)"]
                missing.update({name: count["count(1)"] - count[f"count({name})"] for name in missing})
        return LedgerRow(
            file=place[0],
            path=self.files[place[0]].path,
            day=place[1],
            accepted=bins.pop("accepted", 0),
            padded=bins.pop(PADDED, 0),
            header=bins.pop(HEADER, 0),
            quarantined=dict(sorted(bins.items())),
            unlabelled=labels[None],
            positive=labels[1],
            missing=dict(missing),
        )

    def _check_sums(self, rows: list[LedgerRow]) -> None:
        binned: Counter[int] = Counter()
        for row in rows:
            binned[row.file] += row.lines
        for position, file in enumerate(self.files):
            if binned[position] != file.num_lines:
                raise InputError(
                    f"{file.path}: {file.num_lines} lines at intake, {binned[position]} in the ledger's bins; "
                    "the file changed since it was measured, read the source again"
                )

    @property
    def days(self) -> tuple[int, ...]:
        """The days that hold rows, in order."""
        return tuple(sorted({row.day for row in self.rows if row.rows and row.day is not None}))

    @property
    def reasons(self) -> dict[str, int]:
        """Quarantined lines by reason, most frequent first."""
        total: Counter[str] = Counter()
        for row in self.rows:
            total.update(row.quarantined)
        return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))

    @property
    def missing(self) -> dict[str, int]:
        """Rows without a value, by dense column."""
        total: Counter[str] = Counter()
        for row in self.rows:
            total.update(row.missing)
        return dict(total)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What intake noticed, and files whose every label is 0."""
        labelled: Counter[int] = Counter()
        positive: Counter[int] = Counter()
        for row in self.rows:
            labelled[row.file] += row.rows - row.unlabelled
            positive[row.file] += row.positive
        found = [f"{file.path}: {warning}" for file in self.files for warning in file.warnings]
        for position, file in enumerate(self.files):
            if labelled[position] and not positive[position]:
                found.append(
                    f"{file.path}: all {labelled[position]} labels are 0; a file without labels may have been "
                    "given dummy ones"
                )
        return tuple(found)

    def check_quarantine(self, max_fraction: float, quarantine: "DataFrame") -> None:
        """Raise QuarantineLimitError where more lines than ``max_fraction`` of all are quarantined, or all rows."""
        reasons = self.reasons
        quarantined, lines = sum(reasons.values()), sum(file.num_lines for file in self.files)
        rows = sum(row.rows for row in self.rows)
        if quarantined <= max_fraction * lines and (rows or not quarantined):
            return
        sample = quarantine.orderBy("row_key").select("file_name", "line", "reason").head(1)[0]
        counts = ", ".join(f"{reason} {count}" for reason, count in reasons.items())
        limit, remedy = f"the limit is {max_fraction:.3%}", "mend the source, or raise source.max_quarantine_fraction"
        if not rows:
            limit, remedy = "no row is left", "check source.layout and source.path"
        raise QuarantineLimitError(
            f"{sample['file_name']}:{sample['line']}: {sample['reason']}, the first of {quarantined} quarantined "
            f"lines ({counts}) of {lines}, {quarantined / lines:.3%}; {limit}; {remedy}"
        )
