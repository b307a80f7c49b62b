"""What is kept of measured costs: each number beside the paper's and the counted one, and where it comes from."""

import itertools
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from adabest.costs.sizes import Sizes
from adabest.errors import InputError
from adabest.runs.files.records import conform
from adabest.runs.files.sealed_file import read_sealed, write_sealed

EXPERIMENT = "costs"
_KEYS = {"experiment", "measured", "sizes", "settings", "repeats", "provenance"}
_PARTS = {
    "sent": ("down", "up"),
    "kept": ("client", "server", "scored_client", "scored_server"),
    "computed": ("client", "server"),
    "expected": ("clients", "arithmetic", "server"),
    "seconds": ("clients", "arithmetic", "server"),
}
_CONFIDENCE = 0.95
_DIGITS = 6  # significant ones, of seconds


@dataclass(frozen=True)
class Cost:
    """One cost of an algorithm.

    Attributes:
        counted: Our formula, as counted on small vectors.
        counted_value: What it comes to.
        paper: The paper's formula; None where it gives none.
        paper_value: What that comes to, in the same unit.
        measured: What real rounds came to; None where only time can tell.
    """

    counted: str
    counted_value: float
    paper: str | None
    paper_value: float | None
    measured: float | None = None


class MedianInterval(NamedTuple):
    """The median of measurements, and between what it lies with a confidence of 95 %."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Times:
    """Seconds, one figure a measured round.

    Attributes:
        wall: By the clock.
        cpu: Of all cores together; empty where the work was a GPU's.
    """

    wall: list[float]
    cpu: list[float]

    @property
    def best_known(self) -> list[float]:
        """CPU time where there is one, as other programs disturb it less, else the clock's."""
        return self.cpu or self.wall

    def over(self, other: "Times", *, by_the_clock: bool = False) -> MedianInterval:
        """How many times as long as the other, round by round."""
        mine, its = (times.wall if by_the_clock else times.best_known for times in (self, other))
        return median_interval([one / two for one, two in zip(mine, its, strict=True)])


@dataclass(frozen=True)
class MeasuredAlgorithm:
    """What rounds of one algorithm cost.

    Attributes:
        algorithm: Its label.
        sent: Bytes that each client of a round gets (``down``) and sends (``up``).
        kept: Bytes between rounds: of the algorithm (``client``, each, and ``server``, the cloud model not counted),
            and what the simulator keeps for the scored model (``scored_client``, each, and ``scored_server``).
        beside: Bytes that the simulator keeps of the server's past for metrics alone: θ̄ and h, where the algorithm
            doesn't keep them itself.
        computed: Operations in a round, gradients not counted, of a ``client`` and of the ``server``.
        expected: How many times as much as FedAvg's work it should be, by ``paper`` and as ``counted``: that of the
            ``clients``, gradients and all, their ``arithmetic`` without gradients, and the ``server``'s.
        seconds: What these three took.
    """

    algorithm: str
    sent: dict[str, Cost]
    kept: dict[str, Cost]
    beside: int
    computed: dict[str, Cost]
    expected: dict[str, dict[str, float | None]]
    seconds: dict[str, Times]

    @property
    def agrees(self) -> bool:
        """Whether all bytes are what was counted, to the last one."""
        return all(cost.measured == cost.counted_value for cost in [*self.sent.values(), *self.kept.values()])


