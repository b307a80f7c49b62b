"""Checkpoints of a run: when the next one is due, and writing it while the run goes on.

A checkpoint is a copy of the state, taken between two rounds. A thread writes it, then the manifest of its round. Where
a copy would take too much memory, the run waits while the state itself is written.
"""

import contextlib
import copy
import functools
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from adabest.runs.callbacks.base import Callback, Ending, RunView
from adabest.runs.callbacks.run_records import Records
from adabest.runs.files.background_writer import BackgroundWriter
from adabest.runs.files.checkpoint import Draft, RowFiles, save_checkpoint
from adabest.runs.files.folder import TIMINGS, RunFolder
from adabest.runs.files.manifest import Prefix
from adabest.stop_requests import saving
from adabest.tasks.base import Heartbeat, no_heartbeat

_SHARE_OF_TIME = 0.05  # in which checkpoints may hold up runs
_SHARE_OF_WRITING = 0.5  # of the time, in which a run's checkpoints may be written
_SECONDS_BETWEEN_CHECKPOINTS = 10.0
_SHARE_OF_WAITING = 0.02  # of the time, in which runs may wait until checkpoints that were due before are written
_SECONDS_OF_WAITING = 0.05  # or, if that is more, so long in all


class CheckpointTime:
    """The seconds that checkpoints hold up runs trained together: while one run is copied, the others wait."""

    def __init__(self) -> None:
        self._costs: dict[int, float | None] = {}
        self._begun, self._total = time.monotonic(), 0.0

    def set(self, run: int, cost: float | None) -> None:
        """Sets the seconds that a run's last checkpoint held it up; None if it hasn't had one."""
        self._costs[run] = cost
        self._total += cost or 0.0

    def leave(self, run: int) -> None:
        """Removes a run, which has no further checkpoints."""
        self._costs.pop(run, None)

    def wait(self, run: int) -> float:
        """Seconds between two checkpoints of a run, so that those of all runs hold them up at most 5 % of the time.

        A run that hasn't had a checkpoint is assumed to need as long for one as the others on average.
        """
        known = [cost for cost in self._costs.values() if cost is not None]
        if not known:
            return _SECONDS_BETWEEN_CHECKPOINTS
        all_costs = sum(known) / len(known) * len(self._costs)
        own = self._costs[run] or 0.0
        return max(_SECONDS_BETWEEN_CHECKPOINTS, all_costs / _SHARE_OF_TIME - own)

    def may_wait(self) -> bool:
        """Whether runs may wait for a checkpoint that is still being written when the next one is due."""
        elapsed = time.monotonic() - self._begun
        return self._total <= max(_SECONDS_OF_WAITING, _SHARE_OF_WAITING * elapsed)


