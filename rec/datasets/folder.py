"""Which folder generated rows are written to: one that holds nothing else, so that nobody's files are lost."""

import fnmatch
import glob
import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from rec.core.errors import ConfigError
from rec.core.manifest import sha256_file

# Inside the folder: beside it may be another disk. No source reads names that start with a dot.
STAGING = ".generating"
_REMEDY = "remove `dataset:` from the recipe (--set dataset=null), or name another source.path"

# Digests that a file may have, by its path in the folder; none: any.
Known = Mapping[str, Collection[str]]


def folder_of_source(source_path: str) -> Path:
    """Return the folder whose days a source path reads. Raises ConfigError where it would not read them."""
    folder, name = os.path.split(source_path)
    if glob.has_magic(folder):
        raise ConfigError(f"source.path {source_path}: no one folder to write generated rows to; {_REMEDY}")
    if not fnmatch.fnmatchcase("day_0.tsv", name):
        raise ConfigError(f"source.path {source_path}: does not read generated rows, which are day_*.tsv; {_REMEDY}")
    return Path(folder)


def check_nothing_else(folder: Path, known: Known) -> None:
    """Raise ConfigError for a file below a folder that is not a known one, byte for byte."""
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if (path.is_dir() and not path.is_symlink()) or name.split(os.sep)[0] == STAGING:
            continue
        digests = known.get(name)
        if digests is None or (digests and sha256_file(path) not in digests):
            raise ConfigError(f"{path}: not as the generator wrote it, generated rows would take its place; {_REMEDY}")


def take_over(folder: Path, ledger: str, replaced: Known) -> None:
    """Put what is staged in the place of the files that are ``replaced``. A ledger goes last: until then its files
    are known, and a stopped run is taken up by the next."""
    staging = folder / STAGING
    for name in [*replaced, ledger] if replaced else []:
        (folder / name).unlink(missing_ok=True)
    for path in sorted(staging.rglob("*"), key=lambda p: p.name == ledger):
        if path.is_file():
            target = folder / path.relative_to(staging)
            target.parent.mkdir(exist_ok=True)
            os.replace(path, target)
    shutil.rmtree(staging)
