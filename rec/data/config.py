"""What a recipe says about reading: batch size, shuffle and worker threads."""

from pydantic import Field, model_validator

from rec.core.config import Config
from rec.core.errors import ConfigError


class LoaderConfig(Config):
    """How rows become batches. All but ``num_workers`` decide the order of rows, so a resumed run must keep them.

    ``global_batch_size`` rows make one step over all ranks. They come in equal slices from ``num_streams`` streams, so
    the one must be a multiple of the other, and a world size must divide ``num_streams``. ``num_window_row_groups``
    row groups of a stream are shuffled together: more mixes rows better and costs memory and speed. A rank holds
    ``num_streams / world_size`` windows in memory and, for each of its ``num_workers`` threads, a few more.
    """

    global_batch_size: int = Field(default=2048, ge=1)
    num_streams: int = Field(default=16, ge=1)
    num_window_row_groups: int = Field(default=1, ge=1)
    num_workers: int = Field(default=2, ge=1)
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _streams_share_evenly(self) -> "LoaderConfig":
        size, streams = self.global_batch_size, self.num_streams
        if size % streams:
            below, above = size - size % streams, size - size % streams + streams
            near = f"{below} or {above}" if below else str(above)
            fits = max(n for n in range(1, min(size, streams) + 1) if size % n == 0)
            raise ConfigError(
                f"global_batch_size = {size} is not a multiple of num_streams = {streams}; "
                f"set global_batch_size to {near}, or num_streams to {fits}"
            )
        return self
