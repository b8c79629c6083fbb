"""Write a Criteo-shaped click log of several days with a known best AUC and a known ledger.

A folder holds ``day_0.tsv``, ``day_1.tsv``, …; ``planted/day_N.npy`` with the planted probability of each line; and
``ledger.json``. One chunk of rows is in memory at a time. The same config gives the same bytes on every CPU.
"""

import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rec.core.config import Config
from rec.core.errors import ConfigError, InputError
from rec.core.manifest import write_atomic
from rec.datasets.faults import PlantedLine, plan_lines
from rec.datasets.folder import STAGING, Known, check_nothing_else, folder_of_source, take_over
from rec.datasets.lines import format_rows
from rec.datasets.rows import CHUNK_ROWS, RowGenerator, Rows

log = logging.getLogger(__name__)

LEDGER = "ledger.json"
PLANTED = np.dtype([("probability", "<f4"), ("label", "i1")])
_BOM = b"\xef\xbb\xbf"
# Streams of random bits beside those of the chunks.
_PLACES, _CARRIAGE_RETURNS = 1, 2

Progress = Callable[[int, int], None]


class CriteoLikeConfig(Config):
    """What is written. ``rows_per_day`` counts sound rows, one number for all days or one a day."""

    num_days: int = Field(default=6, ge=1)
    rows_per_day: int | tuple[int, ...] = (250_000,) * 4 + (100_000,) * 2
    seed: int = Field(default=1, ge=0, lt=2**32)
    malformed_per_day: int = Field(default=11, ge=0, description="lines that belong in quarantine, without blank ones")
    headers_per_day: int = Field(default=1, ge=0, description="header lines among the rows")
    crlf_per_day: int = Field(default=5, ge=0, description="rows that end in CR LF")
    blank_day: int | None = Field(default=1, description="the only day with blank lines; null: none")
    num_blank: int = Field(default=3, ge=1)
    bom_day: int | None = Field(default=2, description="the day whose file starts with a byte order mark; null: none")

    @property
    def rows(self) -> tuple[int, ...]:
        """Number of sound rows of each day."""
        return self.rows_per_day if isinstance(self.rows_per_day, tuple) else (self.rows_per_day,) * self.num_days

    @model_validator(mode="after")
    def _rows_fit_days(self) -> "CriteoLikeConfig":
        if len(self.rows) != self.num_days:
            raise ConfigError(
                f"rows_per_day has {len(self.rows)} numbers and num_days is {self.num_days}; give one number a day"
            )
        if min(self.rows) < 1:
            raise ConfigError(f"rows_per_day = {self.rows_per_day}: every day needs at least one row")
        # A file's first row is left as it is, so what is planted needs a second.
        if min(self.rows) == 1 and (self.malformed_per_day or self.headers_per_day or self.crlf_per_day):
            raise ConfigError(
                f"rows_per_day = {self.rows_per_day}: a day of one row has no place for malformed lines, headers and "
                "rows that end in CR LF; give two rows, or set malformed_per_day, headers_per_day and crlf_per_day to 0"
            )
        return self


class DayLedger(BaseModel):
    """What an exact reader finds in one file: each line in one bin. Line numbers start at 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    day: int
    file: str
    num_bytes: int
    sha256: str
    has_bom: bool
    num_crlf: int
    num_lines: int
    num_accepted: int
    num_positive: int
    header_lines: tuple[int, ...]
    quarantined: dict[str, tuple[int, ...]]


class CriteoLikeDataset(BaseModel):
    """A written folder: its config and the true ledger of each day."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    config: CriteoLikeConfig
    days: tuple[DayLedger, ...]
    folder: Path = Field(default=Path(), exclude=True)

    @classmethod
    def open(cls, folder: str | Path) -> "CriteoLikeDataset":
        """Read a folder's ledger. Raises InputError where it is not there: the folder was not written to its end."""
        path = Path(folder) / LEDGER
        if not path.is_file():
            raise InputError(f"{path}: no such file; write the folder with rec.datasets.criteo_like first")
        return cls.model_validate_json(path.read_text()).model_copy(update={"folder": Path(folder)})

    def path(self, day: int) -> Path:
        """Return the text file of a day."""
        return self.folder / self.days[day].file

    def planted_path(self, day: int) -> Path:
        """Return the .npy file of a day's planted probabilities."""
        return self.folder / "planted" / f"day_{day}.npy"

    def planted(self, day: int) -> np.ndarray:
        """Return ``probability`` and ``label`` of each line, memory-mapped; line n at n − 1.

        A line that is no row has probability NaN and label −1.
        """
        return np.load(self.planted_path(day), mmap_mode="r")


