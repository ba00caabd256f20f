"""A profiler that logs how long each kind of step took."""

import time
from collections import defaultdict

from lightning.pytorch.profilers import Profiler


class LoggingProfiler(Profiler):
    """Tells, at the end, how often some of the trainer's actions ran and how long they took."""

    ACTIONS = ("run_training_epoch", "run_training_batch", "optimizer_step")

    def __init__(self) -> None:
        super().__init__()
        self._started: dict[str, float] = {}
        self._seconds: dict[str, list[float]] = defaultdict(list)

    def start(self, action_name: str) -> None:
        """Notes the time."""
        self._started[action_name] = time.monotonic()

    def stop(self, action_name: str) -> None:
        """Notes how long it took; an action that was not started is left out."""
        started = self._started.pop(action_name, None)
        if started is not None and action_name.startswith(self.ACTIONS):
            self._seconds[action_name].append(time.monotonic() - started)

    def summary(self) -> str:
        """A line for each action."""
        return "".join(
            f"{name}: {len(seconds)} times, {1000 * sum(seconds) / len(seconds):.1f} ms each\n"
            for name, seconds in self._seconds.items()
        )
