"""What every rank would find out half a minute later, found on the driver before any starts."""

from collections.abc import Mapping, Sequence

from rec.core.errors import TrainingError
from rec.core.tables import FeatureTable
from rec.data.config import LoaderConfig
from rec.data.loader import make_loader
from rec.train.labels import one_label


def check_input(table: FeatureTable, config: LoaderConfig, num_proc: int, roles: Mapping[str, Sequence[int]]) -> None:
    """Open the days of each role (train, valid, test) as a rank would. Reads footers, and labels until both are seen.

    Raises LoaderError, TableError, DayError or SchemaDriftError as the loader does, TrainingError for one label only.
    """
    for role, days in roles.items():
        if days:
            make_loader(table, days, world_size=num_proc, config=config, evaluation=role != "train")
            if message := one_label(table, role, days):
                raise TrainingError(message)