class Checkpoints(Callback):
    """Writes checkpoints: every N rounds, or as often as holds the run up at most 5 % of the time."""

    def __init__(
        self,
        every: int | None,
        shared: CheckpointTime,
        records: Records,
        states: Callable[[], Mapping[str, Any]],
        *,
        lasting: bool = False,
    ) -> None:
        """Sets the interval.

        Args:
            every: Rounds between two checkpoints, 0 for only when interrupted; None for at most 5 % of the time.
            shared: The seconds that checkpoints of all runs trained together take.
            records: The records of the run, which give the claims of a checkpoint.
            states: Gives the states of the user's callbacks.
            lasting: Whether every round, the last one too, is on disk before the next begins.
        """
        self._is_lasting = lasting
        self._every, self._shared, self._records, self._states = every, shared, records, states
        # Checkpoints take turns between two rows of files, so that the last two share none: one that is damaged doesn't
        # take the other with it.
        self._row_files = deque([RowFiles(), RowFiles()])
        self._seconds_of_writing = 0.0
        self._is_overdue = self._has_told = False

    def start(self, run: RunView) -> None:
        """Starts the clock. The round from which the run is started or resumed counts as saved."""
        self._writer: BackgroundWriter = run.files.background
        self._saved_round = self._seen_round = run.first_round
        self._copied_at = time.monotonic()
        self._shared.set(id(self), None)

    def after_round(self, run: RunView) -> None:
        """Begins a checkpoint if one is due. The last round needs none: its models are written.

        Raises:
            OSError: If the one before couldn't be written.
        """
        self._seen_round = run.round  # the callbacks before this one, whose states it saves, have seen the round, too
        if self._is_lasting:
            self.save(run, in_background=False)
            return
        if run.stop_reason is not None or run.round == run.rounds:
            return
        self._writer.check()
        if self._is_due(run):
            seconds = self.save(run)
            run.files.append(TIMINGS, {"round": run.round, "checkpoint_seconds": seconds})

    def end(self, run: RunView, ending: Ending) -> None:
        """Finishes what is being written; saves the last round of a run to resume, if every callback has seen it."""
        try:
            if ending.at_once or ending.status in ("finished", "diverged"):
                self._writer.abandon()  # an ended run needs no checkpoint
            elif ending.status == "killed":
                # A full disk, for instance: the error that ended the run is raised.
                with contextlib.suppress(OSError):
                    self._writer.finish()
                with contextlib.suppress(OSError):
                    self._save_last_round(run)
            else:
                self._writer.finish()
                self._save_last_round(run)
        except KeyboardInterrupt:
            self._writer.abandon()
            raise
        finally:
            self._shared.leave(id(self))

    def save(self, run: RunView, *, in_background: bool = True) -> float:
        """Writes a checkpoint and the manifest of its round.

        Args:
            run: The run.
            in_background: Whether another thread may write while the run goes on.

        Returns:
            The seconds that held up the run: until the one before was written, and the copy was made.
        """
        begun = time.monotonic()
        with saving():
            self._writer.finish()
            draft = self._row_files[0].draft(run.simulation)
            held = run.simulation.held(draft.state) if in_background else None
            draft = draft._replace(state=held or draft.state)
            states = copy.deepcopy(self._states())  # callbacks may change them in the next round
            write = functools.partial(self._write, run.files, draft, self._records.ledger.claims(), states)
            if held is None:
                write(no_heartbeat)
            else:
                self._writer.begin(write)
        self._copied_at = time.monotonic()
        self._shared.set(id(self), self._copied_at - begun)
        return self._copied_at - begun

    def _write(
        self,
        folder: RunFolder,
        draft: Draft,
        claims: Mapping[str, Any],
        states: Mapping[str, Any],
        heartbeat: Heartbeat,
    ) -> None:
        """Writes a checkpoint, then the manifest. The run may be in a later round by then, and have more metrics."""
        begun, round_number = time.monotonic(), int(draft.state.numbers["round"])
        with saving():
            written = save_checkpoint(folder, draft.state, claims, states, earlier=draft.earlier, heartbeat=heartbeat)
            self._row_files[0].written(draft, *written)
            self._row_files.rotate()
            heartbeat()
            self._records.ledger.save("running", round_number, metrics=Prefix(**claims["metrics"]))
        self._saved_round = round_number
        self._seconds_of_writing = time.monotonic() - begun

    def _save_last_round(self, run: RunView) -> None:
        # A run that went back to a round before has seen later ones, too.
        if self._seen_round >= run.round > self._saved_round and run.stop_reason is None:
            self.save(run, in_background=False)

    def _is_due(self, run: RunView) -> bool:
        """Whether it is time for a checkpoint; one that couldn't be taken in its round is taken when it can be."""
        if self._every is None:
            pause = max(self._shared.wait(id(self)), self._seconds_of_writing / _SHARE_OF_WRITING)
            return not self._writer.is_busy and time.monotonic() - self._copied_at >= pause
        self._is_overdue |= self._every > 0 and run.round % self._every == 0
        if not self._is_overdue:
            return False
        if self._writer.is_busy and not self._shared.may_wait():
            if not self._has_told:
                run.files.log(f"the disk is too slow for a checkpoint every {self._every} rounds: they come later")
                self._has_told = True
            return False
        self._is_overdue = False
        return True
