"""Checkpoints of a run: when the next one is due, and writing it."""

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from adabest.runs.callbacks.base import Callback, Ending, RunView
from adabest.runs.callbacks.run_records import Records
from adabest.runs.files.checkpoint import save_checkpoint
from adabest.runs.files.folder import TIMINGS
from adabest.stop_requests import saving

_SHARE_OF_TIME = 0.05
_SECONDS_BETWEEN_CHECKPOINTS = 10.0


class CheckpointTime:
    """The seconds that checkpoints cost runs trained together: while one run is saved, the others wait."""

    def __init__(self) -> None:
        self._costs: dict[int, float | None] = {}

    def set(self, run: int, cost: float | None) -> None:
        """Sets the seconds that a run's last checkpoint took; None if it hasn't had one."""
        self._costs[run] = cost

    def leave(self, run: int) -> None:
        """Removes a run, which has no further checkpoints."""
        self._costs.pop(run, None)

    def wait(self, run: int) -> float:
        """Seconds between two checkpoints of a run, so that checkpoints of all runs take at most 5 % of the time.

        A run that hasn't had a checkpoint is assumed to need as long for one as the others on average.
        """
        known = [cost for cost in self._costs.values() if cost is not None]
        if not known:
            return _SECONDS_BETWEEN_CHECKPOINTS
        all_costs = sum(known) / len(known) * len(self._costs)
        own = self._costs[run] or 0.0
        return max(_SECONDS_BETWEEN_CHECKPOINTS, all_costs / _SHARE_OF_TIME - own)


class Checkpoints(Callback):
    """Writes checkpoints: every N rounds, or as often as takes at most 5 % of the time."""

    def __init__(
        self, every: int | None, shared: CheckpointTime, records: Records, states: Callable[[], Mapping[str, Any]]
    ) -> None:
        """Sets the interval.

        Args:
            every: Rounds between two checkpoints, 0 for only when interrupted; None for at most 5 % of the time.
            shared: The seconds that checkpoints of all runs trained together take.
            records: The records of the run, which give the claims of a checkpoint.
            states: Gives the states of the user's callbacks.
        """
        self._every, self._shared, self._records, self._states = every, shared, records, states

    def start(self, run: RunView) -> None:
        """Starts the clock. The round from which the run is started or resumed counts as saved."""
        self._saved_round = self._seen_round = run.first_round
        self._saved_at = time.monotonic()
        self._shared.set(id(self), None)

    def after_round(self, run: RunView) -> None:
        """Writes a checkpoint if one is due. The last round needs none: its models are written."""
        self._seen_round = run.round  # the callbacks before this one, whose states it saves, have seen the round, too
        if run.stop_reason is None and run.round < run.rounds and self._is_due(run.round):
            seconds = self.save(run)
            run.files.append(TIMINGS, {"round": run.round, "checkpoint_seconds": seconds})

    def end(self, run: RunView, ending: Ending) -> None:
        """Saves the last round of a run that will be resumed, if every callback has seen it."""
        try:
            unsaved = (
                self._seen_round == run.round > self._saved_round and not ending.at_once and run.stop_reason is None
            )
            if ending.status == "interrupted" and unsaved:
                self.save(run)
            elif ending.status == "killed" and unsaved:
                with contextlib.suppress(OSError):  # a full disk, for instance: the error that ended the run is raised
                    self.save(run)
        finally:
            self._shared.leave(id(self))

    def save(self, run: RunView) -> float:
        """Writes a checkpoint and the manifest of its round; returns the seconds that took."""
        begun = time.monotonic()
        with saving():
            ledger = self._records.ledger
            save_checkpoint(run.files, run.simulation.view(), ledger.claims(), self._states())
            ledger.save("running", run.round)
        self._saved_at, self._saved_round = time.monotonic(), run.round
        self._shared.set(id(self), self._saved_at - begun)
        return self._saved_at - begun

    def _is_due(self, round_number: int) -> bool:
        if self._every is not None:
            return self._every > 0 and round_number % self._every == 0
        return time.monotonic() - self._saved_at >= self._shared.wait(id(self))
