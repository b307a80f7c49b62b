"""What real rounds cost: bytes to the last one, and times of the right things."""

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
from tiny_runs import TINY
from torch import Tensor

from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.base import Algorithm, ClientContext, Correction, Replies, ServerContext, Update
from adabest.algorithms.catalog import CORE
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.feddane import FedDane
from adabest.algorithms.forms import Model, Vector
from adabest.costs import round_timing, section_timer
from adabest.costs.cost_file import Cost, MeasuredAlgorithm, MeasuredCosts, MedianInterval, Times, median_interval
from adabest.costs.count import count_costs
from adabest.costs.measured_tables import measured_cost_notes, measured_cost_tables, measured_cost_text
from adabest.costs.measurement import _settings, measure_costs
from adabest.costs.operations import OperationCounter
from adabest.costs.section_timer import Spent
from adabest.costs.sizes import Sizes
from adabest.engine.state import State
from adabest.errors import InputError
from adabest.runs.build import build_federation
from adabest.runs.settings.resolution import resolve

NAMES = list(CORE)
N = 36 * 8 + 8 + 8 * 3 + 3  # the parameters of the tiny model, of 4 bytes each
MODEL = 4 * N
STEPS, PARTICIPANTS = 4, 3
SETTINGS = {name: value for name, value in TINY.items() if name not in ("rounds", "evaluate_every")}


def measure(*algorithms: str | Algorithm, repeats: int = 1, **changes: Any) -> MeasuredCosts:
    return measure_costs(SETTINGS | changes, repeats, list(algorithms) or None)


@functools.cache
def everything() -> MeasuredCosts:
    return measure(repeats=2, engine="batched")


class Hand(NamedTuple):
    """Bytes by hand: θ is MODEL, h or h_i another, n_i, n̄ and w_i take 4, counts, β and t' take 8."""

    down: int
    up: int
    client: int
    server: int
    beside: int


BY_HAND = {
    "fedavg": Hand(MODEL, MODEL + 4, 0, 0, 0),
    "fedprox": Hand(MODEL, MODEL + 4, 0, 0, 0),
    "scaffold": Hand(2 * MODEL + 4, 2 * MODEL, MODEL, MODEL + 16, 0),
    "scaffold-m": Hand(2 * MODEL + 4, MODEL + 8, MODEL, MODEL + 16, 0),
    "scaffold-gradient": Hand(3 * MODEL + 4, 2 * MODEL + 4, 2 * MODEL, MODEL + 16, 0),
    "feddyn": Hand(MODEL + 4, MODEL, MODEL, MODEL + 16, MODEL),  # θ̄, of which θ is h away
    "adabest": Hand(MODEL + 4, MODEL + 4, MODEL + 8, MODEL + 24, MODEL),  # h, which it can do without
}


