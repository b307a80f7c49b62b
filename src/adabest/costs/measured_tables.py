"""The tables of measured costs: the paper's, what was counted, what real rounds came to, and whether it fits."""

import statistics

from adabest.costs.cost_file import Cost, MeasuredAlgorithm, MeasuredCosts, MedianInterval
from adabest.report.numbers import MISSING, three_digits, two_places, with_commas, with_interval
from adabest.report.table import Table

_BYTES = ("paper", "bytes, paper", "counted", "bytes, counted", "bytes, measured")
_RATIOS = ("× paper", "× counted", "× measured")  # times FedAvg's


def measured_cost_tables(measured: MeasuredCosts) -> dict[str, Table]:
    """Communication, storage and compute, by name."""
    return {
        "communication": _communication(measured),
        "storage": _storage(measured),
        "compute-client": _compute(
            measured,
            "Compute: a client in a round, gradients and all",
            ("client", "clients"),
            measured.sizes.participants,
        ),
        "compute-arithmetic": _arithmetic(measured),
        "compute-server": _compute(measured, "Compute: the server in a round", ("server", "server"), 1),
    }


def measured_cost_notes(measured: MeasuredCosts) -> list[str]:
    """What must be known to read the tables, in sentences."""
    sizes, found, source = measured.sizes, measured.algorithms, measured.provenance
    wall = {label: statistics.median(of.seconds["clients"].wall) for label, of in found.items()}
    plain = _both_ways(measured.baseline)
    engine, precision = (measured.settings.get(name) for name in ("engine", "precision"))
    versions = ", ".join(f"{name} {source.get(name)}" for name in ("adabest", "python", "torch"))
    return [
        f"{sizes.described}: n = {sizes.parameters:,}. K = {sizes.steps} local steps; |P| = {sizes.participants} of "
        f"|S| = {sizes.population} clients take part in a round; {sizes.precision}. "
        f"g = {sizes.gradient or 0:,} operations.",
        f"Measured: {measured.repeats} rounds of each algorithm, one of each after another, by the {engine} engine in "
        f"{precision} on {source.get('device')} with {source.get('threads')} threads of {source.get('processors')} "
        f"processors; {versions}; commit {source.get('commit')}.",
        f"Times are {_clock_in_words(measured)}. “×” is times FedAvg's: measured, the median of the ratios to its "
        "round of the same turn, and in brackets where that lies with a confidence of 95 % (of fewer than six rounds, "
        "the least and the greatest); for the paper and as counted, a ratio of operations, as if all took the same "
        "time. Times fit if the counted ratio lies within the brackets, else they are “more” or “less”. Bytes fit if "
        "they are those that were counted, to the last one.",
        "Bytes both ways, in units of FedAvg's: "
        + ", ".join(f"{label} {_both_ways(of) / plain:.2f}" for label, of in found.items())
        + ".",
        "By the clock, the clients of a round took (median, in seconds): "
        + ", ".join(f"{label} {seconds:.3g}" for label, seconds in wall.items())
        + ".",
    ]


def measured_cost_text(measured: MeasuredCosts) -> str:
    """All tables and notes as a piece of a page."""
    tables = [f"**{table.title}**\n\n{table.markdown()}" for table in measured_cost_tables(measured).values()]
    return "\n".join([*tables, "".join(f"- {note}\n" for note in measured_cost_notes(measured))])


def _communication(measured: MeasuredCosts) -> Table:
    model = measured.sizes.parameters * measured.sizes.dtype.itemsize
    rows = tuple(
        (label, way, *_bytes(cost), _models(cost.measured, model), _fits(cost))
        for label, of in measured.algorithms.items()
        for way, cost in of.sent.items()
    )
    head = ("algorithm", "way", *_BYTES, "models", "fits")
    return Table(head, rows, "Communication: each client of a round")


