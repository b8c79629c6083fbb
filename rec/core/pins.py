"""Pins: which table version a checkpoint or bundle still points at, as ``<root>/pins/<id>.json``."""

import json
from pathlib import Path

from rec.core.manifest import write_atomic
from rec.core.tables import FeatureTable


def write_pin(root: str | Path, pin_id: str, table: FeatureTable, holder: str | Path) -> Path:
    """Say that ``holder`` (a folder) reads this version of the table; written once for each id."""
    path = Path(root) / "pins" / f"{pin_id}.json"
    pin = {"id": pin_id, "uri": table.uri, "version": table.version, "state_id": table.state_id, "holder": str(holder)}
    write_atomic(path, json.dumps(pin, indent=1))
    return path


def read_pins(root: str | Path) -> dict[str, int]:
    """Return {pin id: table version} of a root."""
    pins = (json.loads(p.read_text(encoding="utf-8")) for p in sorted((Path(root) / "pins").glob("*.json")))
    return {pin["id"]: pin["version"] for pin in pins}
