"""The runs of an experiment: those that tune come first, then all others, as lanes; finished runs are kept."""

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from adabest.data.dataset import Dataset
from adabest.data.loading import load_dataset
from adabest.errors import InputError, nearest
from adabest.experiments.choice import Point, choose
from adabest.experiments.run_group import make_runs, refuse_other_runs
from adabest.paper.specification import Cell, Rule, Specification
from adabest.runs.lane_memory import fitting_lanes
from adabest.runs.results_file import CHOICES, Choice, Result, Results, provenance, write_choices
from adabest.runs.settings.algorithm_specification import algorithm_options
from adabest.runs.settings.config import Config
from adabest.runs.settings.resolution import resolve
from adabest.runs.settings.run_plan import Plan
from adabest.runs.stored_run import Run

TUNING = "tuning"


@dataclass(frozen=True)
class ExperimentRequest:
    """A request for some of an experiment's runs.

    Attributes:
        specification: The experiment.
        cells: Those of its cells that are to be made.
        entries: Those of its entries that are to be made in them.
        seeds: The seeds.
        rounds: How many rounds, in place of its own; None for those.
        execution: Settings by name, of those that may stand beside a specification.
        choices: Hyper-parameters that were chosen before, which aren't tuned again.
        lanes: How many runs are trained together at most.
    """

    specification: Specification
    cells: Sequence[Cell]
    entries: Sequence[str]
    seeds: Sequence[int]
    rounds: int | None = None
    execution: Mapping[str, Any] | None = None
    choices: Sequence[Choice] = ()
    lanes: int | None = None

    def settings(self, cell: Cell, entry: str, seed: int) -> dict[str, Any]:
        """The settings of a run, but for those that are tuned. What the call gives wins over the specification."""
        execution = self.execution or {}
        on_gpu = self.specification.gpu if _runs_kernels(execution) else {}
        settings = {**self.specification.settings_of(cell, entry), **on_gpu, **execution, "seed": seed}
        return settings if self.rounds is None else {**settings, "rounds": self.rounds}

    def chosen(self, choices: Sequence[Choice], cell: Cell, entry: str) -> dict[str, Any]:
        """What was chosen for an entry in a cell; one that stands for certain values, and isn't tuned, keeps them."""
        choice = self._choice(choices, cell, entry)
        return {} if choice is None else dict(choice.chosen)

    def _choice(self, choices: Sequence[Choice], cell: Cell, entry: str) -> Choice | None:
        algorithm = self.specification.entries[entry]["algorithm"]
        if entry != algorithm and self.specification.tuned_by(cell.name, entry) is None:
            return None
        for choice in choices:
            if choice.algorithm == algorithm and fnmatch.fnmatchcase(cell.name, choice.cells):
                return choice
        return None

    def check_choices(self, *, kept: bool) -> None:
        """Refuses choices that don't settle what is tuned.

        Args:
            kept: Whether they lay in the folder, and weren't given by the call.

        Raises:
            InputError: If one leaves out a hyper-parameter, sets anything but hyper-parameters of its algorithm, or was
                kept of an experiment that was only tried out.
        """
        for cell in self.cells:
            for entry in self.entries:
                rule, choice = self.specification.tuned_by(cell.name, entry), self._choice(self.choices, cell, entry)
                if choice is not None:
                    _refuse_other_settings(choice, rule)
                if rule is None or choice is None:
                    continue
                missing = [name for name in rule.vary if name not in choice.chosen]
                if missing:
                    raise InputError(
                        f"{cell.name}: the choices for {entry} say {', '.join(choice.chosen)} and nothing of "
                        f"{', '.join(missing)}, which is tuned there; tune all of them together"
                    )
                wanted = rule.trial_rounds(self.settings(cell, entry, seed=0)["rounds"])
                if kept and choice.rounds < wanted:
                    raise InputError(
                        f"{cell.name}: {CHOICES} has a choice for {entry} that was made after {choice.rounds} rounds, "
                        f"where {wanted} are to be tried; choose another folder, or name that file as --choices"
                    )

    def groups(self) -> list[list[Cell]]:
        """The cells, those together that are to be trained together."""
        groups: dict[tuple[str, ...], list[Cell]] = {}
        for cell in self.cells:
            groups.setdefault(cell.apart, []).append(cell)
        return list(groups.values())


def _runs_kernels(execution: Mapping[str, Any]) -> bool:
    """Whether runs that are executed like this are trained by a GPU's kernels."""
    given: dict[str, Any] = {
        name: str(execution[name]) for name in ("engine", "device") if execution.get(name) is not None
    }
    return replace(Config(), **given).runs_kernels()


def _refuse_other_settings(choice: Choice, rule: Rule | None) -> None:
    """Refuses a choice that would change more than hyper-parameters and what is tuned: it is read from a file.

    Raises:
        InputError: If it would.
    """
    own = {*algorithm_options(choice.algorithm), *(rule.vary if rule is not None else ())}
    for name in choice.chosen:
        if name not in own:
            raise InputError(
                f"the choices for {choice.algorithm} say {name!r}, which isn't one of its hyper-parameters, and an "
                f"experiment of the paper has it fixed; {nearest(name, own)}"
            )