def _storage(measured: MeasuredCosts) -> Table:
    rows = tuple(
        (
            label,
            where,
            *_bytes(of.kept[where]),
            with_commas(of.kept[f"scored_{where}"].measured),
            with_commas(of.beside) if where == "server" else MISSING,
            _fits(of.kept[where], of.kept[f"scored_{where}"]),
        )
        for label, of in measured.algorithms.items()
        for where in ("client", "server")
    )
    head = ("algorithm", "where", *_BYTES, "for the scored model", "for metrics", "fits")
    return Table(head, rows, "Storage: each client that has taken part, and the server")


def _compute(measured: MeasuredCosts, title: str, names: tuple[str, str], share: int) -> Table:
    """Formulas, and time of one of ``share`` parties that worked in a round."""
    computed, part = names
    plain = measured.baseline.seconds[part]
    rows = []
    for label, of in measured.algorithms.items():
        cost, took, expected = of.computed[computed], of.seconds[part], of.expected[part]
        ratio = took.over(plain)
        clock = [with_interval(*took.over(plain, by_the_clock=True))] if plain.cpu else []
        fits = _within(expected["counted"], ratio) if of is not measured.baseline else MISSING
        milliseconds = _milliseconds(statistics.median(took.best_known) / share)
        formulas = (cost.paper or MISSING, cost.counted)
        rows.append((label, *formulas, milliseconds, *_ratios(expected, ratio), *clock, fits))
    clock = ["× by the clock"] if plain.cpu else []
    return Table(("algorithm", "paper", "counted", "ms", *_RATIOS, *clock, "fits"), tuple(rows), title)


def _arithmetic(measured: MeasuredCosts) -> Table:
    """A client's additions and multiplications on vectors, told apart from its gradients."""
    sizes = measured.sizes
    each = sizes.parameters * sizes.steps
    rows = []
    for label, of in measured.algorithms.items():
        cost, took = of.computed["client"], of.seconds["arithmetic"]
        ratio = took.over(measured.baseline.seconds["arithmetic"])
        nanoseconds = 1e9 * statistics.median(took.best_known) / (sizes.participants * each)
        share = 100 * took.over(of.seconds["clients"]).median
        rows.append(
            (
                label,
                two_places(None if cost.paper_value is None else cost.paper_value / each),
                two_places(cost.counted_value / each),
                two_places(nanoseconds),
                *_ratios(of.expected["arithmetic"], ratio),
                f"{share:.2g}",
            )
        )
    head = ("algorithm", "operations, paper", "operations, counted", "ns", *_RATIOS, "of a client's time %")
    return Table(head, tuple(rows), "Compute: a client's own arithmetic, a parameter and step")


def _ratios(expected: dict[str, float | None], measured: MedianInterval) -> tuple[str, str, str]:
    theirs, ours = (MISSING if value is None else f"{value:.4f}" for value in (expected["paper"], expected["counted"]))
    return theirs, ours, with_interval(*measured)


def _within(expected: float | None, measured: MedianInterval) -> str:
    """Whether what was expected lies where the median does."""
    if expected is None:
        return MISSING
    if measured.low <= expected <= measured.high:
        return "yes"
    return "more" if measured.low > expected else "less"


def _bytes(cost: Cost) -> tuple[str, ...]:
    paper = cost.paper or MISSING
    return (
        paper,
        with_commas(cost.paper_value),
        cost.counted,
        with_commas(cost.counted_value),
        with_commas(cost.measured),
    )


def _fits(*costs: Cost) -> str:
    return "yes" if all(cost.measured == cost.counted_value for cost in costs) else "no"


def _both_ways(of: MeasuredAlgorithm) -> float:
    return sum(cost.measured or 0 for cost in of.sent.values())


def _clock_in_words(measured: MeasuredCosts) -> str:
    return "CPU times, of all cores together" if measured.baseline.seconds["clients"].cpu else "by the clock"


def _models(sent: float | None, model: int) -> str:
    """Bytes in units of a model's."""
    return two_places(None if sent is None else sent / model)


def _milliseconds(seconds: float) -> str:
    milliseconds = 1e3 * seconds
    return f"{milliseconds:,.0f}" if milliseconds >= 100 else three_digits(milliseconds)
