"""Limits of a launch: how long ranks may take before the run is ended."""

from pydantic import Field

from rec.core.config import Config


class LaunchConfig(Config):
    """Seconds that ranks are given. A failure shows within the longest of the two last limits plus a few seconds."""

    start_s: float = Field(default=120.0, gt=0, description="Spark tasks started, engines imported, ranks connected")
    heartbeat_s: float = Field(default=25.0, gt=0, description="silence of a rank's process, as when it is stopped")
    phase_s: float = Field(default=45.0, gt=0, description="between two reports of progress, such as steps")
    num_threads: int | None = Field(default=None, ge=1, description="threads of a rank; unset: cores over ranks")