def written_config(folder: str | Path) -> CriteoLikeConfig | None:
    """Return what a folder was written with; None for one that was not, or not to its end."""
    dataset = _read_ledger(Path(folder))
    return dataset.config if dataset else None


def prepare_rows(source_path: str, config: CriteoLikeConfig) -> None:
    """Write the rows that a source reads, where they are not there yet or are those of another config."""
    folder = folder_of_source(source_path)
    if written_config(folder) != config:
        log.info("writing %s generated rows to %s", f"{sum(config.rows):,}", folder)
        write_criteo_like(folder, config)


def write_criteo_like(
    folder: str | Path, config: CriteoLikeConfig, progress: Progress | None = None
) -> CriteoLikeDataset:
    """Write the days, the planted probabilities and, last, the ledger. ``progress`` is called with rows done and all.

    They appear when all are whole, in place of what was generated there. Raises ConfigError for a folder that holds
    anything else.
    """
    folder = Path(folder)
    _check_folder(folder)
    staging = folder / STAGING
    shutil.rmtree(staging, ignore_errors=True)
    (staging / "planted").mkdir(parents=True)
    dataset = CriteoLikeDataset(config=config, days=(), folder=staging)
    days: list[DayLedger] = []
    for day in range(config.num_days):
        writer = _DayWriter(dataset, day)
        for num_written in writer.write():
            if progress:
                progress(sum(config.rows[:day]) + num_written, sum(config.rows))
        days.append(writer.ledger())
    dataset = dataset.model_copy(update={"days": tuple(days), "folder": folder})
    write_atomic(staging / LEDGER, dataset.model_dump_json(indent=1) + "\n")
    take_over(folder, LEDGER, _files(_read_ledger(folder)))
    return dataset


def _check_folder(folder: Path) -> None:
    """Raise ConfigError where a folder holds more than generated rows; finish what a stopped run was moving there."""
    placed, staged = _read_ledger(folder), _read_ledger(folder / STAGING)
    before, after = _files(placed), _files(staged)
    known = {name: (*before.get(name, ()), *after.get(name, ())) for name in {*before, *after}}
    check_nothing_else(folder, {**known, **({LEDGER: ()} if placed else {})})
    if staged:
        take_over(folder, LEDGER, before)


def _files(dataset: CriteoLikeDataset | None) -> Known:
    days = dataset.days if dataset else ()
    planted = {f"planted/day_{day.day}.npy": () for day in days}
    return {**{day.file: (day.sha256,) for day in days}, **planted}


def _read_ledger(folder: Path) -> CriteoLikeDataset | None:
    try:
        return CriteoLikeDataset.open(folder)
    except (InputError, ValidationError, UnicodeDecodeError):
        # Not there, or of another program.
        return None


