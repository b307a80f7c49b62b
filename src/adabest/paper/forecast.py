"""Forecasts: how many runs, rounds and local steps an experiment has, and how long it takes on this machine.

Counts are exact. Times are those of a few probed steps and one evaluation, multiplied.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO, Unpack

import numpy as np

from adabest.algorithms.base import Algorithm, Work
from adabest.costs.step_probe import ProbedTimes, clients_in_probe, probe_steps
from adabest.data.catalog import OFFICIAL
from adabest.data.dataset import Dataset
from adabest.data.loading import load_dataset
from adabest.data.location import data_folder, find
from adabest.data.official import stand_in
from adabest.engine.algorithm_calls import common_steps
from adabest.engine.interface import server_context
from adabest.engine.local_step import LocalTraining
from adabest.engine.step_numbers import UniformSteps
from adabest.errors import InputError
from adabest.federation.batches import batches_per_epoch
from adabest.federation.roster import Attendance, Roster
from adabest.paper.experiment_runs import ExperimentRuns, Stage
from adabest.paper.reproduce import make_request
from adabest.paper.specification import COSTS
from adabest.report.numbers import MISSING, as_count, as_duration, as_text, with_commas
from adabest.report.table import Table
from adabest.runs.build import cut_partition
from adabest.runs.callbacks.progress import standard_error
from adabest.runs.files.folder import ENDED, RunFolder
from adabest.runs.keywords import ExecutionSettings
from adabest.runs.lane_memory import kept_bytes
from adabest.runs.settings.config import Config
from adabest.runs.settings.resolution import Components
from adabest.runs.stored_run import read_run

_DEALT = ("dirichlet", "dirichlet-legacy", "shards")  # partitions whose clients have the sizes of an IID one
# Settings on which the time of a step or of an evaluation depends; runs that share them share a probe.
_TIMED = ("dataset", "model", "loss", "precision", "batch_size", "batching", "augmentation", "average_from")
# Settings on which the number of steps depends.
_COUNTED = (
    *("rounds", "epochs", "local_steps", "clients", "validation_clients", "participation", "sampler"),
    *("unbalance", "churn", "schedule"),
)


@dataclasses.dataclass(frozen=True)
class PlannedGroup:
    """Runs that differ in algorithm, hyper-parameters, labels and seed alone.

    Attributes:
        cells: Their cells, as a pattern.
        settings: Settings in which they differ from the largest group of the same cells; none in that one.
        purpose: ``tuning`` for runs by which hyper-parameters are chosen, else ``runs``.
        runs: How many there are.
        done: How many of them are finished in the folder; what follows is of the others.
        rounds: Rounds.
        steps: Local steps of clients.
        samples: Samples that these steps train on, each as often as it is drawn.
        gradient_batches: Batches over which clients compute full gradients, in algorithms that need them. They aren't
            steps, and take as long.
        kept: Bytes that the clients of one run keep, at most.
        probed: What was timed for it; None where nothing is left to be made.
        seconds: How long it takes on this machine, by what was timed.
    """

    cells: str
    settings: dict[str, Any]
    purpose: str
    runs: int
    done: int
    rounds: int
    steps: int
    samples: int
    gradient_batches: int
    kept: int
    probed: ProbedTimes | None
    seconds: float


@dataclasses.dataclass(frozen=True)
class Forecast:
    """How much an experiment is.

    Attributes:
        groups: Its runs, in the order in which they are made.
        notes: How the times were estimated, and of which data.
    """

    groups: list[PlannedGroup]
    notes: list[str]

    @property
    def seconds(self) -> float:
        """How long all of it takes on this machine, estimated."""
        return sum(group.seconds for group in self.groups)

    @property
    def table(self) -> Table:
        """A row for each group, and one for all."""
        rows = [_row(group) for group in self.groups]
        sums = (sum(getattr(group, name) for group in self.groups) for name in ("runs", "done", "rounds", "steps"))
        samples = sum(group.samples for group in self.groups)
        rows.append(("all", "", *map(with_commas, sums), as_count(samples), MISSING, as_duration(self.seconds)))
        head = ("cells", "for", "runs", "done", "rounds", "client steps", "samples", "a step", "time")
        return Table(head, tuple(rows), "What is to be run, and how long it takes here (an estimate)")


def forecast(
    name: str,
    *,
    cells: str | Sequence[str] = (),
    entries: str | Sequence[str] = (),
    seeds: Sequence[int] | None = None,
    rounds: int | None = None,
    choices: str | Path | None = None,
    lanes: int | None = None,
    out: str | Path | None = None,
    show: bool = True,
    **execution: Unpack[ExecutionSettings],
) -> Forecast:
    """Tells what `reproduce` would run, and how long that takes on this machine. Runs and writes nothing.

    Times are estimates: a few local steps and an evaluation are timed, with the experiment's model, batch size, engine
    and device, then multiplied. Data that aren't on this machine are not downloaded: synthetic images of their shape
    stand in for them.

    Args:
        name: The experiment, as in table1 or fig-stability.
        cells: Those of its cells that are to be made, as for `reproduce`.
        entries: What is to be compared in them.
        seeds: Seeds to make each run with.
        rounds: Rounds of each run, in place of the experiment's own.
        choices: File of hyper-parameters that aren't tuned again.
        lanes: How many runs are trained together at most.
        out: Folder whose finished runs count as done. By default ``runs/`` and the experiment's name.
        show: Whether to tell on standard error what is being timed.
        **execution: Settings that say how runs are executed: ``device``, ``precision``, ``data_dir`` and others.

    Raises:
        InputError: If something can't be used.
        Interrupted: If a signal asked to stop.
    """
    if name == COSTS:
        raise InputError("costs are measured in minutes, and have no runs to plan; plan another experiment")
    request, folder = make_request(
        name,
        cells=cells,
        entries=entries,
        seeds=seeds,
        rounds=rounds,
        choices=choices,
        lanes=lanes,
        out=out,
        execution=execution,
    )
    data = _DataAtHand()
    making = ExperimentRuns(request, folder, load=data.load)
    making.check()
    groups: dict[tuple[Any, ...], list[_Planned]] = {}
    for number, stage in enumerate(making.stages()):
        for label, (config, components) in stage.plan.runs.items():
            planned = _Planned(stage, label, config, components)
            groups.setdefault((number, *planned.alike.values()), []).append(planned)
    probes = _Probes(standard_error() if show else None)
    made = [_group(members, probes) for members in groups.values()]
    first = next(iter(groups.values()))[0].config
    told_apart = _told_apart(made, [members[0].alike for members in groups.values()])
    return Forecast(told_apart, [*_notes(first, probes, told_apart), *data.notes()])


class _Planned(NamedTuple):
    """A run that is to be made."""

    stage: Stage
    label: str
    config: Config
    components: Components

    @property
    def alike(self) -> dict[str, Any]:
        """The settings that runs of one group have in common, by name."""
        found = {name: getattr(self.config, name) for name in (*_TIMED, *_COUNTED)}
        found["schedule"] = tuple(self.config.schedule)
        return {**found, "partition": "iid" if self.config.partition in _DEALT else self.config.partition}

    @property
    def is_done(self) -> bool:
        """Whether it is finished in the folder."""
        place = self.stage.folder / self.label
        if self.label in self.stage.unsettled or not RunFolder(place).holds_run():
            return False
        return read_run(place).status in ENDED


class _Probes:
    """The probes of a forecast, each made once."""

    def __init__(self, stream: TextIO | None) -> None:
        self.made: dict[tuple[Any, ...], ProbedTimes] = {}
        self._stream = stream

    def times(self, of: _Planned, cells: str, clients: int, steps: int) -> ProbedTimes:
        """The times for runs like one; says so before it probes, which takes seconds to minutes."""
        key = (*(of.alike[name] for name in _TIMED), clients, steps)
        if key not in self.made:
            if self._stream is not None:
                self._stream.write(f"{cells}: timing a few steps of {clients} client{'s' * (clients > 1)}\n")
                self._stream.flush()
            self.made[key] = probe_steps(of.config, of.components, clients, steps)
        return self.made[key]


def _group(members: Sequence[_Planned], probes: _Probes) -> PlannedGroup:
    """The counts of runs that are alike, and their time; what is probed is added to ``probes``."""
    left = [one for one in members if not one.is_done]
    counted: dict[tuple[Any, ...], CountedWork] = {}  # runs of a seed have the same cohorts
    works = []
    for one in left:
        key = (one.config.seed, one.config.partition_seed, one.components.algorithm.phases)
        if key not in counted:
            counted[key] = count_work(one.config, one.components)
        works.append(counted[key])
    work = CountedWork(*(sum(getattr(one, name) for one in works) for name in CountedWork._fields))
    first, config = members[0], members[0].config
    cells = _pattern([first.stage.cells[one.label] for one in members])
    probed, seconds = None, 0.0
    if left:
        cohort = max(1, round(config.participation * (config.clients or 1)))
        clients = clients_in_probe(config, min(first.stage.lanes, len(left)) * cohort)
        each = max(1, round(work.steps / sum(one.config.rounds for one in left) / cohort))
        probed = probes.times(first, cells, clients, each)
        evaluations = sum(math.ceil(one.config.rounds / one.config.evaluate_every) for one in left)
        seconds = (work.steps + work.gradient_batches) * probed.step
        seconds += evaluations * _evaluated(config, first.components) * probed.evaluation
    return PlannedGroup(
        cells=cells,
        settings={},
        purpose=first.stage.purpose,
        runs=len(members),
        done=len(members) - len(left),
        rounds=sum(one.config.rounds for one in left),
        steps=work.steps,
        samples=work.samples,
        gradient_batches=work.gradient_batches,
        kept=max(kept_bytes(one.config, one.components) for one in members),
        probed=probed,
        seconds=seconds,
    )


def _told_apart(groups: Sequence[PlannedGroup], settings: Sequence[Mapping[str, Any]]) -> list[PlannedGroup]:
    """Groups with the settings in which they differ from the largest one of the same cells and purpose."""
    largest: dict[tuple[str, str], tuple[int, Mapping[str, Any]]] = {}
    for group, own in zip(groups, settings, strict=True):
        place = (group.cells, group.purpose)
        if place not in largest or group.runs > largest[place][0]:
            largest[place] = group.runs, own
    return [
        dataclasses.replace(group, settings={name: value for name, value in own.items() if value != plain[name]})
        for group, own in zip(groups, settings, strict=True)
        for plain in [largest[group.cells, group.purpose][1]]
    ]


class CountedWork(NamedTuple):
    """The work of all clients in all rounds of a run.

    Attributes:
        steps: Local steps.
        samples: Samples that these steps train on, each as often as it is drawn.
        gradient_batches: Batches over which full gradients are computed.
    """

    steps: int
    samples: int
    gradient_batches: int


def count_work(config: Config, components: Components) -> CountedWork:
    """The work of all clients in all rounds of a run, exactly: the cohorts are drawn as the run draws them."""
    sizes_alone = dataclasses.replace(config, partition="iid") if config.partition in _DEALT else config
    partition = cut_partition(sizes_alone, components)
    own, batch_size = partition.samples, config.batch_size or 1
    per_epoch = batches_per_epoch(own, batch_size)
    steps = config.epochs * per_epoch
    if config.local_steps == "mean":
        steps = np.full_like(own, config.epochs * math.ceil(partition.training_samples.mean() / batch_size))
    algorithm, drawn = components.algorithm, UniformSteps.parse(config.local_steps)
    training = LocalTraining(config.learning_rate, config.learning_rate_decay)
    is_common = type(algorithm).common_steps is not Algorithm.common_steps
    trainings = [phase for phase, work in enumerate(algorithm.phases) if work is Work.TRAIN]

    def samples_of(steps: np.ndarray, clients: Any) -> np.ndarray:
        """How many samples some clients' steps train on."""
        if config.batching != "short":
            return steps * batch_size
        # Whole epochs have each sample once; of one that is cut, full batches come first.
        epochs, left = np.divmod(steps, per_epoch[clients])
        counted: np.ndarray = epochs * own[clients] + np.minimum(own[clients], left * batch_size)
        return counted

    def work_of(clients: np.ndarray, round_number: int) -> np.ndarray:
        """Local steps, their samples, and batches of full gradients of some clients in a round."""
        made = drawn.of(config.seed, round_number, clients) if drawn else steps[clients]
        total = np.zeros((3, len(clients)), dtype=np.int64)
        total[2] = (len(algorithm.phases) - len(trainings)) * per_epoch[clients]
        for phase in trainings:
            context = server_context(training, round_number, phase, seed=config.seed)
            common = common_steps(algorithm, context)
            own_steps = made if common is None else np.full_like(clients, common)
            total[:2] += np.stack([own_steps, samples_of(own_steps, clients)])
        return total

    attendance = Attendance(config.participation, config.sampler, config.churn, tuple(config.schedule), config.seed)
    roster = Roster(partition.training, own[partition.training], attendance)
    sizes = own[partition.training]
    roster.advance(1)
    varies = drawn is not None or is_common
    if config.sampler == "uniform" and not attendance.changes and sizes.min() == sizes.max() and not varies:
        of_each = work_of(partition.training[:1], 1)[:, 0]
        return CountedWork(*(int(config.rounds * len(roster.cohort()) * count) for count in of_each))
    total = np.zeros(3, dtype=np.int64)
    for round_number in range(1, config.rounds + 1):
        roster.advance(round_number)
        total += work_of(roster.cohort(), round_number).sum(axis=1)
    return CountedWork(*map(int, total))


