"""Files with their digests, written so that a reader never sees half of one."""

import hashlib
import json
import os
import uuid
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

_BLOCK_BYTES = 1 << 20


def sha256_file(path: str | Path) -> str:
    """Return the hex sha256 of a file's bytes."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def canonical_json(value: Any) -> str:
    """Return JSON that depends on the value alone: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def sha256_json(value: Any) -> str:
    """Return the hex sha256 of a value's canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def aside(path: Path) -> Path:
    """Return a name beside ``path`` to write under before a rename.

    No other writer has it, be it a thread or a host with the same process number.
    """
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}")


def write_atomic(path: str | Path, content: str | bytes) -> None:
    """Write a file whole or not at all: a temporary file in the same folder, flushed, then renamed."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = aside(path)
    try:
        with open(temporary, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class FileDigest(BaseModel):
    """Digest and size of one file, as a manifest lists it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: str
    num_bytes: int

    @classmethod
    def of(cls, path: str | Path) -> "FileDigest":
        return cls(sha256=sha256_file(path), num_bytes=Path(path).stat().st_size)


def digest_folder(folder: str | Path, skip: frozenset[str] = frozenset()) -> dict[str, FileDigest]:
    """Return the digest of every file below a folder by relative path, names in ``skip`` left out."""
    folder = Path(folder)
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name not in skip)
    return {str(p.relative_to(folder)): FileDigest.of(p) for p in files}
