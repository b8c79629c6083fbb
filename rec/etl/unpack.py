"""gzip files, unpacked into parts that many tasks can read. Runs in Spark tasks."""

import hashlib
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from pydantic import BaseModel, ValidationError

from rec.core.errors import InputError
from rec.core.manifest import sha256_file, sha256_json, write_atomic
from rec.etl.lines import BLOCK_BYTES, BOM, Intake, Part, intake_of, intake_plain, measure, read_blocks
from rec.etl.staging import remove_stale

PART_BYTES = 512 << 20
_MANIFEST = "manifest.json"
_GZIP_MAGIC = b"\x1f\x8b"
_FOREIGN = {b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz", b"PK\x03\x04": "zip", b"PAR1": "Parquet"}
# Spark picks a decompressor by these endings, whatever the file holds.
_CODEC_SUFFIXES = (".gz", ".bz2", ".deflate", ".snappy", ".lz4", ".zst")
# Click logs as text shrink to about a third: what is asked for before the first byte is written.
_USUAL_RATIO = 3


class _Manifest(BaseModel):
    """Written last into a folder of parts: without it there are no parts."""

    intake: Intake
    num_bytes: dict[str, int]


def intake_text(path: str, work_dir: str, day_column: str | None, part_bytes: int = PART_BYTES) -> Intake:
    """Measure a text file, gzip told by its first bytes. Raises InputError naming a file that is not sound text."""
    with open(path, "rb") as file:
        magic = file.read(6)
    for start, name in _FOREIGN.items():
        if magic.startswith(start):
            raise InputError(f"{path}: holds {name}, not text; unpack it, or name the layout that fits")
    is_gzip = magic.startswith(_GZIP_MAGIC)
    if not is_gzip and not path.endswith(_CODEC_SUFFIXES):
        return intake_plain(path, day_column)
    sha256 = sha256_file(path)
    folder = Path(work_dir, "parts", sha256_json([sha256, day_column, part_bytes]))
    intake = _kept(folder, path) or _unpack(path, folder, day_column, part_bytes, is_gzip)
    if intake.sha256 != sha256:
        shutil.rmtree(folder, ignore_errors=True)
        raise InputError(f"{path}: changed while it was read; read the source again when it is whole")
    return intake


def _kept(folder: Path, path: str) -> Intake | None:
    """Return the intake of parts unpacked before, where all of them are still whole."""
    try:
        manifest = _Manifest.model_validate_json((folder / _MANIFEST).read_bytes())
        whole = all(os.path.getsize(part) == size for part, size in manifest.num_bytes.items())
        modified_ns = os.stat(path).st_mtime_ns
        # Read now: a week later it is stale.
        os.utime(folder)
    except (OSError, ValidationError):
        return None
    return manifest.intake.model_copy(update={"path": path, "modified_ns": modified_ns}) if whole else None


def _unpack(path: str, folder: Path, day_column: str | None, part_bytes: int, is_gzip: bool) -> Intake:
    """Write the parts aside, then rename them into place: no reader sees half of them."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        remove_stale(folder.parent)
        _check_free_space(path, folder.parent)
        aside = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=folder.parent))
        try:
            intake = _write_parts(path, aside, day_column, part_bytes, is_gzip)
            intake = _settle(intake, aside, folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise InputError(
            f"{path}: cannot unpack into {folder.parent}: {error.strerror}; free space there or set work_dir"
        ) from None
    return intake


def _check_free_space(path: str, folder: Path) -> None:
    needed, free = os.path.getsize(path) * _USUAL_RATIO, shutil.disk_usage(folder).free
    if free < needed:
        raise InputError(
            f"{path}: unpacked it takes about {needed:,} bytes, {folder} has {free:,} free; "
            "free space there or set work_dir to another disk"
        )


def _write_parts(path: str, aside: Path, day_column: str | None, part_bytes: int, is_gzip: bool) -> Intake:
    before, digest = os.stat(path), hashlib.sha256()
    writer = _PartWriter(aside, part_bytes)
    with open(path, "rb") as file, closing(writer):
        blocks = read_blocks(file, digest)
        text = gunzip(path, blocks) if is_gzip else blocks
        counter = measure(path, map(writer.write, text), day_column)
    parts = tuple(Part(path=name, first_line=line) for name, line in writer.first_lines.items())
    return intake_of(counter, before, digest.hexdigest(), parts)


def _settle(intake: Intake, aside: Path, folder: Path) -> Intake:
    """Move the parts to their folder and return the intake with their paths there."""
    sizes = {str(folder / part.path): os.path.getsize(aside / part.path) for part in intake.parts}
    parts = tuple(part.model_copy(update={"path": str(folder / part.path)}) for part in intake.parts)
    intake = intake.model_copy(update={"parts": parts})
    write_atomic(aside / _MANIFEST, _Manifest(intake=intake, num_bytes=sizes).model_dump_json())
    try:
        aside.rename(folder)
    except OSError:
        if kept := _kept(folder, intake.path):
            return kept  # Another run was faster, and may be reading its parts.
        shutil.rmtree(folder)
        aside.rename(folder)
    return intake


def gunzip(path: str, blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the text of all gzip members.

    Raises InputError for a file that ends inside a member, a wrong check sum, or bytes after the last member.
    """
    decoder, data, member = None, b"", 0
    for block in blocks:
        data += block
        while data and not (decoder is None and len(data) < len(_GZIP_MAGIC)):
            if decoder is None:
                _check_magic(path, data, member)
                decoder, member = zlib.decompressobj(wbits=31), member + 1
            yield _inflate(path, decoder, data, member)
            data = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
            decoder = None if decoder.eof else decoder
    if decoder is None:
        if data:
            _check_magic(path, data, member)
        return
    while text := _inflate(path, decoder, b"", member):
        yield text
    if not decoder.eof:
        raise InputError(f"{path}: ends inside gzip member {member}, truncated; fetch the file again")


def _check_magic(path: str, data: bytes, member: int) -> None:
    if not data.startswith(_GZIP_MAGIC):
        raise InputError(
            f"{path}: {data[:8]!r} follows gzip member {member}, which is no further member; fetch the file again"
        )


def _inflate(path: str, decoder: "zlib._Decompress", data: bytes, member: int) -> bytes:
    try:
        return decoder.decompress(data, BLOCK_BYTES)
    except zlib.error as error:
        raise InputError(f"{path}: gzip member {member} is damaged ({error}); fetch the file again") from None


class _PartWriter:
    """Writes a stream into files of at most ``part_bytes`` that end where a line ends; a longer line has its own."""

    def __init__(self, folder: Path, part_bytes: int):
        self.folder, self.part_bytes = folder, part_bytes
        self.first_lines: dict[str, int] = {}
        self._file: BinaryIO | None = None
        self._size = 0
        self._line = 1
        self._line_is_open = False

    def write(self, block: bytes) -> bytes:
        """Write a block and return it."""
        rest = memoryview(block)
        start = 0
        while start < len(block):
            end = self._cut(block, start)
            if end > start:
                self._append(rest[start:end], block.count(b"\n", start, end), block[end - 1])
            if end < len(block):
                self.close()
            start = end
        return block

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._size = None, 0

    def _cut(self, block: bytes, start: int) -> int:
        """Return where the part at hand ends within a block: its end, a line's end, or ``start`` for right away."""
        room = self.part_bytes - self._size
        if len(block) - start <= room:
            return len(block)
        end = block.rfind(b"\n", start, max(start + room, start)) + 1
        if end > start:
            return end
        if self._size and not self._line_is_open:
            return start
        return block.find(b"\n", start) + 1 or len(block)

    def _append(self, data: memoryview, num_lines: int, last: int) -> None:
        if self._file is None:
            name = f"part-{len(self.first_lines):05d}.txt"
            self._file = open(self.folder / name, "wb")  # noqa: SIM115
            if self.first_lines:
                # Hadoop drops a byte order mark at the start of any file: this one, not one that a line begins with.
                self._file.write(BOM)
            self.first_lines[name] = self._line
        self._file.write(data)
        self._size += len(data)
        self._line += num_lines
        self._line_is_open = last != ord("\n")
