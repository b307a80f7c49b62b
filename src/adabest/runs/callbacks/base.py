"""Callbacks: the way to extend the loop over rounds.

The loop itself is closed: it makes rounds, and calls every callback at four moments. Metrics, timings, the log,
trackers, early stopping, checkpoints and progress are callbacks, too.

======================  =================================================================================
``start``               once, before the first round that this process makes; also when a run is resumed
``after_evaluation``    after a round whose models were evaluated
``after_round``         after every round, once all callbacks have seen its evaluation
``end``                 once, in reverse order: the run is finished, diverged, interrupted or ended by an error
======================  =================================================================================

The order is fixed: trackers, the user's own in the order in which they were given, log, records (metrics, models,
manifest), timings, early stopping, checkpoints, progress. The user's own start before a run's first file is written,
and end after its last. A checkpoint holds the state of every callback after its round, so a run that is killed and
resumed calls a callback for exactly the rounds that its state lacks.
"""

import copy
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn

from adabest.engine.local_test import LocalTests
from adabest.engine.simulation import Simulation
from adabest.errors import InputError
from adabest.models.vector import VectorModel
from adabest.runs.files import folder as files
from adabest.runs.files.folder import RunFolder
from adabest.runs.files.metrics_file import MetricsFile
from adabest.tasks.objectives.metric import ACCURACY, Metric

Row = Mapping[str, Any]


class Ending(NamedTuple):
    """The end of a run in this process.

    Attributes:
        status: ``finished``, ``diverged``, ``interrupted`` on request, or ``killed`` by an error.
        round: The last finished round, or the one it diverged in.
        reason: Why it diverged, finished early or failed, if it did.
        at_once: Whether a second Ctrl-C asked to stop at once, so that callbacks must not take long.
    """

    status: Literal["finished", "diverged", "interrupted", "killed"]
    round: int
    reason: str | None = None
    at_once: bool = False

    def facts(self) -> dict[str, Any]:
        """Status, round and reason as in the folder's ``status.json``, which has no reason of a failure."""
        reason = {} if self.reason is None or self.status == "killed" else {"reason": self.reason}
        return {"status": self.status, "round": self.round, **reason}