def _evaluated(config: Config, components: Components) -> float:
    """How many samples an evaluation has: the test set, and those of validation clients."""
    held_out = config.validation_clients or 0
    own = len(components.dataset.y_train) / ((config.clients or 1) + held_out)
    return len(components.dataset.y_test) + held_out * own


class _DataAtHand:
    """The data sets of a forecast: those on this machine, and synthetic ones in place of others."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Dataset, bool]] = {}

    def load(self, name: str, data_dir: str | None = None) -> Dataset:
        """A data set; synthetic images of its shape if it is a published one that isn't on this machine."""
        spec = OFFICIAL.get(name)
        if spec is None or find(spec, data_folder(data_dir)) is not None:
            self._found[name] = load_dataset(name, data_dir), True
        else:
            self._found[name] = stand_in(spec), False
        return self._found[name][0]

    def notes(self) -> list[str]:
        """How large each data set is, and what stands in for it."""
        return [
            f"{name}: {len(of.y_train):,} training and {len(of.y_test):,} test samples, "
            f"{_megabytes((len(of.y_train) + len(of.y_test)) * math.prod(of.input_shape) * of.x_train.dtype.itemsize)}."
            + ("" if here else " It isn't on this machine: times are those of synthetic samples of its shape.")
            for name, (of, here) in self._found.items()
        ]