class _DayWriter:
    """One file and its probabilities."""

    def __init__(self, dataset: CriteoLikeDataset, day: int):
        config = dataset.config
        self._config, self._day, self._num_rows = config, day, config.rows[day]
        self._path = dataset.folder / f"day_{day}.tsv"
        self._planted_path = dataset.planted_path(day)
        num_blank = config.num_blank if day == config.blank_day else 0
        num_lines = config.headers_per_day + num_blank + config.malformed_per_day
        self._lines = plan_lines(
            self._places(_PLACES, num_lines), num_headers=config.headers_per_day, num_blank=num_blank
        )
        self._before_L = np.array([line.before_row for line in self._lines], np.int64)
        self._crlf_rows = np.unique(self._places(_CARRIAGE_RETURNS, config.crlf_per_day))
        self._has_bom = day == config.bom_day
        self._digest, self._num_bytes, self._num_positive = hashlib.sha256(), 0, 0

    def write(self) -> Iterator[int]:
        """Write the files chunk by chunk, yielding the number of rows so far."""
        partial, planted_partial = (p.with_name(f".{p.name}") for p in (self._path, self._planted_path))
        shape = (self._num_rows + len(self._lines),)
        planted = np.lib.format.open_memmap(planted_partial, mode="w+", dtype=PLANTED, shape=shape)
        planted["probability"], planted["label"] = np.nan, -1
        with open(partial, "wb") as file:
            for first, rows in self._chunks():
                for piece in self._pieces(first, rows):
                    file.write(piece)
                    self._digest.update(piece)
                    self._num_bytes += len(piece)
                self._record(planted, first, rows)
                self._num_positive += int(np.count_nonzero(rows.label_B))
                yield first + len(rows.label_B)
        planted.flush()
        os.replace(planted_partial, self._planted_path)
        os.replace(partial, self._path)

    def _chunks(self) -> Iterator[tuple[int, Rows]]:
        generator = RowGenerator(self._config.seed, self._day)
        for number, first in enumerate(range(0, self._num_rows, CHUNK_ROWS)):
            yield first, generator.chunk(number).head(self._num_rows - first)

    def _pieces(self, first: int, rows: Rows) -> Iterator[bytes | memoryview]:
        """Yield the text of a chunk with the planted lines and carriage returns set in."""
        text, end_B = format_rows(rows)
        stop = first + len(end_B)
        # (offset in the text, bytes set in there)
        edits: list[tuple[int, bytes]] = [(0, _BOM)] if first == 0 and self._has_bom else []
        low, high = np.searchsorted(self._before_L, (first, stop))
        for line in self._lines[low:high]:
            edits.append(self._planted_edit(line, text, end_B, line.before_row - first))
        rows_with_cr = self._crlf_rows[(self._crlf_rows >= first) & (self._crlf_rows < stop)]
        edits += [(int(end_B[row - first]) - 1, b"\r") for row in rows_with_cr]
        place = 0
        for offset, inserted in sorted(edits, key=lambda edit: edit[0]):
            yield text[place:offset].data
            yield inserted
            place = offset
        yield text[place:].data

    @staticmethod
    def _planted_edit(line: PlantedLine, text: np.ndarray, end_B: np.ndarray, row: int) -> tuple[int, bytes]:
        start = int(end_B[row - 1]) if row else 0
        return start, line.content(text[start : end_B[row]].tobytes())

    def _record(self, planted: np.ndarray, first: int, rows: Rows) -> None:
        row = np.arange(first, first + len(rows.label_B))
        index = row + np.searchsorted(self._before_L, row, side="right")
        planted["probability"][index] = rows.prob_B
        planted["label"][index] = rows.label_B

    def _places(self, stream: int, count: int) -> np.ndarray:
        """Return random row numbers. The first row is left as it is: layouts are told by a file's first lines."""
        bits = np.random.SFC64([self._config.seed, self._day, 0, stream]).random_raw(count)
        return 1 + (bits % np.uint64(max(1, self._num_rows - 1))).astype(np.int64)

    def ledger(self) -> DayLedger:
        """Return the true ledger of the file once it is written."""
        bins: dict[str, list[int]] = {}
        for line in self._lines:
            bins.setdefault(line.bin, []).append(line.line)
        header_lines = bins.pop("header", [])
        return DayLedger(
            day=self._day,
            file=self._path.name,
            num_bytes=self._num_bytes,
            sha256=self._digest.hexdigest(),
            has_bom=self._has_bom,
            num_crlf=len(self._crlf_rows),
            num_lines=self._num_rows + len(self._lines),
            num_accepted=self._num_rows,
            num_positive=self._num_positive,
            header_lines=tuple(header_lines),
            quarantined={reason: tuple(lines) for reason, lines in sorted(bins.items())},
        )
