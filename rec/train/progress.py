"""What a rank reports of its speed, and how long a phase without steps may take."""

import time

# A slow shared disk; and a phase this short needs no time of its own.
_BYTES_PER_S = 25e6
_SHORT_S = 15.0
_MARGIN_S = 60.0


class Speed:
    """Rows a second and seconds to the end of the epoch, by this process's steps in it."""

    def __init__(self, global_batch_size: int, steps_per_epoch: int, first_step: int):
        self._global_batch_size, self._steps_per_epoch = global_batch_size, steps_per_epoch
        self._first = self._step = first_step
        self._started = time.monotonic()

    def figures(self) -> dict[str, float | int]:
        """Count one more step."""
        self._step += 1
        steps_per_s = (self._step - self._first) / max(time.monotonic() - self._started, 1e-9)
        return {
            "epoch_step": self._step,
            "num_steps": self._steps_per_epoch,
            "rows_per_s": round(steps_per_s * self._global_batch_size),
            "eta_s": round((self._steps_per_epoch - self._step) / steps_per_s, 1),
        }


def seconds_allowed(num_bytes: int) -> float | None:
    """Return how long reading, writing or drawing so many bytes may take; None where any phase has that long."""
    seconds = num_bytes / _BYTES_PER_S
    return None if seconds < _SHORT_S else _MARGIN_S + seconds
