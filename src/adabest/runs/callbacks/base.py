"""Callbacks: what happens beside the loop over rounds.

The loop is closed: it asks for rounds, and calls every callback at four moments. Metrics, timings, the log, trackers,
early stopping, checkpoints and progress are callbacks, too.

======================  =================================================================================
``start``               once, before the first round that this process makes; also when a run is resumed
``after_evaluation``    after a round whose models were evaluated
``after_round``         after every round, once all callbacks have seen its evaluation
``end``                 once, in reverse order: the run is finished, diverged, interrupted or broken off
======================  =================================================================================

The order is fixed: trackers, log, records (metrics, models, manifest), timings, early stopping, the user's own in the
order in which they were given, checkpoints, progress. So a checkpoint holds the state of every callback after its
round, and a run that is killed and resumed calls a callback for just the rounds that its state doesn't know.
"""

import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from torch import Tensor

from adabest.engine.simulation import Simulation
from adabest.errors import InputError
from adabest.models.vector import VectorModel
from adabest.runs.files import folder as files
from adabest.runs.files.folder import RunFolder

Row = Mapping[str, Any]


class Ending(NamedTuple):
    """How a run ended, in this process.

    Attributes:
        status: ``finished``, ``diverged``, ``interrupted`` on request, or ``killed`` by an error.
        round: The last round that counts, or the one it diverged in.
        reason: Why it diverged, finished early or was broken off, if it did.
        at_once: Whether someone asked a second time to stop, so that nothing may take long any more.
    """

    status: Literal["finished", "diverged", "interrupted", "killed"]
    round: int
    reason: str | None = None
    at_once: bool = False

    def facts(self) -> dict[str, Any]:
        """As in the folder's ``status.json``: a reason only where the run is over."""
        reason = {} if self.reason is None or self.status == "killed" else {"reason": self.reason}
        return {"status": self.status, "round": self.round, **reason}


class RunView:
    """What callbacks may read of a run, and the one thing that they may ask for: that it stops.

    Attributes:
        name: What it is called: its folder's name.
        group: The comparison that it belongs to; empty if there is none.
        folder: Its folder.
        config: All its settings by name.
        rounds: The last round there will be, unless it ends early.
        first_round: The last round that was finished before this process took it up; 0 when it begins.
        rows: Its rows of metrics so far, those of earlier processes among them.
        steps_per_second: Local steps a second since this process took it up.
        skipped: Whether the last round was skipped since nobody was present.
        stop_reason: Why it ends early, if a callback asked for it.
    """

    def __init__(
        self,
        files_of_run: RunFolder,
        config: Mapping[str, Any],
        simulation: Simulation,
        model: VectorModel,
        *,
        group: str = "",
    ) -> None:
        self.name, self.group = files_of_run.path.resolve().name, group
        self.folder: Path = files_of_run.path
        self.config = config
        self.rounds: int = config["rounds"]
        self.simulation = simulation
        self.files = files_of_run
        self.rows: list[Row] = []
        self.stop_reason: str | None = None
        self._model = model
        self.resume_here()

    def resume_here(self) -> None:
        """Takes the round and the rows that there are as where this process takes the run up."""
        state = self.simulation.state
        self.first_round = state.round
        self.rows = list(self.files.rows(files.METRICS)) if (self.files / files.METRICS).is_file() else []
        self.steps_per_second, self.skipped = 0.0, False
        self._begun, self._first_steps, self._skipped_rounds = time.monotonic(), state.local_steps, state.skipped_rounds

    @property
    def round(self) -> int:
        """The last finished round."""
        return self.simulation.state.round

    @property
    def id(self) -> str:
        """Names the run among all runs, and stays the same when it is resumed."""
        return str(self._tracking()["id"])

    def parameters(self, which: str = "scored") -> dict[str, Tensor]:
        """The parameters of a model by name, copied to main memory.

        Args:
            which: ``scored``, ``aggregate``, ``cloud``, or ``averaged`` if the run has such a model by now.
        """
        vectors = self.vectors()
        if which not in vectors:
            raise InputError(f"the run has no model {which!r} in round {self.round}; it has {', '.join(vectors)}")
        self._model.load(vectors[which])
        # Clones: tied parameters share memory, and the model's own changes with the next round.
        return {name: value.detach().cpu().clone() for name, value in self._model.module.state_dict().items()}

    def vectors(self) -> dict[str, Tensor]:
        """The models there are by now, as vectors."""
        averaged = self.simulation.averaged_model()
        return {
            "scored": self.simulation.scored_model(),
            "aggregate": self.simulation.state.aggregate,
            "cloud": self.simulation.state.cloud,
            **({} if averaged is None else {"averaged": averaged}),
        }

    def stop(self, reason: str) -> None:
        """Asks the run to end after this round, as finished; the first reason counts."""
        if self.stop_reason is None:
            self.stop_reason = reason
            self.rounds = self.round

    def round_done(self) -> None:
        """Takes over what the loop knows of the round that has just been made."""
        state = self.simulation.state
        self.steps_per_second = (state.local_steps - self._first_steps) / max(time.monotonic() - self._begun, 1e-9)
        self.skipped = state.skipped_rounds > self._skipped_rounds
        self._skipped_rounds = state.skipped_rounds

    def _tracking(self) -> dict[str, Any]:
        """The run's id and group, on disk before anybody hears of them, so that no tracker sees the run twice."""
        kept = self.files.read_json(files.TRACKING)
        if kept is None:
            kept = {"id": uuid.uuid4().hex[:12], "group": self.group}
            self.files.write_json(files.TRACKING, kept)
        if not all(isinstance(kept.get(name), str) for name in ("id", "group")):
            raise InputError(f"{self.files / files.TRACKING} is damaged: it should have an id and a group")
        return kept

    def join_group(self) -> None:
        """Takes the group that the run began in, which counts when it is resumed alone."""
        self.group = self._tracking()["group"]


class Callback:
    """Something that happens beside the loop over rounds. All methods do nothing here; override those that matter.

    What a callback raises breaks the run off, and the run can be resumed from its last checkpoint.
    """

    def start(self, run: RunView) -> None:
        """The first round is about to begin, or the run goes on after ``run.first_round``."""

    def after_evaluation(self, run: RunView, metrics: Row) -> None:
        """A round was evaluated.

        Args:
            run: The run.
            metrics: The row of metrics of the round; a value may be None.
        """

    def after_round(self, run: RunView) -> None:
        """A round is done, evaluated or not."""

    def end(self, run: RunView, ending: Ending) -> None:
        """There are no more rounds in this process."""

    def state(self) -> Mapping[str, Any]:
        """What the callback must know again when the run is resumed, as JSON has it. It becomes part of checkpoints."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes back what ``state`` gave; called before ``start`` when a run is resumed from a checkpoint."""
