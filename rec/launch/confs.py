"""The Spark confs that hold where none is named."""

from pathlib import Path

from rec.core.errors import ConfigError

CHECKOUT = Path(__file__).resolve().parents[2]


def default_conf(name: str) -> Path:
    """Return conf/spark/NAME of the working directory, or else of the checkout that the package lies in."""
    path = Path("conf/spark", name)
    found = [folder / path for folder in (Path(), CHECKOUT) if (folder / path).is_file()]
    if not found:
        raise ConfigError(f"{path}: neither here nor in {CHECKOUT}; name a Spark conf by --spark-conf")
    return found[0]
