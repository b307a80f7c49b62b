"""Tables of counted costs: the paper's formulas beside ours, and notes on how to read them."""

from collections.abc import Callable, Mapping

from adabest.costs.count import AlgorithmCosts, CountedCosts
from adabest.costs.formula import Formula
from adabest.report.numbers import MISSING, with_commas
from adabest.report.table import Table


def cost_tables(costs: CountedCosts) -> dict[str, Table]:
    """The three tables of the paper, each in two halves, by name."""
    return {
        "compute-client": _compute_table(
            costs,
            "1. Compute: a client in a round",
            lambda of: of.paper.client,
            lambda of: of.client.arithmetic,
            lambda of: of.client.arithmetic + of.guards.arithmetic,
        ),
        "compute-server": _compute_table(
            costs,
            "1. Compute: the server in a round",
            lambda of: of.paper.server,
            lambda of: of.server.arithmetic,
            lambda of: of.server.arithmetic,
        ),
        "storage-client": _byte_table(
            costs, "2. Storage: each client", lambda of: of.paper.client_storage, lambda of: of.client_bytes
        ),
        "storage-server": _byte_table(
            costs, "2. Storage: the server", lambda of: of.paper.server_storage, lambda of: of.server_bytes
        ),
        "communication-down": _byte_table(
            costs, "3. Communication: to each client of a round", lambda of: of.paper.down, lambda of: of.down
        ),
        "communication-up": _byte_table(
            costs, "3. Communication: from each client of a round", lambda of: of.paper.up, lambda of: of.up
        ),
    }


def cost_notes(costs: CountedCosts) -> list[str]:
    """Notes on how to read the tables, in sentences."""
    sizes, counted, simulator = costs.sizes, costs.algorithms, costs.baseline
    values = sizes.values()
    gradient = "g isn't known without a model"
    if sizes.gradient is not None:
        gradient = (
            f"g = {sizes.gradient:,} operations, of matrix products and convolutions alone, forward and backward; a "
            f"client's {sizes.steps} gradients are {sizes.steps * sizes.gradient:,}"
        )
    private = ""
    if any("q" in (of.down + of.up).symbols() for of in counted.values()):
        private = " q, of them the private ones, isn't known without a model and counts 0."
    both_ways = {label: (of.down + of.up).value(values) for label, of in counted.items()}
    plain = (simulator.down + simulator.up).value(values)
    latest = sizes.population * simulator.scored_client_bytes.value(values)
    return [
        "Paper: Varno et al., ECCV 2022, appendix “Algorithmic Costs”, its products collected by symbol. Ours: counted "
        "while the algorithm's own functions run.",
        f"n = {sizes.parameters:,} parameters{sizes.described and f': {sizes.described}'}. K = {sizes.steps} local "
        f"steps; |P| = {sizes.participants} of |S| = {sizes.population} clients take part in a round; "
        f"{sizes.precision}.{private}",
        "s is an addition or subtraction, m a multiplication or division. “Operations” are both together, without the "
        f"gradients. {gradient}. “Over FedAvg” has them, and clipping and weight decay.",
        "In storage and communication the paper's formulas count numbers, and ours bytes.",
        "Clipping and weight decay, which the paper leaves out, add to a client's: "
        + _grouped({label: _with_other(of.guards.arithmetic, of.guards.other) for label, of in counted.items()}),
        "Neither s nor m, on vectors: on a client "
        + _grouped({label: str(of.client.other) for label, of in counted.items()})
        + " On the server "
        + _grouped({label: str(of.server.other) for label, of in counted.items()}),
        "Operations on single numbers, on a client and on the server: "
        + _grouped({label: _single_numbers(of, values) for label, of in counted.items()}),
        "Bytes both ways, in units of FedAvg's: "
        + _grouped({label: f"{float(value / plain):.2f}" for label, value in both_ways.items()}),
        "For the scored model, which no algorithm needs, the simulator keeps "
        f"{simulator.scored_client_bytes} bytes of each client that has taken part ({with_commas(latest)} of all |S|) "
        f"and {simulator.scored_server_bytes} for their sum, and computes "
        f"{_with_other(simulator.scored.arithmetic, simulator.scored.other)} in a round.",
    ]


def cost_text(costs: CountedCosts) -> str:
    """All tables and notes as a piece of a page."""
    tables = [f"**{table.title}**\n\n{table.markdown()}" for table in cost_tables(costs).values()]
    return "\n".join([*tables, "".join(f"- {note}\n" for note in cost_notes(costs))])


def _compute_table(
    costs: CountedCosts,
    title: str,
    theirs: Callable[[AlgorithmCosts], Formula | None],
    ours: Callable[[AlgorithmCosts], Formula],
    whole: Callable[[AlgorithmCosts], Formula],
) -> Table:
    """Half a table of operations; ``whole`` is what is compared with FedAvg's."""
    rows = tuple(
        (
            label,
            *_formula_and_value(theirs(counted), costs),
            *_formula_and_value(ours(counted), costs),
            _percent_over_fedavg(whole(counted), whole(costs.baseline), costs),
        )
        for label, counted in costs.algorithms.items()
    )
    return Table(("algorithm", "paper", "operations, paper", "ours", "operations, ours", "over FedAvg %"), rows, title)


def _byte_table(
    costs: CountedCosts,
    title: str,
    theirs: Callable[[AlgorithmCosts], Formula | None],
    ours: Callable[[AlgorithmCosts], Formula],
) -> Table:
    """Half a table of bytes, where the paper counts numbers."""
    rows = tuple(
        (
            label,
            *_formula_and_value(theirs(counted), costs, costs.sizes.dtype.itemsize),
            *_formula_and_value(ours(counted), costs),
        )
        for label, counted in costs.algorithms.items()
    )
    return Table(("algorithm", "paper", "bytes, paper", "ours", "bytes, ours"), rows, title)


def _formula_and_value(formula: Formula | None, costs: CountedCosts, unit: int = 1) -> tuple[str, str]:
    """A formula and its value, in units of which the formula counts one."""
    return (
        (MISSING, MISSING)
        if formula is None
        else (str(formula), with_commas(unit * formula.value(costs.sizes.values())))
    )


def _percent_over_fedavg(mine: Formula, plain: Formula, costs: CountedCosts) -> str:
    """How much more it is than FedAvg's, if it is known what a gradient takes."""
    gradient = costs.sizes.gradient
    if "G" in mine.symbols() or ("g" in mine.symbols() and gradient is None):
        return MISSING
    values = {**costs.sizes.values(), "g": gradient or 0}
    return f"{100 * float(mine.value(values) / plain.value(values) - 1):.3g}"


def _single_numbers(counted: AlgorithmCosts, values: Mapping[str, int]) -> str:
    client = (counted.client.numbers + counted.guards.numbers).value(values)
    return f"{with_commas(client)} and {with_commas(counted.server.numbers.value(values))}"


def _with_other(arithmetic: Formula, other: Formula) -> str:
    return f"{arithmetic}, and {other}" if other else str(arithmetic)


def _grouped(texts: Mapping[str, str]) -> str:
    """Texts, each once and followed by the algorithms that have it."""
    groups: dict[str, list[str]] = {}
    for label, text in texts.items():
        groups.setdefault(text, []).append(label)
    if len(groups) == 1:
        return f"{next(iter(groups))}."
    return "; ".join(f"{text} ({', '.join(labels)})" for text, labels in groups.items()) + "."