class RunView:
    """A run as callbacks see it. They may read all of it, and ask it to stop.

    Attributes:
        name: The name of its folder.
        group: The comparison that it belongs to; empty if there is none.
        folder: Its folder.
        config: All its settings by name.
        rounds: The last round, unless the run ends early.
        first_round: The last round that was finished before this process started or resumed the run; 0 for a new run.
        rows: Its rows of metrics so far, those of earlier processes among them.
        steps_per_second: Local steps per second since this process started or resumed the run.
        skipped: Whether the last round was skipped because no client was present.
        stop_reason: Why it ends early, if a callback asked for it.
        local_test: Judges models client by client; None without ``local_test``.
    """

    def __init__(
        self,
        files_of_run: RunFolder,
        config: Mapping[str, Any],
        simulation: Simulation,
        model: VectorModel,
        *,
        group: str = "",
        local_test: LocalTests | None = None,
    ) -> None:
        self.name, self.group = files_of_run.path.resolve().name, group
        self.folder: Path = files_of_run.path
        self.config = config
        self.rounds: int = config["rounds"]
        self.simulation, self.local_test = simulation, local_test
        self.files = files_of_run
        state = simulation.state
        self.first_round = state.round
        self.rows: list[Row] = [*MetricsFile(files_of_run / files.METRICS).rows()]
        self.stop_reason: str | None = None
        self._model = model
        self.steps_per_second, self.skipped = 0.0, False
        self._begun, self._first_steps, self._skipped_rounds = time.monotonic(), state.local_steps, state.skipped_rounds

    @property
    def round(self) -> int:
        """The last finished round."""
        return self.simulation.state.round

    @property
    def id(self) -> str:
        """The run's unique id for trackers, which stays the same when the run is resumed."""
        return str(self._tracking()["id"])

    def parameters(self, which: str = "scored", *, client: int | None = None) -> dict[str, Tensor]:
        """The parameters of a model by name, copied to main memory.

        Args:
            which: ``scored``, ``aggregate``, ``cloud``, or ``averaged`` if the run has such a model by now.
            client: A training client, whose own model it is then: its personal one if the algorithm has such models,
                else the one that it trained last; the initial one if it never took part.

        Raises:
            InputError: If there is no such model or client.
        """
        self._model.load(self._vector(which) if client is None else self.simulation.personal_model(client))
        # Clones: tied parameters share memory, which safetensors refuses, and the next round changes the model.
        return {name: value.detach().cpu().clone() for name, value in self._model.module.state_dict().items()}

    def module(self, which: str = "scored", *, client: int | None = None) -> nn.Module:
        """A model as a module of its own, ready to be called; the arguments are those of ``parameters``."""
        module = copy.deepcopy(self._model.module)
        module.load_state_dict(self.parameters(which, client=client))
        return module.eval()

    def _vector(self, which: str) -> Tensor:
        vectors = self.vectors()
        if which not in vectors:
            raise InputError(f"the run has no model {which!r} in round {self.round}; it has {', '.join(vectors)}")
        return vectors[which]

    def vectors(self) -> dict[str, Tensor]:
        """The models that exist by now, as vectors."""
        simulation = self.simulation
        models = {
            "scored": simulation.scored_model(),
            "aggregate": simulation.state.aggregate,
            "cloud": simulation.state.cloud,
            "averaged": simulation.averaged_model(),
        }
        return {name: model for name, model in models.items() if model is not None}

    def stop(self, reason: str) -> None:
        """Asks the run to end as finished, after this round if it was evaluated, else after the next, which will be.

        The first reason counts.
        """
        if self.stop_reason is None:
            evaluated = bool(self.rows) and self.rows[-1]["round"] == self.round
            self.stop_reason = reason
            self.rounds = min(self.rounds, self.round if evaluated else self.round + 1)

    def round_done(self) -> None:
        """Updates the speed, and whether the round was skipped; the loop calls it after every round."""
        state = self.simulation.state
        self.steps_per_second = (state.local_steps - self._first_steps) / max(time.monotonic() - self._begun, 1e-9)
        self.skipped = state.skipped_rounds > self._skipped_rounds
        self._skipped_rounds = state.skipped_rounds

    def _tracking(self) -> dict[str, Any]:
        """The run's id and group. They are on disk before a tracker gets them, else a kill would make a second id."""
        kept = self.files.read_json(files.TRACKING)
        if kept is None:
            kept = {"id": uuid.uuid4().hex[:12], "group": self.group}
            self.files.write_json(files.TRACKING, kept)
        if not all(isinstance(kept.get(name), str) for name in ("id", "group")):
            raise InputError(f"{self.files / files.TRACKING} is damaged: it should have an id and a group")
        return kept

    def join_group(self) -> None:
        """Sets the group to the one that the run began in, also if the run is resumed alone."""
        self.group = self._tracking()["group"]


class Callback:
    """The base of callbacks. All its methods do nothing; override those that you need.

    An exception in a callback ends the run, which can be resumed from its last checkpoint.
    """

    def start(self, run: RunView) -> None:
        """Called before the first round, and before the round after ``run.first_round`` when a run is resumed."""

    def after_evaluation(self, run: RunView, metrics: Row) -> None:
        """Called after a round that was evaluated.

        Args:
            run: The run.
            metrics: The row of metrics of the round; a value may be None.
        """

    def after_round(self, run: RunView) -> None:
        """Called after every round, evaluated or not."""

    def end(self, run: RunView, ending: Ending) -> None:
        """Called once, after the last round in this process."""

    def state(self) -> Mapping[str, Any]:
        """The callback's state, which checkpoints hold as JSON, and ``restore`` gets when the run is resumed."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what ``state`` returned; called before ``start`` when a run is resumed from a checkpoint."""


def told_model(row: Mapping[str, Any], score: str, metric: Metric = ACCURACY) -> str:
    """The model that is told of: the one that ``--score`` names, or the aggregate if there is no scored one."""
    there = any(row.get(f"scored_{name}") is not None for name in (metric.name, "loss"))
    return score if score != "scored" or there else "aggregate"
