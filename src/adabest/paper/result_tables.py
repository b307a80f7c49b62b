"""The tables that go with every figure: final numbers, rounds to targets, models side by side, where all comes from."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from adabest.experiments.choice import Point
from adabest.paper.facts import ALGORITHMS, TARGETS, in_order
from adabest.paper.scores import score
from adabest.report.entries import finals
from adabest.report.numbers import MISSING, mean_and_spread
from adabest.report.table import Table, rounds_to
from adabest.runs.results_file import Choice, Result, Results

Runs = Mapping[str, Mapping[str, Sequence[Result]]]  # of several seeds, by setting and entry

_MODELS = {
    "scored_accuracy": "scored",
    "averaged_accuracy": "averaged",
    "aggregate_accuracy": "aggregate θ̄",
    "cloud_accuracy": "cloud θ",
}
_BASELINE = "fedavg"


def dataset_of(runs: Mapping[str, Sequence[Result]]) -> str:
    """The data set of a setting."""
    return next(str(run.settings.get("dataset", "")) for group in runs.values() for run in group)


def entries_in_order(runs: Runs) -> list[str]:
    """All that is compared, in the order of Table 1."""
    return in_order({entry for entries in runs.values() for entry in entries})


def final_table(runs: Runs) -> Table:
    """Accuracy of the scored model, ‖θ‖ and ‖h‖ in the last round, mean ± standard deviation over seeds."""
    rows = []
    for cell, entries in runs.items():
        for entry in in_order(entries):
            of = score(entries[entry])
            kept = [run for run in entries[entry] if run.status != "diverged"]
            norms = (mean_and_spread(finals(kept, name), places=None) for name in ("cloud_norm", "h_norm"))
            rows.append((cell, entry, of.text(), of.seeds, str(of.round or MISSING), *norms))
    return Table(("cell", "entry", "accuracy %", "n", "round", "‖θ‖", "‖h‖"), tuple(rows), "In the last round")


def rounds_table(runs: Runs) -> Table:
    """The first evaluated round that reaches an accuracy, mean over seeds, and how much sooner than FedAvg that is."""
    shown = entries_in_order(runs)
    rows = []
    for cell, entries in runs.items():
        for target in TARGETS.get(dataset_of(entries), ()):
            found = {entry: [rounds_to(run, target / 100) for run in group] for entry, group in entries.items()}
            if any(value is not None for values in found.values() for value in values):
                plain = _baseline(entries, found)
                cells = (_reached(found[entry], None if entry == _BASELINE else plain) for entry in found)
                by_entry = dict(zip(found, cells, strict=True))
                rows.append((cell, str(target), *(by_entry.get(entry, MISSING) for entry in shown)))
    return Table(("cell", "target %", *shown), tuple(rows), "Rounds to reach an accuracy")


def _baseline(
    entries: Mapping[str, Sequence[Result]], found: Mapping[str, list[int | None]]
) -> tuple[str, float] | None:
    """What a speed-up is measured against: FedAvg's round, or, where it never gets there, its last one."""
    values = [value for value in found.get(_BASELINE, []) if value is not None]
    group = entries.get(_BASELINE, [])
    if not group or any(run.status == "diverged" for run in group):
        return None
    if not values:
        return "> ", fmean(run.round for run in group)
    return ("", fmean(values)) if len(values) == len(group) else None


def _reached(values: Sequence[int | None], plain: tuple[str, float] | None) -> str:
    reached = [value for value in values if value is not None]
    if not reached:
        return "never"
    mean = f"{fmean(reached):.0f}"
    if len(reached) < len(values):
        return f"{mean} ({len(reached)} of {len(values)})"
    return mean if plain is None else f"{mean} ({plain[0]}{plain[1] / fmean(reached):.1f}×)"


def models_table(runs: Runs) -> Table:
    """The models of a run beside each other: a row for each, a column for each algorithm."""
    shown = entries_in_order(runs)
    rows = []
    for cell, entries in runs.items():
        for metric, words in _MODELS.items():
            if any(run.final.get(metric) is not None for group in entries.values() for run in group):
                cells = (score(entries[entry], metric).text() if entry in entries else MISSING for entry in shown)
                rows.append((cell, words, *cells))
    return Table(("cell", "model", *shown), tuple(rows), "Test accuracy (%) of the models in the last round")


# --- Where the numbers come from --------------------------------------------------------------------------------------


def provenance_table(results: Results) -> Table:
    """The commands that made the results, each once, and with what."""
    facts = ("command", "commit", "device", "torch", "adabest")
    groups: dict[tuple[str, ...], list[Result]] = {}
    for run in results.runs:
        key = tuple(str(run.provenance.get(name) or MISSING) for name in facts)
        groups.setdefault(key, []).append(run)
    rows = (
        (command, str(len(runs)), ", ".join(map(str, sorted({run.seed for run in runs}))), *rest)
        for (command, *rest), runs in groups.items()
    )
    return Table(("command", "runs", "seeds", *facts[1:]), tuple(rows), "Where the numbers come from")


def choices_table(tuning: Sequence[Choice]) -> Table:
    """What was tried on validation clients, and what was chosen."""
    head = ("cells", "algorithm", "validation accuracy %, chosen in bold", "rounds", "seeds")
    rows = (
        (
            of.cells,
            ALGORITHMS.get(of.algorithm, of.algorithm),
            "; ".join(_tried(point, point.values == of.chosen) for point in _points(of)),
            str(of.rounds),
            ", ".join(map(str, of.seeds)),
        )
        for of in tuning
    )
    return Table(head, tuple(rows), "Chosen on validation clients")


def _points(tuning: Choice) -> list[Point]:
    return [Point(tried["point"], tried["validation_accuracy"], tried["status"]) for tried in tuning.grid]


def _tried(point: Point, chosen: bool) -> str:
    values = ", ".join(f"{name} = {value}" for name, value in point.values.items())
    outcome = f"{100 * point.mean:.2f}" if point.counts else next((s for s in point.status if s != "finished"), MISSING)
    return f"**{values}: {outcome}**" if chosen else f"{values}: {outcome}"