class TestBytes:
    def test_the_list_is_whole(self) -> None:
        assert list(BY_HAND) == NAMES == list(everything().algorithms)

    @pytest.mark.parametrize("name", NAMES)
    def test_measured_bytes_are_those_by_hand(self, name: str) -> None:
        found, expected = everything().algorithms[name], BY_HAND[name]
        assert {way: cost.measured for way, cost in found.sent.items()} == {"down": expected.down, "up": expected.up}
        assert {where: cost.measured for where, cost in found.kept.items()} == {
            "client": expected.client,
            "server": expected.server,
            "scored_client": MODEL,
            "scored_server": 2 * MODEL,  # a sum in float64
        }
        assert found.beside == expected.beside

    @pytest.mark.parametrize("name", NAMES)
    def test_measured_bytes_are_those_counted(self, name: str) -> None:
        found = everything().algorithms[name]
        assert found.agrees
        counted = count_costs([name], everything().sizes).algorithms[name]
        values = everything().sizes.values()
        assert (found.sent["down"].counted, found.sent["down"].counted_value) == (
            str(counted.down),
            counted.down.value(values),
        )
        assert found.kept["server"].counted_value == counted.server_bytes.value(values)

    def test_both_engines_and_double_precision_agree_with_the_count(self) -> None:
        plain = measure("adabest", engine="reference").algorithms["adabest"]
        assert plain.sent == everything().algorithms["adabest"].sent
        double = measure("adabest", precision="float64").algorithms["adabest"]
        assert double.agrees
        assert double.sent["up"] == Cost("8n + 8", 8 * N + 8, "n", 8 * N, 8 * N + 8)
        assert double.kept["client"].measured == 8 * N + 8

    def test_options_from_the_settings_count(self) -> None:
        """Two means over three rounds are kept where β may decay."""
        found = measure("adabest", beta_decay=0.5, patience=3).algorithms["adabest"]
        assert found.agrees
        assert found.kept["server"].measured == MODEL + 24 + 2 * 3 * 8

    def test_several_exchanges_add_up(self) -> None:
        found = measure(FedDane()).algorithms["feddane"]
        assert found.agrees
        assert found.sent["down"].measured == 3 * MODEL
        assert found.expected["clients"] == {"paper": None, "counted": None}  # a gradient over all samples isn't g

    def test_an_algorithm_that_sends_more_than_was_counted_is_found_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def count_another(algorithms: Any, sizes: Sizes, named: Any) -> Any:
            counted = count_costs([FedAvg()], sizes)
            return replace(counted, algorithms={"chatty": counted.algorithms["fedavg"]})

        monkeypatch.setattr("adabest.costs.measurement.count_costs", count_another)
        measured = measure(Chatty(), repeats=3)
        found = measured.algorithms["chatty"]
        assert not found.agrees
        assert found.sent["down"].counted_value == MODEL
        assert found.sent["down"].measured == MODEL * 2
        rows = {row[:2]: row for row in measured_cost_tables(measured)["communication"].rows}
        assert [rows["chatty", way][-1] for way in ("down", "up")] == ["no", "yes"]
        assert rows["chatty", "down"][-3:] == ("2,584", "2.00", "no")


@dataclass(frozen=True)
class Chatty(FedAvg):
    """FedAvg that sends everything twice."""

    class Message(NamedTuple):
        cloud: Model
        again: Vector

    def downlink(self, server: Any, cloud: Tensor, context: ServerContext) -> Any:
        return self.Message(cloud, cloud)


class TestSizes:
    def test_sizes_are_those_of_the_rounds(self) -> None:
        sizes = everything().sizes
        assert (sizes.parameters, sizes.steps, sizes.participants, sizes.population) == (N, STEPS, PARTICIPANTS, 8)
        assert sizes.described == "mlp,hidden=8, inputs of 1x6x6, 3 classes, batches of 8"
        # A matrix product forward and two backward, but none towards the inputs.
        assert sizes.gradient == 2 * 8 * (2 * 36 * 8 + 3 * 8 * 3)

    def test_expected_ratios_are_those_by_hand(self) -> None:
        """K(g + 2ns + nm) + 2ns + 2nm and K(ns + 2nm) for clipping and decay, over K(g + 2ns + 3nm)."""
        found, gradient = everything().algorithms["adabest"], everything().sizes.gradient or 0
        plain, mine = STEPS * 5 * N, STEPS * 6 * N + 4 * N
        assert found.expected["arithmetic"]["counted"] == mine / plain
        assert found.expected["clients"]["counted"] == (STEPS * gradient + mine) / (STEPS * gradient + plain)
        assert found.expected["arithmetic"]["paper"] == (STEPS * 3 + 2) / (STEPS * 2)
        assert found.expected["server"] == {"paper": 6 / 3, "counted": (2 * 3 + 4) / (2 * 3 + 1)}
        assert everything().algorithms["scaffold"].expected["server"]["paper"] is None
        assert measure("adabest", clip=0.0).algorithms["adabest"].expected["arithmetic"]["counted"] == (3 * 4 + 4) / 8

    def test_by_default_a_small_federation_on_a_cpu_and_the_papers_on_a_gpu(self) -> None:
        small, large = _settings({}), _settings({"device": "cuda:1", "clients": 50, "epochs": None})
        assert (small["participation"], small["epochs"], small["clients"]) == (0.04, 1, 100)
        assert (large["participation"], large["epochs"], large["clients"]) == (0.1, 5, 50)
        assert small["dataset"].startswith("synthetic,samples=45000,shape=3x32x32,")


