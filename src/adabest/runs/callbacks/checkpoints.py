"""The clock of a run: when its next checkpoint is due, and how fast its rounds go."""

import time
from typing import Any

from adabest.runs.build import Federation
from adabest.runs.files.checkpoint import save_checkpoint
from adabest.runs.files.folder import RunFolder
from adabest.runs.files.manifest import Ledger
from adabest.stop_requests import saving

_SHARE_OF_TIME = 0.05
_SECONDS_BETWEEN_CHECKPOINTS = 10.0


class CheckpointTime:
    """What checkpoints cost all the runs that are trained together: one of them being saved, the others wait."""

    def __init__(self) -> None:
        self._costs: dict[int, float | None] = {}

    def set(self, run: int, cost: float | None) -> None:
        """A run's last checkpoint took so many seconds; None if it hasn't had one."""
        self._costs[run] = cost

    def leave(self, run: int) -> None:
        """A run has no further checkpoints."""
        self._costs.pop(run, None)

    def wait(self, run: int) -> float:
        """Seconds between two checkpoints of a run, so that those of all take at most 5 % of the time.

        A run without a checkpoint is taken to need as long for one as the others on average.
        """
        known = [cost for cost in self._costs.values() if cost is not None]
        if not known:
            return _SECONDS_BETWEEN_CHECKPOINTS
        all_costs = sum(known) / len(known) * len(self._costs)
        own = self._costs[run] or 0.0
        return max(_SECONDS_BETWEEN_CHECKPOINTS, all_costs / _SHARE_OF_TIME - own)


class CheckpointPace:
    """When a run's next checkpoint is due: every so many rounds, or as often as costs at most 5 % of the time."""

    def __init__(self, every: int | None, saved_round: int, shared: CheckpointTime) -> None:
        self._every, self._shared = every, shared
        self.saved_round = saved_round
        self._saved_at = time.monotonic()
        shared.set(id(self), None)

    def is_due(self, round_number: int) -> bool:
        """Whether it is to be written after this round."""
        if self._every is not None:
            return self._every > 0 and round_number % self._every == 0
        return time.monotonic() - self._saved_at >= self._shared.wait(id(self))

    def save(self, folder: RunFolder, federation: Federation, ledger: Ledger) -> float:
        """Writes a checkpoint and the manifest of its round; returns the seconds that took."""
        begun = time.monotonic()
        with saving():
            save_checkpoint(folder, federation.simulation.view(), ledger.claims())
            ledger.save("running", federation.simulation.state.round)
        self._saved_at = time.monotonic()
        self.saved_round = federation.simulation.state.round
        cost = self._saved_at - begun
        self._shared.set(id(self), cost)
        return cost

    def end(self) -> None:
        """There are no further checkpoints."""
        self._shared.leave(id(self))


class Stopwatch:
    """Wall-clock figures of this process's rounds. Those of runs trained together overlap."""

    def __init__(self, first_round: int, first_steps: int) -> None:
        self._begun = self._row_at = time.monotonic()
        self._row_round, self._first_steps, self._steps = first_round, first_steps, first_steps

    def lap(self, steps: int) -> float:
        """Local steps a second since the process began."""
        self._steps = steps
        return (steps - self._first_steps) / max(time.monotonic() - self._begun, 1e-9)

    def row(self, round_number: int) -> dict[str, Any]:
        """The figures since the last row."""
        now = time.monotonic()
        row = {
            "round": round_number,
            "seconds": now - self._begun,
            "seconds_per_round": (now - self._row_at) / (round_number - self._row_round),
            "steps_per_second": (self._steps - self._first_steps) / max(now - self._begun, 1e-9),
        }
        self._row_at, self._row_round = now, round_number
        return row
