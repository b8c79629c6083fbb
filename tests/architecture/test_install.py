"""What a machine lacks for the set-up is told at once, before anything is fetched or made."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
TOOLS = ("bash", "env", "cat", "sha256sum", "cut", "dirname", "id")


def test_all_missing_tools_are_named_in_one_line(tmp_path):
    bin_folder, checkout = tmp_path / "bin", tmp_path / "checkout"
    bin_folder.mkdir()
    for tool in TOOLS:
        (bin_folder / tool).symlink_to(shutil.which(tool))
    (bin_folder / "python3.11").symlink_to(os.path.realpath(sys.executable))
    (checkout / "deploy").mkdir(parents=True)
    for name in (
        "deploy/install.sh",
        "pyproject.toml",
        "constraints.txt",
        "build.gradle",
        "deploy/horovod-cxx17.cmake",
    ):
        shutil.copy(REPOSITORY / name, checkout / name)
    for part in ("python", "jars", "horovod"):
        run = subprocess.run(
            ["deploy/install.sh", part], cwd=checkout, env={"PATH": str(bin_folder)}, capture_output=True, text=True
        )
        packages = "openjdk-17-jre-headless g++ gradle"
        assert (run.returncode, run.stderr) == (
            2,
            f"[setup] not here: {packages}; run: sudo apt-get install {packages}\n",
        )
    assert sorted(p.name for p in checkout.iterdir()) == ["build.gradle", "constraints.txt", "deploy", "pyproject.toml"]
