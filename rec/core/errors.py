"""Errors a user can mend. Each message names the place (file, column or field), the values and the remedy."""

import os


class RecError(ValueError):
    """Base of every user-mendable error; the command line prints it in one line and exits with 2."""


class ConfigError(RecError):
    """A recipe, an option or an argument does not hold."""


class InputError(RecError):
    """A source file or table cannot be read as declared."""


class QuarantineLimitError(RecError):
    """More lines were quarantined than the recipe allows."""


class SchemaDriftError(RecError):
    """A column is gone, was retyped or differs from what a table or state was made with."""


class DayError(RecError):
    """A day is asked for that the data does not hold, or no rule tells the day of a row."""


class TableError(RecError):
    """A table, one of its versions or one of its features cannot be used."""

    @classmethod
    def of_removed_file(cls, uri: str, version: int, path: str) -> "TableError":
        """Say that a version can no longer be read whole."""
        return cls(
            f"{uri} version {version}: files of this version were removed, {os.path.basename(path)} is one; restore "
            "them from a copy, or go on with a later version; where there is none, remove the table's folder and run "
            "rec etl and rec train again"
        )


class ConcurrentWriteError(RecError):
    """Another run committed the same table or day first."""


class LoaderError(RecError):
    """The rows of a table cannot be cut into the batches asked for."""


class IdRangeError(RecError):
    """An id lies outside its embedding table."""


class TrainingError(RecError):
    """Training cannot start or cannot go on."""


class RankError(TrainingError):
    """A rank raised, hung or was killed."""


class CheckpointError(RecError):
    """A checkpoint is incomplete, damaged or belongs to something else."""


class BundleError(RecError):
    """A bundle is incomplete, damaged or disagrees with its goldens."""


class RequestError(RecError):
    """A scoring request does not fit the model."""


class ServingError(RecError):
    """The server, a port or a push failed; what was served before still is."""


class MissingDependencyError(RecError):
    """A jar, a package or a program that the stage needs is not there."""