class _SpecifiedRun(NamedTuple):
    """A run that is to be made.

    Attributes:
        place: Its cell, and its entry there.
        label: Its name, and the name of its folder.
        settings: All settings.
        point: The values that it tries, for a run by which hyper-parameters are chosen.
    """

    place: tuple[str, str]
    label: str
    settings: dict[str, Any]
    point: Mapping[str, Any] = MappingProxyType({})


class Stage(NamedTuple):
    """Runs that are made one after another or together, before those of the next stage.

    Attributes:
        purpose: ``tuning`` for runs by which hyper-parameters are chosen, else ``runs``.
        folder: The folder above those of the runs.
        plan: The runs by label.
        cells: The cell of each, by label.
        unsettled: The labels of runs whose hyper-parameters are still to be chosen.
        lanes: How many are trained together at most.
    """

    purpose: str
    folder: Path
    plan: Plan
    cells: Mapping[str, str]
    unsettled: frozenset[str]
    lanes: int


class ExperimentRuns:
    """The runs of an experiment, which are made in a folder."""

    def __init__(
        self,
        request: ExperimentRequest,
        folder: Path,
        *,
        show: bool = False,
        load: Callable[[str, str | None], Dataset] = load_dataset,
    ) -> None:
        """Makes nothing yet.

        Args:
            request: What is to be made.
            folder: The folder above those of the runs.
            show: Whether to show progress.
            load: Loads a data set by its name and the folder of data.
        """
        self._request, self._folder, self._show, self._load = request, folder, show, load
        self._datasets: dict[str, Dataset] = {}  # each is read once

    def check(self) -> None:
        """Finds out about bad settings, data that aren't there and folders with other runs before anything is begun.

        Raises:
            InputError: If there are any.
        """
        request = self._request
        trials = self._trials(request.cells)
        refuse_other_runs(self._plan(trials), self._folder / TUNING, overwrite=None)
        tried = {trial.place: trial.point for trial in trials}
        known = self._chosen(request.choices, request.cells)
        jobs = [job for seed in request.seeds for job in self._jobs(request.cells, seed, {**known, **tried})]
        planned = self._plan(jobs)
        settled = {job.label: planned.runs[job.label] for job in jobs if job.place not in tried}
        refuse_other_runs(Plan(settled, {}), self._folder, overwrite=None)

    def stages(self) -> list[Stage]:
        """All runs, in the order in which they are made: what is to be tuned first, then group by group."""
        request = self._request
        known = self._chosen(request.choices, request.cells)
        tried = {trial.place: trial.point for trial in self._trials(request.cells)}
        tuning = [self._trials(cells) for cells in request.groups()]
        runs = [
            [job for seed in request.seeds for job in self._jobs(cells, seed, {**known, **tried})]
            for cells in request.groups()
        ]
        stages = []
        for purpose, folder, groups in ((TUNING, self._folder / TUNING, tuning), ("runs", self._folder, runs)):
            for jobs in filter(None, groups):
                planned = self._plan(jobs)
                waiting = () if purpose == TUNING else (job.label for job in jobs if job.place in tried)
                cells = {job.label: job.place[0] for job in jobs}
                lanes = request.lanes or self._default_lanes(planned)
                stages.append(Stage(purpose, folder, planned, cells, frozenset(waiting), lanes))
        return stages

    def make(self, tell: Callable[[Results], None]) -> Results:
        """Makes all runs: what is to be tuned first, then group by group, the runs of all seeds together.

        Results are in the order of seeds, whichever run ends first.

        Args:
            tell: Told of the results so far, whenever there are more.

        Raises:
            InputError: If something can't be used.
            Interrupted: If a signal asked to stop.
        """
        request = self._request
        results = Results(request.specification.name, [], list(request.choices))
        for cells in request.groups():
            results = replace(results, tuning=[*results.tuning, *self._tune(cells)])
            if results.tuning:
                write_choices(self._folder / CHOICES, results.tuning)
        chosen = self._chosen(results.tuning, request.cells)
        by_seed = [[self._jobs(cells, seed, chosen) for cells in request.groups()] for seed in request.seeds]
        ordered = {job.label: job for groups in by_seed for jobs in groups for job in jobs}
        made: dict[str, Result] = {}

        def so_far() -> Results:
            return replace(results, runs=[made[label] for label in ordered if label in made])

        def take(label: str, run: Run) -> None:
            place = ordered[label].place
            made[label] = Result.of(run, *place, chosen.get(place, {}))

        def ended(label: str, run: Run) -> None:
            take(label, run)
            tell(so_far())

        for jobs_of_seeds in zip(*by_seed, strict=True):
            jobs = [job for jobs in jobs_of_seeds for job in jobs]
            for label, run in self._run(jobs, self._folder, ended=ended).items():
                take(label, run)
            tell(so_far())
        return so_far()

    def _tune(self, cells: Sequence[Cell]) -> list[Choice]:
        """Tries the values of everything in some cells that is to be tuned, and chooses."""
        trials = self._trials(cells)
        made = self._run(trials, self._folder / TUNING, blind=True)
        choices = []
        for place in dict.fromkeys(trial.place for trial in trials):
            points: dict[str, tuple[Mapping[str, Any], list[Run]]] = {}
            for trial in trials:
                if trial.place == place:
                    points.setdefault(str(trial.point), (trial.point, []))[1].append(made[trial.label])
            tried = [Point.of(values, runs) for values, runs in points.values()]
            runs = next(iter(points.values()))[1]
            choices.append(
                Choice(
                    cells=place[0],
                    algorithm=runs[0].config.algorithm,
                    # Where all diverge there is nothing to choose, and the table is to show just that.
                    chosen=choose(tried) or tried[0].values,
                    grid=[point.row() for point in tried],
                    rounds=runs[0].config.rounds,
                    seeds=[run.config.seed for run in runs],
                    provenance=provenance(runs[0]),
                )
            )
        return choices

    def _trials(self, cells: Sequence[Cell]) -> list[_SpecifiedRun]:
        """The runs by which values are chosen in some cells, unless they were chosen before."""
        request, trials = self._request, []
        for cell in cells:
            for entry in request.entries:
                rule = request.specification.tuned_by(cell.name, entry)
                if rule is None or request.chosen(request.choices, cell, entry):
                    continue
                for point in rule.points():
                    for seed in rule.seeds or request.seeds:
                        settings = {**request.settings(cell, entry, seed), **point}
                        settings["rounds"] = rule.trial_rounds(settings["rounds"])
                        settings["evaluate_every"] = settings["rounds"]
                        settings.pop("average_from", None)
                        name = ",".join([entry, *(f"{key}={value}" for key, value in point.items())])
                        trials.append(
                            _SpecifiedRun((cell.name, entry), f"{cell.name}/{name},seed={seed}", settings, point)
                        )
        return trials

    def _chosen(self, choices: Sequence[Choice], cells: Sequence[Cell]) -> dict[tuple[str, str], Mapping[str, Any]]:
        """What was chosen in some cells, by cell and entry."""
        found = {
            (cell.name, entry): self._request.chosen(choices, cell, entry)
            for cell in cells
            for entry in self._request.entries
        }
        return {place: values for place, values in found.items() if values}

    def _jobs(
        self, cells: Sequence[Cell], seed: int, chosen: Mapping[tuple[str, str], Mapping[str, Any]]
    ) -> list[_SpecifiedRun]:
        """The runs of some cells with a seed."""
        return [
            _SpecifiedRun(
                (cell.name, entry),
                f"{cell.name}/{entry},seed={seed}",
                {**self._request.settings(cell, entry, seed), **chosen.get((cell.name, entry), {})},
            )
            for cell in cells
            for entry in self._request.entries
        ]

    def _run(
        self,
        jobs: Sequence[_SpecifiedRun],
        folder: Path,
        *,
        blind: bool = False,
        ended: Callable[[str, Run], None] = lambda label, run: None,
    ) -> Mapping[str, Run]:
        """Makes runs of all seeds, by label; blind if something is to be chosen by them."""
        if not jobs:
            return {}
        planned = self._plan(jobs)
        refuse_other_runs(planned, folder, overwrite=None)
        lanes = self._request.lanes or self._default_lanes(planned)
        return make_runs(planned, folder, lanes=lanes, blind=blind, ended=ended, show=self._show).runs

    def _default_lanes(self, planned: Plan) -> int:
        """How many runs are trained together: as many as fit the memory, and at least all of one seed."""
        of_one_seed = -(-len(planned.runs) // len(self._request.seeds))
        return max(of_one_seed, fitting_lanes(list(planned.runs.values())))

    def _plan(self, jobs: Sequence[_SpecifiedRun]) -> Plan:
        runs = {}
        for job in jobs:
            runs[job.label] = resolve(job.settings, self._dataset(job.settings["dataset"]))
        return Plan(runs, {job.label: [job.label] for job in jobs})

    def _dataset(self, name: str) -> Dataset:
        """A data set, read once.

        Raises:
            InputError: If it isn't there; the message has the way around it.
        """
        if name not in self._datasets:
            try:
                self._datasets[name] = self._load(name, (self._request.execution or {}).get("data_dir"))
            except InputError as error:
                specification = self._request.specification
                others = [cell.name for cell in specification.all_cells() if cell.settings["dataset"] != name]
                around = f". Cells that don't need it can be made alone, as in --cells {others[-1]}" if others else ""
                raise InputError(f"{error}{around}") from error
        return self._datasets[name]