class TestTimes:
    def test_a_measured_round_has_one_figure(self) -> None:
        for found in everything().algorithms.values():
            assert list(found.seconds) == ["clients", "arithmetic", "server"]
            for times in found.seconds.values():
                assert len(times.wall) == len(times.cpu) == 2
                assert min(times.wall) > 0

    def test_the_engine_the_server_and_plain_clients_are_timed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The message takes 1 s, the server's step 10, and a client's start 100: once for all that are stacked."""
        monkeypatch.setattr(Slow, "now", 0.0)
        for module in (section_timer, round_timing):
            monkeypatch.setattr(module, "read_clocks", lambda device: Spent(Slow.now, 2 * Slow.now))
        found = measure(Slow(), repeats=2, engine="batched").algorithms["slow"].seconds
        assert found == {
            "clients": Times([100.0] * 2, [200.0] * 2),
            "arithmetic": Times([100.0 * PARTICIPANTS] * 2, [200.0 * PARTICIPANTS] * 2),
            "server": Times([11.0] * 2, [22.0] * 2),
        }

    @pytest.mark.parametrize("name", NAMES)
    def test_a_clients_and_the_servers_arithmetic_is_what_is_counted(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """To the last operation, on vectors and on single numbers."""
        counter = OperationCounter()
        for module in (section_timer, round_timing):
            monkeypatch.setattr(module, "read_clocks", lambda device: Spent(counter.counts.total() + 1e-9))
        with counter:
            measured = measure(name)
        found, counted = measured.algorithms[name], count_costs([name], measured.sizes).algorithms[name]
        client, server = (
            sum(float((of.arithmetic + of.other + of.numbers).value(measured.sizes.values())) for of in parts)
            for parts in ([counted.client, counted.guards], [counted.server])
        )
        assert found.seconds["arithmetic"].wall == [pytest.approx(PARTICIPANTS * client)]
        assert found.seconds["server"].wall == [pytest.approx(server)]

    @pytest.mark.parametrize("algorithm", [AdaBest(), FedDane()])
    def test_a_timed_round_leads_to_what_a_round_leads_to(
        self, algorithm: Algorithm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        timed: list[State] = []
        original = round_timing.TimedFederation.round

        def spied(self: round_timing.TimedFederation, *, counts: bool, evaluate: bool) -> None:
            original(self, counts=counts, evaluate=evaluate)
            timed.append(self._simulation.state)

        monkeypatch.setattr(round_timing.TimedFederation, "round", spied)
        measure(algorithm, "fedavg", repeats=2)
        config, components = resolve(_settings(SETTINGS) | {"algorithm": algorithm, "rounds": 3})
        simulation = build_federation(config, components).simulation
        for _ in range(3):
            simulation.step()
        (last,) = [state for state in timed if state.round == 3 and type(state.server) is type(simulation.state.server)]
        for one, other in zip(
            [last.cloud, *last.server], [simulation.state.cloud, *simulation.state.server], strict=True
        ):
            assert torch.equal(one, other)

    def test_algorithms_take_turns(self, monkeypatch: pytest.MonkeyPatch) -> None:
        played: list[tuple[str, bool, bool]] = []
        original = round_timing.TimedFederation.round

        def spied(self: round_timing.TimedFederation, *, counts: bool, evaluate: bool) -> None:
            played.append((self.label, counts, evaluate))
            original(self, counts=counts, evaluate=evaluate)

        monkeypatch.setattr(round_timing.TimedFederation, "round", spied)
        measure("fedavg", "feddyn", "adabest", repeats=3)
        labels = [label for label, _, _ in played]
        assert labels[:3] == labels[9:] == ["fedavg", "feddyn", "adabest"]
        assert labels[3:6] == ["feddyn", "adabest", "fedavg"]
        assert [counts for _, counts, _ in played] == [False] * 3 + [True] * 9
        assert [evaluate for _, _, evaluate in played] == [False] * 9 + [True] * 3

    def test_cpu_time_is_compared_where_there_is_one(self) -> None:
        one, two = Times([2.0, 9.0, 4.0], [3.0, 3.0, 1.0]), Times([1.0, 3.0, 4.0], [1.0, 2.0, 1.0])
        assert one.over(two) == MedianInterval(1.5, 1.0, 3.0)
        assert replace(one, cpu=[]).over(replace(two, cpu=[])) == MedianInterval(2.0, 1.0, 3.0)
        assert one.over(two, by_the_clock=True) == MedianInterval(2.0, 1.0, 3.0)


@dataclass(frozen=True)
class Slow(FedAvg):
    """FedAvg whose functions take their time, on a clock of their own."""

    now: ClassVar[float] = 0.0

    def downlink(self, server: Any, cloud: Tensor, context: ServerContext) -> Any:
        Slow.now += 1
        return super().downlink(server, cloud, context)

    def client_start(self, client: Any, message: Any, context: ClientContext) -> Correction:
        Slow.now += 100
        return super().client_start(client, message, context)

    def server_step(self, server: Any, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        Slow.now += 10
        return super().server_step(server, cloud, replies, context)


@pytest.mark.parametrize(
    ("count", "low"),
    [(1, 1), (2, 1), (5, 1), (6, 1), (8, 1), (9, 2), (11, 2), (12, 3), (20, 6)],
)
def test_the_interval_of_a_median(count: int, low: int) -> None:
    """The places that tables of the sign test have for 95 %; the first and the last where there are too few."""
    values = [float(number) for number in range(count, 0, -1)]
    assert median_interval(values) == MedianInterval((count + 1) / 2, low, count + 1 - low)


class TestFile:
    def test_round_trip(self, tmp_path: Path) -> None:
        everything().write(tmp_path / "costs.json")
        found = MeasuredCosts.read(tmp_path / "costs.json")
        found.write(tmp_path / "again.json")
        assert (tmp_path / "again.json").read_bytes() == (tmp_path / "costs.json").read_bytes()
        assert (found.sizes, found.settings, found.repeats) == (everything().sizes, everything().settings, 2)
        for label, of in everything().algorithms.items():
            again = found.algorithms[label]
            assert replace(again, seconds=of.seconds) == of
            assert again.seconds["server"].wall == pytest.approx(of.seconds["server"].wall, rel=1e-5)
        assert measured_cost_tables(found)["storage"] == measured_cost_tables(everything())["storage"]

    def test_a_file_names_its_settings_and_provenance(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sys.argv", ["/somewhere/bin/adabest", "reproduce", "costs", "--data-dir", "/my/data"])
        measure("fedavg", data_dir=str(tmp_path)).write(tmp_path / "costs.json")
        content = json.loads((tmp_path / "costs.json").read_text(encoding="utf-8"))
        assert content["experiment"] == "costs"
        assert [entry["algorithm"] for entry in content["measured"]] == ["fedavg"]
        assert content["provenance"].items() >= {"command": "adabest reproduce costs", "device": "cpu"}.items()
        assert content["provenance"].keys() >= {"commit", "torch", "adabest", "python", "threads", "processors"}
        assert content["settings"].items() >= {"participation": 0.4, "precision": "float32"}.items()
        assert str(tmp_path) not in (tmp_path / "costs.json").read_text(encoding="utf-8")

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda content: content | {"experiment": "table1"}, "holds no measured costs"),
            (lambda content: [content], "should hold a JSON object"),
            (lambda content: content | {"more": 1}, "holds no measured costs"),
            (
                lambda content: content | {"measured": [{"algorithm": "fedavg"}]},
                "this is no measuredalgorithm: it lacks sent",
            ),
            (lambda content: content | {"sizes": {"n": 1}}, "this is no sizes: it lacks parameters"),
            (lambda content: content | {"measured": content["measured"][1:]}, "lacks fedavg"),
        ],
    )
    def test_another_file_is_refused(self, change: Callable[[Any], Any], message: str, tmp_path: Path) -> None:
        everything().write(tmp_path / "costs.json")
        content = json.loads((tmp_path / "costs.json").read_text(encoding="utf-8"))
        del content["sha256"]  # by which every change is refused before a field is looked at
        (tmp_path / "costs.json").write_text(json.dumps(change(content)))
        with pytest.raises(InputError, match=rf"costs\.json.* {message}"):
            MeasuredCosts.read(tmp_path / "costs.json")

    def test_a_changed_file_is_refused(self, tmp_path: Path) -> None:
        everything().write(tmp_path / "costs.json")
        content = json.loads((tmp_path / "costs.json").read_text(encoding="utf-8"))
        (tmp_path / "costs.json").write_text(json.dumps(content, indent=4))
        assert MeasuredCosts.read(tmp_path / "costs.json").repeats == content["repeats"], "its layout is no matter"
        (tmp_path / "costs.json").write_text(json.dumps(content | {"repeats": content["repeats"] + 1}))
        with pytest.raises(InputError, match=r"costs\.json was changed since it was written"):
            MeasuredCosts.read(tmp_path / "costs.json")

    def test_no_file_and_no_json(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"can't read .*nothing.json: No such file"):
            MeasuredCosts.read(tmp_path / "nothing.json")
        (tmp_path / "text.json").write_text("costs")
        with pytest.raises(InputError, match=r"text\.json isn't JSON"):
            MeasuredCosts.read(tmp_path / "text.json")


class TestBadInput:
    @pytest.mark.parametrize("repeats", [0, -1, True, 1.5, "3"])
    def test_repeats(self, repeats: Any) -> None:
        with pytest.raises(InputError, match=r"repeats = .*: it must be a whole number above 0"):
            measure(repeats=repeats)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"rounds": 3}, "leave `rounds` out"),
            ({"algorithm": "adabest"}, "takes `algorithms`"),
            ({"clinets": 3}, "did you mean 'clients'"),
            ({"sampler": "bernoulli"}, "rounds with equally many clients"),
            ({"churn": 0.1}, "rounds with equally many clients"),
            ({"schedule": ["2:leave:0-3"]}, "rounds with equally many clients"),
            ({"unbalance": 0.5}, "clients make from 2 to . local steps a round"),
            ({"learning_rate": 1e30}, "fedavg diverges in round .*use a smaller learning_rate"),
        ],
    )
    def test_settings(self, changes: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            measure("fedavg", **changes)

    def test_algorithms(self) -> None:
        with pytest.raises(InputError, match="algorithms should be a list"):
            measure_costs(SETTINGS, 1, [])
        with pytest.raises(InputError, match="did you mean 'adabest'"):
            measure("adabset")

    def test_unequal_clients_with_equal_steps_are_welcome(self) -> None:
        assert measure("adabest", unbalance=0.5, local_steps="mean").algorithms["adabest"].agrees

    def test_the_baseline_joins(self) -> None:
        assert list(measure("adabest,beta=0.5").algorithms) == ["fedavg", "adabest,beta=0.5"]


class TestTables:
    """Made by hand: n = 10, K = 2, |P| = 4; FedAvg's clients take 4 s, the other's 4.4 or 4.8."""

    @pytest.fixture
    def measured(self) -> MeasuredCosts:
        def of(name: str, sent: int, seconds: list[float], expected: float | None) -> MeasuredAlgorithm:
            share: dict[str, float | None] = {"paper": None, "counted": expected}
            return MeasuredAlgorithm(
                name,
                sent={"down": Cost("4n", 40, "n", 40, sent), "up": Cost("4n + 4", 44, None, None, 44)},
                kept={
                    "client": Cost("4n", 40, "n", 40, 40),
                    "server": Cost("4n", 40, "n", 40, 40),
                    "scored_client": Cost("4n", 40, None, None, 40),
                    "scored_server": Cost("8n", 80, None, None, 80 if sent == 40 else 81),
                },
                beside=7,
                computed={"client": Cost("K(g + 3ns)", 60, "Kg", 20), "server": Cost("|P|ns", 40, None, None)},
                expected={"clients": share, "arithmetic": share, "server": share},
                seconds={
                    "clients": Times([1.0] * len(seconds), [4 * value for value in seconds]),
                    "arithmetic": Times([1.0] * len(seconds), [value * 1e-6 for value in seconds]),
                    "server": Times([1.0] * len(seconds), [value * 1e-3 for value in seconds]),
                },
            )

        sizes = Sizes(10, 2, 4, 8, gradient=1000, described="a model")
        found = {"fedavg": of("fedavg", 40, [1.0, 1.0], 1.0), "other": of("other", 80, [1.1, 1.2], 1.15)}
        settings = {"engine": "batched", "precision": "bf16"}
        return MeasuredCosts(sizes, settings, 2, found, {"device": "cpu", "commit": "abc", "threads": 2})

    def test_communication_and_storage(self, measured: MeasuredCosts) -> None:
        tables = measured_cost_tables(measured)
        assert tables["communication"].rows == (
            ("fedavg", "down", "n", "40", "4n", "40", "40", "1.00", "yes"),
            ("fedavg", "up", "–", "–", "4n + 4", "44", "44", "1.10", "yes"),
            ("other", "down", "n", "40", "4n", "40", "80", "2.00", "no"),
            ("other", "up", "–", "–", "4n + 4", "44", "44", "1.10", "yes"),
        )
        assert tables["storage"].rows[2:] == (
            ("other", "client", "n", "40", "4n", "40", "40", "40", "–", "yes"),
            ("other", "server", "n", "40", "4n", "40", "40", "81", "7", "no"),
        )

    def test_compute(self, measured: MeasuredCosts) -> None:
        tables = measured_cost_tables(measured)
        assert tables["compute-client"].rows == (
            ("fedavg", "Kg", "K(g + 3ns)", "1,000", "–", "1.0000", "1.000", "1.000", "–"),
            ("other", "Kg", "K(g + 3ns)", "1,150", "–", "1.1500", "1.150 (1.100–1.200)", "1.000", "yes"),
        )
        assert tables["compute-server"].rows[1] == (
            "other", "–", "|P|ns", "1.15", "–", "1.1500", "1.150 (1.100–1.200)", "1.000", "yes"
        )  # fmt: skip
        # 1.15 µs of 4 clients with 10 parameters and 2 steps each
        assert tables["compute-arithmetic"].rows[1] == (
            "other", "1.00", "3.00", "14.38", "–", "1.1500", "1.150 (1.100–1.200)", "2.5e-05"
        )  # fmt: skip

    @pytest.mark.parametrize(("expected", "word"), [(1.0, "more"), (1.1, "yes"), (1.3, "less"), (None, "–")])
    def test_a_time_outside_its_interval_is_more_or_less(
        self, expected: float | None, word: str, measured: MeasuredCosts
    ) -> None:
        other = measured.algorithms["other"]
        other.expected["server"] = {"paper": None, "counted": expected}
        assert measured_cost_tables(measured)["compute-server"].rows[1][-1] == word

    def test_notes_and_text(self, measured: MeasuredCosts) -> None:
        notes = " ".join(measured_cost_notes(measured))
        for part in (
            "a model: n = 10",
            "K = 2",
            "|P| = 4 of |S| = 8",
            "2 rounds",
            "on cpu",
            "commit abc",
            "other 1.48",
        ):
            assert part in notes
        assert "CPU times" in notes
        text = measured_cost_text(measured)
        assert text.startswith("**Communication: each client of a round**\n\n| algorithm | way |")
        assert text.count("\n**") == 4
        on_gpu = {
            label: replace(of, seconds={name: replace(times, cpu=[]) for name, times in of.seconds.items()})
            for label, of in measured.algorithms.items()
        }
        there = replace(measured, algorithms=on_gpu)
        assert "Times are by the clock" in " ".join(measured_cost_notes(there))
        assert measured_cost_tables(there)["compute-server"].rows[1][3:] == ("1,000", "–", "1.1500", "1.000", "less")
