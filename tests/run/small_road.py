"""A small recipe over generated rows, and the command line over it."""

import copy
from pathlib import Path

import yaml

from rec.cli import main
from rec.datasets.criteo_like import CriteoLikeConfig

CONFIG = CriteoLikeConfig(
    num_days=3, rows_per_day=(600, 300, 300), malformed_per_day=0, headers_per_day=0, blank_day=None
)
RECIPE = {
    "name": "small",
    "days": {"train": [0], "valid": [1], "test": [2]},
    "features": {
        "dense": {"columns": "I*", "ops": ["fill_missing", {"clip": {"min": 0}}, "log"]},
        "sparse": {"columns": "C*", "ops": [{"categorify": {"freq_threshold": 2}}]},
    },
    "model": {"name": "dlrm", "embedding_dim": 8, "bottom_mlp_hidden": [16], "top_mlp_hidden": [16]},
    "train": {"num_proc": 2, "global_batch_size": 64, "num_streams": 4, "max_epochs": 1},
}


class Road:
    """A recipe in a folder of its own, and the command line over it."""

    def __init__(self, folder: Path, raw: Path):
        self.folder, self.root = folder, folder / "lake"
        self.content = copy.deepcopy(RECIPE)
        self.content["root"] = str(self.root)
        self.content["source"] = {"path": f"{raw}/day_*.tsv", "layout": "criteo", "day": {"path": r"day_(\d+)"}}
        self.content["serve"] = {"repository": str(folder / "models"), "model_name": "small"}

    def command(self, verb: str, *options: str) -> int:
        """Write the recipe as it is now and run a verb over it; return the exit code."""
        recipe = self.folder / "recipe.yaml"
        recipe.write_text(yaml.safe_dump(self.content))
        return main([verb, str(recipe), *options])

    def written(self) -> list[str]:
        """Files below the root, by their relative paths."""
        return sorted(str(p.relative_to(self.root)) for p in self.root.rglob("*") if p.is_file())
