"""The serving environment: a virtual environment of its own, with tritonserver, NumPy 1.26, onnxruntime and rec.

The server's Python stub was built for NumPy 1; under NumPy 2 a string input ends it.
"""

import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rec.core.errors import MissingDependencyError

_PROBE = (
    "import json, sys, sysconfig, numpy, onnxruntime, rec.bundle.bundle; "
    "print(json.dumps({'libdir': sysconfig.get_config_var('LIBDIR'), 'site': sysconfig.get_path('purelib'), "
    "'python': '%d.%d' % sys.version_info[:2], 'numpy': numpy.__version__}))"
)
_REMEDY = "create it with `make serve` or name another with serve.environment"


@dataclass(frozen=True)
class ServingEnvironment:
    """A virtual environment that can run tritonserver. ``libdir`` holds the libpython that its stub embeds."""

    prefix: Path
    libdir: str
    tritonserver: Path
    backend: Path
    stub: Path

    def variables(self) -> dict[str, str]:
        """Return the variables of a server process: this environment's Python first, no other's packages."""
        variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
        library_path = [self.libdir, *filter(None, [variables.get("LD_LIBRARY_PATH")])]
        path = [str(self.prefix / "bin"), *filter(None, [variables.get("PATH")])]
        return variables | {
            "VIRTUAL_ENV": str(self.prefix),
            "PATH": os.pathsep.join(path),
            "LD_LIBRARY_PATH": os.pathsep.join(library_path),
        }

    def link_backend(self, folder: Path) -> None:
        """Make the folder that tritonserver wants as its backend directory: backend, utilities and stub together."""
        target = folder / "python"
        target.mkdir(parents=True)
        for source in (self.backend, self.backend.with_name("triton_python_backend_utils.py"), self.stub):
            (target / source.name).symlink_to(source)


def find_environment(prefix: Path | None = None) -> ServingEnvironment:
    """Return the serving environment at ``prefix``, or the first that is there of the usual places.

    Raises MissingDependencyError naming the places looked at, or what the environment lacks.
    """
    places = [prefix] if prefix else _usual_places()
    for place in places:
        if (place / "bin/python").exists() and list(place.glob("lib/python3*/site-packages/pytriton")):
            return _probe(place)
    looked_at = ", ".join(map(str, places))
    raise MissingDependencyError(f"serving environment: no nvidia-pytriton in {looked_at}; {_REMEDY}")


def _usual_places() -> list[Path]:
    beside = [Path(__file__).resolve().parents[2] / ".venv-serve", Path(sys.prefix).parent / ".venv-serve"]
    return [*dict.fromkeys([*beside, Path(sys.prefix)])]


@functools.cache
def _probe(prefix: Path) -> ServingEnvironment:
    variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    # A folder without a rec package in it: what is imported must be what the environment itself holds.
    done = subprocess.run(
        [prefix / "bin/python", "-c", _PROBE], capture_output=True, text=True, env=variables, cwd=prefix
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no output"]
        raise MissingDependencyError(f"serving environment {prefix}: {lines[-1]}; {_REMEDY}")
    found = json.loads(done.stdout)
    if not found["numpy"].startswith("1."):
        raise MissingDependencyError(
            f"serving environment {prefix}: numpy {found['numpy']}, tritonserver's Python stub needs 1.x; {_REMEDY}"
        )
    server = Path(found["site"]) / "pytriton/tritonserver"
    environment = ServingEnvironment(
        prefix=prefix,
        libdir=found["libdir"],
        tritonserver=server / "bin/tritonserver",
        backend=server / "backends/python/libtriton_python.so",
        stub=server / f"python_backend_stubs/{found['python']}/triton_python_backend_stub",
    )
    for file in (environment.tritonserver, environment.backend, environment.stub):
        if not file.is_file():
            raise MissingDependencyError(f"serving environment {prefix}: {file} is not there; {_REMEDY}")
    return environment