@dataclass(frozen=True)
class MeasuredCosts:
    """Measured costs of several algorithms.

    Attributes:
        sizes: The sizes of what was measured.
        settings: The settings of the rounds.
        repeats: How many rounds of each algorithm were measured.
        algorithms: What was measured, by label; FedAvg is there.
        provenance: Command, commit, hardware and versions.
    """

    sizes: Sizes
    settings: dict[str, Any]
    repeats: int
    algorithms: dict[str, MeasuredAlgorithm]
    provenance: dict[str, Any]

    @property
    def baseline(self) -> MeasuredAlgorithm:
        """FedAvg."""
        return self.algorithms["fedavg"]

    def write(self, path: Path) -> None:
        """Writes all to a file, one line an algorithm, so that changes can be read."""
        rows = [json.dumps(_with_six_digits(asdict(of)), ensure_ascii=False) for of in self.algorithms.values()]
        rest = {name: getattr(self, name) for name in ("settings", "repeats", "provenance")}
        parts = {
            "experiment": json.dumps(EXPERIMENT),
            "measured": "[\n" + ",\n".join(rows) + "\n]",
            "sizes": json.dumps(asdict(self.sizes)),
            **{name: json.dumps(value, ensure_ascii=False) for name, value in rest.items()},
        }
        write_sealed(path, parts)

    @classmethod
    def read(cls, path: Path) -> "MeasuredCosts":
        """Reads a file that ``write`` wrote.

        Raises:
            InputError: If there is none, or it is something else.
        """
        content = read_sealed(path).content
        if set(content) != _KEYS or content["experiment"] != EXPERIMENT:
            raise InputError(f"{path} holds no measured costs, as `adabest reproduce costs` writes them")
        found: list[MeasuredAlgorithm] = conform(f"{path}: measured", content["measured"], list[MeasuredAlgorithm])
        sizes: Sizes = conform(f"{path}: sizes", content["sizes"], Sizes)
        settings: dict[str, Any] = conform(f"{path}: settings", content["settings"], dict[str, Any])
        repeats: int = conform(f"{path}: repeats", content["repeats"], int)
        source: dict[str, Any] = conform(f"{path}: provenance", content["provenance"], dict[str, Any])
        by_label = {of.algorithm: of for of in found}
        if "fedavg" not in by_label:
            raise InputError(f"{path} lacks fedavg, with which all others are compared")
        measured = cls(sizes, settings, repeats, by_label, source)
        for number, of in enumerate(found):
            _check_parts(f"{path}: measured[{number}]", of)
        for number, of in enumerate(found):
            _check_times(f"{path}: measured[{number}]", of, measured.baseline)
        if not all(cost.measured for cost in measured.baseline.sent.values()):
            raise InputError(f"{path}: fedavg should have sent something, with which the others' bytes are compared")
        return measured


def _check_parts(where: str, of: MeasuredAlgorithm) -> None:
    """Checks that there is all that tables show."""
    for part, names in _PARTS.items():
        missing = [name for name in names if name not in getattr(of, part)]
        if missing:
            raise InputError(f"{where}.{part} lacks {', '.join(missing)}")
    for name, ratios in of.expected.items():
        if set(ratios) != {"paper", "counted"}:
            raise InputError(f"{where}.expected.{name} should have paper and counted")


def _check_times(where: str, of: MeasuredAlgorithm, baseline: MeasuredAlgorithm) -> None:
    """Checks that times can be compared, round by round."""
    clients = baseline.seconds["clients"]
    lengths = (len(clients.wall), len(clients.wall) if clients.cpu else 0)
    for name, times in of.seconds.items():
        if not times.wall or (len(times.wall), len(times.cpu)) != lengths:
            raise InputError(f"{where}.seconds.{name} should have a figure for each round, as those of fedavg have")
        divides = of is baseline or name == "clients"
        if divides and not all(seconds > 0 for seconds in [*times.wall, *times.cpu]):
            raise InputError(f"{where}.seconds.{name} should all be above 0")


def median_interval(values: Sequence[float]) -> MedianInterval:
    """The median, and the two measurements between which the true one lies with a confidence of 95 %.

    Whatever the distribution, each measurement is above the true median as likely as below it. So many of the least and
    of the greatest can be left out that the chance to leave it out, too, stays within 5 %; of five or fewer, none.
    """
    in_order, count = sorted(values), len(values)
    chances = itertools.accumulate(2 * math.comb(count, number) / 2**count for number in range((count + 1) // 2))
    left_out = max(sum(chance <= 1 - _CONFIDENCE for chance in chances) - 1, 0)
    return MedianInterval(statistics.median(in_order), in_order[left_out], in_order[count - 1 - left_out])


def _with_six_digits(entry: dict[str, Any]) -> dict[str, Any]:
    """Seconds to six significant digits: more mean nothing."""
    seconds = {
        name: {kind: [float(f"{value:.{_DIGITS}g}") for value in values] for kind, values in times.items()}
        for name, times in entry["seconds"].items()
    }
    return {**entry, "seconds": seconds}