def _notes(config: Config, probes: _Probes, groups: Sequence[PlannedGroup]) -> list[str]:
    """How the times were estimated."""
    counted = ["Counts are exact. Finished runs in the folder count as done, begun ones as not begun."]
    batches = sum(group.gradient_batches for group in groups)
    if batches:
        counted.append(
            f"Full gradients of clients, over {as_count(batches)} batches, are in the times, and not in the steps."
        )
    if not probes.made:
        return counted
    made = probes.made.values()
    steps, most = sum(of.steps for of in made), max(of.clients for of in made)
    return [
        *counted,
        f"Times are estimates for this machine ({config.device}, engine {config.engine}, {config.precision}): "
        f"{steps:,} local steps of up to {most} clients side by side, and {len(made)} "
        f"evaluation{'s' * (len(made) > 1)}, were timed, then multiplied. Start, partitions and files aren't in "
        "them. Nothing was run or written.",
    ]


def _row(group: PlannedGroup) -> tuple[str, ...]:
    counts = map(with_commas, (group.runs, group.done, group.rounds, group.steps))
    step = MISSING if group.probed is None else as_duration(group.probed.step)
    cells = ", ".join([group.cells, *(f"{name}={as_text(value)}" for name, value in group.settings.items())])
    return (cells, group.purpose, *counts, as_count(group.samples), step, as_duration(group.seconds))


def _pattern(cells: Sequence[str]) -> str:
    """The cells as one pattern: a star in place of what differs."""
    columns = zip(*(cell.split("/") for cell in cells), strict=True)
    return "/".join(parts[0] if len(set(parts)) == 1 else "*" for parts in columns)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count < 1e8 else f"{count / 1e6:,.0f} MB"
