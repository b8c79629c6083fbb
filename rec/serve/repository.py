"""A Triton model repository on disk.

``NAME/<version>/`` and ``NAME_encoded/<version>/`` hold model.py and bundle/ (one copy, linked), and are never changed
once they have their number. ``NAME/config.pbtxt`` says which version is served. ``rejected-<version>`` was promoted
and taken back: its number is not used again, because Triton may keep the old weights of a number it has seen.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rec.bundle.bundle import Bundle
from rec.bundle.layout import BundleSchema
from rec.core.config import local_path
from rec.core.errors import ServingError
from rec.core.manifest import write_atomic
from rec.serve.request import ENCODED_SUFFIX, Kind, model_names
from rec.serve.triton_config import ServedState, config_text, read_state

CONFIG = "config.pbtxt"
BUNDLE_FOLDER = "bundle"
STAGING = ".staging"
_REJECTED = "rejected-"
_CLASSES: dict[Kind, str] = {"raw": "RawModel", "encoded": "EncodedModel"}


class Repository:
    """A model repository's folder; made by the first that locks it or serves from it."""

    def __init__(self, path: str | Path):
        self.path = Path(local_path(path)).absolute()

    def make(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the repository against other pushes; a lock goes with its process."""
        self.make()
        with open(self.path / ".lock", "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ServingError(f"repository {self.path}: another push is under way; wait for its end") from None
            yield

    def names(self) -> list[str]:
        """Return the names of the models that are served from here, without their encoded twins."""
        found = sorted(p.parent.name for p in self.path.glob(f"[!.]*/{CONFIG}"))
        return [n for n in found if not (n.endswith(ENCODED_SUFFIX) and n.removesuffix(ENCODED_SUFFIX) in found)]

    def state(self, name: str) -> ServedState | None:
        """Return what is served under a name, from its config; None where nothing is."""
        config = self.path / name / CONFIG
        if not config.exists():
            return None
        try:
            return read_state(config.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ServingError(f"{config}: not written by a push ({error}); choose another model name") from None

    def bundle_folder(self, name: str, version: int) -> Path:
        return self.path / name / str(version) / BUNDLE_FOLDER

    def next_version(self, name: str) -> int:
        """Return a number that no version of either model has had."""
        taken = [0]
        for model in model_names(name).values():
            for folder in (self.path / model).glob("*"):
                number = folder.name.removeprefix(_REJECTED)
                taken += [int(number)] if number.isdigit() else []
        return max(taken) + 1

    def stage(self, bundle: Bundle, name: str, state: ServedState) -> "Repository":
        """Return a repository of its own, inside this one, that serves a copy of the bundle as the state's version."""
        root = self.path / STAGING
        # Whatever lies there was left by a push that died: the lock is ours.
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        staged = Repository(tempfile.mkdtemp(dir=root))
        source = bundle.path
        for kind, model in model_names(name).items():
            version = staged.path / model / str(state.version)
            version.mkdir(parents=True)
            (version / "model.py").write_text(
                f"from rec.serve.triton_model import {_CLASSES[kind]} as TritonPythonModel  # noqa: F401\n"
            )
            copy = shutil.copy2 if source == bundle.path else os.link
            shutil.copytree(source, version / BUNDLE_FOLDER, copy_function=copy)
            source = version / BUNDLE_FOLDER
        staged.write_configs(name, BundleSchema(raw=bundle.raw_schema, encoded=bundle.encoded_schema), state)
        return staged

    def adopt(self, staged: "Repository", name: str, version: int) -> None:
        """Move the staged version folders here. Nothing serves them until the configs say so."""
        for model in model_names(name).values():
            target = self.path / model
            target.mkdir(exist_ok=True)
            os.rename(staged.path / model / str(version), target / str(version))

    def reject(self, name: str, version: int) -> None:
        """Remove a version's files and keep its number taken."""
        for model in model_names(name).values():
            folder = self.path / model / str(version)
            if folder.exists():
                folder.with_name(f"{_REJECTED}{version}").mkdir()
                shutil.rmtree(folder)

    def discard(self, staged: "Repository") -> None:
        shutil.rmtree(staged.path, ignore_errors=True)

    def write_configs(self, name: str, schema: BundleSchema, state: ServedState) -> None:
        """Write both configs, the raw model's last: it is the one that counts."""
        for kind, model in reversed(model_names(name).items()):
            write_atomic(self.path / model / CONFIG, config_text(model, kind, schema, state))

    def read_configs(self, name: str) -> dict[str, str | None]:
        """Return the text of both configs, to be put back by ``restore_configs``."""
        files = {model: self.path / model / CONFIG for model in model_names(name).values()}
        return {m: f.read_text(encoding="utf-8") if f.exists() else None for m, f in files.items()}

    def restore_configs(self, texts: dict[str, str | None]) -> None:
        for model, text in texts.items():
            if text is None:
                (self.path / model / CONFIG).unlink(missing_ok=True)
            else:
                write_atomic(self.path / model / CONFIG, text)
