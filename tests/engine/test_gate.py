"""The gate for replies: each kind of bad reply is left out and told, and the rest of the round is as without it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quadratics import random_quadratics
from recording import make
from replies import reduce_pairs
from side_by_side import Case, StackedEngine, simulate
from small import assert_same, frozen
from spoiled import HARMS, Harm, negative, spoiled
from torch import Tensor

from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.base import Algorithm, ClientContext
from adabest.algorithms.catalog import CORE
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.feddane import FedDane
from adabest.algorithms.forms import Count, Vector
from adabest.algorithms.mifa import Mifa
from adabest.algorithms.scaffold_gradient import ScaffoldGradient
from adabest.engine.client_side import states_by_client
from adabest.engine.gate import MOST_SKIPPED, REMEMBERED_NORMS, Columns, finite_if_all_are, inspect, judge, remember
from adabest.engine.gate_rules import Gate, NormLimit
from adabest.engine.interface import Answers, Request
from adabest.engine.lanes import Lane, advance, advance_together
from adabest.engine.local_step import LocalTraining
from adabest.engine.reference import ReferenceEngine
from adabest.engine.simulation import Rules, Simulation
from adabest.errors import Diverged, InputError
from adabest.federation.roster import Attendance
from adabest.runs.build import make_batched_engine
from adabest.tasks.base import no_heartbeat

CASE = Case("mlp,hidden=5", (1, 5, 5))  # its eight clients differ in their numbers of samples
TASK = CASE.task()
COHORT = np.array([0, 2, 3, 5, 6])
ENGINES: dict[str, Callable[..., Any]] = {
    "reference": ReferenceEngine,
    "cores": make_batched_engine,
    "stacked": StackedEngine,
}
every_engine = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
# Those with one exchange a round; TestTwoPhases has the others.
every_algorithm = pytest.mark.parametrize("name", [name for name in sorted(CORE) if len(make(name).phases) == 1])
every_value_harm = pytest.mark.parametrize("harm", ["nan", "inf", "far", "negative"])
LIMITED = Gate(limit=NormLimit(1e3))


def harm_for(name: str, algorithm: Algorithm) -> Harm:
    """A harm; a negative weight only where an algorithm has weights."""
    if name != "negative":
        return HARMS[name]
    weights = Columns.of(algorithm, 0, NormLimit()).weights
    if not weights:
        pytest.skip(f"no field of {type(algorithm).__name__}'s replies is a weight")
    return negative(weights[0])


class Watched:
    """An engine that remembers the last answers."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.asked: list[Request] = []
        self.answers: list[Answers] = []

    def exchange(self, requests: Sequence[Request]) -> list[Answers]:
        answers: list[Answers] = self._engine.exchange(requests)
        self.asked += requests
        self.answers += answers
        return answers

    def evaluate(self, requests: Any) -> Any:
        return self._engine.evaluate(requests)


class Watching(NamedTuple):
    """A federation, and its engine."""

    simulation: Simulation
    engine: Watched


def watch(algorithm: Algorithm, engine: Callable[..., Any], gate: Gate = LIMITED, **rules: Any) -> Watching:
    watched = Watched(engine(no_heartbeat))
    return Watching(simulate(algorithm, CASE, lambda _: watched, rules=Rules(gate=gate, **rules)), watched)


def make_rounds(simulation: Simulation, count: int) -> None:
    for _ in range(count):
        simulation.step()


def averaged_model(simulation: Simulation) -> Tensor:
    model = simulation.averaged_model()
    assert model is not None
    return model


def rows(stacked: Any) -> list[Any]:
    return [type(stacked)(*row) for row in zip(*(field.unbind() for field in stacked), strict=True)]


# --- One bad reply among others ---------------------------------------------------------------------------------------


@every_engine
@every_algorithm
@every_value_harm
def test_a_bad_reply_is_left_out_and_nothing_else_changes(name: str, harm: str, engine: Callable[..., Any]) -> None:
    algorithm = make(name)
    kind = harm_for(harm, algorithm)
    bad = {2: [2, 6]}
    simulation, watched = watch(spoiled(algorithm, TASK, kind, bad), engine)
    simulation.step(cohort=COHORT[:4])  # so client 6 is new in the next round, and client 2 isn't
    before, kept = simulation.state, {client: simulation.client_state(client) for client in COHORT.tolist()}
    latest = {client: simulation.client_model(client) for client in COHORT.tolist()}
    kept, latest = (dict(zip(of, map(_copied, of.values()), strict=True)) for of in (kept, latest))
    metrics = simulation.step(cohort=COHORT, evaluate=True)
    after, answers = simulation.state, watched.answers[-1]

    accepted = [client for client in COHORT.tolist() if client not in bad[2]]
    replies = dict(zip(answers.clients, rows(answers.replies), strict=True))
    reduced = reduce_pairs(algorithm.means, [(client, replies[client]) for client in accepted])
    assert reduced.count == 3
    expected = algorithm.server_step(before.server, before.cloud, reduced, simulation.context(2))
    assert torch.equal(after.cloud, expected.cloud)
    assert torch.equal(after.aggregate, expected.aggregate)
    assert (after.h is None) == (expected.h is None)
    assert after.h is None or (expected.h is not None and torch.equal(after.h, expected.h))
    assert all(map(torch.equal, after.server, expected.server))

    states = states_by_client(answers)
    for client in COHORT.tolist():
        unsound = client in bad[2] and harm in ("nan", "inf")
        expected_state = kept[client] if unsound else states[client]
        assert all(map(torch.equal, simulation.client_state(client), expected_state))
        assert all(bool(torch.isfinite(field).all()) for field in simulation.client_state(client))
    for client in accepted:
        assert torch.equal(simulation.client_model(client), replies[client].model)
    assert torch.equal(simulation.client_model(2), latest[2])
    assert torch.equal(simulation.client_model(6), before.cloud)
    weights = {c: TASK.samples(c) if algorithm.scored_weight == "samples" else 1 for c in [0, 2, 3, 5, 6]}
    models = [weight * simulation.client_model(client) for client, weight in weights.items()]
    torch.testing.assert_close(simulation.scored_model(), torch.stack(models).sum(dim=0) / sum(weights.values()))

    notes = simulation.told
    assert [(one.round, one.client) for one in notes.rejections] == [(2, 2), (2, 6)]
    assert all(one.reason.startswith(kind.reason) for one in notes.rejections)
    assert (notes.rejected, notes.unanswered, notes.skips) == (2, 0, ())
    assert metrics is not None
    assert metrics["rejected"] == 2
    assert "unanswered" not in metrics
    assert not simulation.untold().rejections


@every_engine
@every_algorithm
def test_a_state_whose_reply_is_left_out_counts_only_if_it_counts_once_sent(
    name: str, engine: Callable[..., Any]
) -> None:
    states = {}
    for commit in ("sent", "confirmed"):
        gate = replace(LIMITED, state_commit=commit)
        simulation, watched = watch(spoiled(make(name), TASK, HARMS["far"], {2: [2, 6]}), engine, gate)
        simulation.step(cohort=COHORT[:4])
        before = {client: _copied(simulation.client_state(client)) for client in COHORT.tolist()}
        simulation.step(cohort=COHORT)
        answered = states_by_client(watched.answers[-1])
        for client in COHORT.tolist():
            taken_back = commit == "confirmed" and client in (2, 6)
            expected = before[client] if taken_back else answered[client]
            assert all(map(torch.equal, simulation.client_state(client), expected))
        states[commit] = simulation.state
    assert torch.equal(states["sent"].cloud, states["confirmed"].cloud)  # the round itself is the same


def test_a_state_is_taken_back_phase_by_phase() -> None:
    class Counting(FedDane):
        """FedDane whose clients count the phases whose replies were accepted."""

        class Client(NamedTuple):
            gradient: Vector
            phases: Count = torch.zeros(1, dtype=torch.int64)

        def client_finish(self, client: Any, message: Any, model: Tensor, context: ClientContext) -> tuple[Any, Any]:
            kept, reply = super().client_finish(client, message, model, context)
            return self.Client(kept.gradient, client.phases + 1), reply

    counts = {}
    for phase in (0, 1):
        algorithm = spoiled(Counting(), TASK, HARMS["nan"], {1: [2]}, phase=phase)
        simulation, _ = watch(algorithm, ReferenceEngine, Gate(state_commit="confirmed"))
        simulation.step(cohort=COHORT)
        counts[phase] = [int(simulation.client_state(client).phases) for client in (2, 3)]
    assert counts == {0: [0, 2], 1: [1, 2]}


def _copied(thing: Any) -> Any:
    return thing.clone() if isinstance(thing, Tensor) else type(thing)(*(field.clone() for field in thing))


@every_engine
@every_algorithm
@every_value_harm
def test_a_bad_reply_may_end_the_run(name: str, harm: str, engine: Callable[..., Any]) -> None:
    algorithm = make(name)
    kind = harm_for(harm, algorithm)
    gate = Gate("stop", NormLimit(1e3))
    simulation, _ = watch(spoiled(algorithm, TASK, kind, {2: [3]}), engine, gate)
    simulation.step(cohort=COHORT)
    before = simulation.state
    cloud = before.cloud.clone()
    with pytest.raises(Diverged, match="the reply of client 3 in round 2 is left out: its ") as caught:
        simulation.step(cohort=COHORT, evaluate=True)
    assert kind.reason in str(caught.value)
    assert simulation.state.round == 1
    assert torch.equal(simulation.state.cloud, cloud)
    assert [(one.round, one.client) for one in simulation.untold().rejections] == [(2, 3)]


MALFORMED = [name for name, harm in HARMS.items() if harm.one_by_one]


@every_algorithm
@pytest.mark.parametrize("harm", MALFORMED)
def test_a_reply_of_another_form_is_left_out(name: str, harm: str) -> None:
    algorithm = make(name)
    simulation, watched = watch(spoiled(algorithm, TASK, HARMS[harm], {1: [5]}), ReferenceEngine)
    simulation.step(cohort=COHORT)
    (rejection,) = simulation.untold().rejections
    assert (rejection.round, rejection.client) == (1, 5)
    assert rejection.reason.startswith(HARMS[harm].reason)
    assert "should be" in rejection.reason
    replies = dict(zip(watched.answers[0].clients, rows(watched.answers[0].replies), strict=True))
    reduced = reduce_pairs(algorithm.means, [(client, reply) for client, reply in replies.items() if client != 5])
    truth = simulate(algorithm, CASE, ReferenceEngine)
    expected = algorithm.server_step(truth.state.server, truth.state.cloud, reduced, truth.context(1))
    assert torch.equal(simulation.state.cloud, expected.cloud)
    assert all(map(torch.equal, simulation.state.server, expected.server))


@every_algorithm
@pytest.mark.parametrize("engine", [make_batched_engine, StackedEngine], ids=["cores", "stacked"])
@pytest.mark.parametrize("harm", MALFORMED)
def test_replies_of_another_form_that_come_together_are_left_out_together(
    name: str, harm: str, engine: Callable[..., Any]
) -> None:
    simulation, _ = watch(spoiled(make(name), TASK, HARMS[harm], {2: [5]}), engine)
    simulation.step(cohort=COHORT)
    cloud = simulation.state.cloud.clone()
    simulation.step(cohort=COHORT)
    assert [one.client for one in simulation.untold().rejections] == COHORT.tolist()
    assert {one.reason[:20] for one in simulation.untold().rejections} == {HARMS[harm].reason[:20]}
    assert simulation.untold().skips == (2,)
    assert torch.equal(simulation.state.cloud, cloud)


@pytest.mark.parametrize("policy", ["quarantine", "stop"])
def test_a_form_that_is_wrong_for_all_ends_the_run_in_the_end(policy: Literal["quarantine", "stop"]) -> None:
    bad = {number: range(8) for number in range(2, 20)}  # a form that is wrong in round 1 is the algorithm's
    simulation, _ = watch(spoiled(FedAvg(), TASK, HARMS["half"], bad), ReferenceEngine, Gate(policy))
    with pytest.raises(Diverged, match="is of type float16; it should be float64"):
        make_rounds(simulation, 1 + MOST_SKIPPED)
    assert simulation.state.round == (1 if policy == "stop" else MOST_SKIPPED)


# --- Norms ------------------------------------------------------------------------------------------------------------


@every_engine
@every_algorithm
def test_the_median_of_accepted_norms_limits_the_next(name: str, engine: Callable[..., Any]) -> None:
    gate = Gate(limit=NormLimit.parse("50x"))
    simulation, watched = watch(spoiled(make(name), TASK, HARMS["far"], {2: [3], 3: [0]}), engine, gate)
    norms: list[float] = []
    for number in (1, 2, 3):
        cloud = simulation.state.cloud.clone()
        simulation.step(cohort=COHORT)
        answers = watched.answers[-1]
        moved = [(row.model - cloud).norm().item() for row in rows(answers.replies)]
        bad = {2: [3], 3: [0]}.get(number, [])
        told = [one for one in simulation.untold().rejections if one.round == number]
        assert [one.client for one in told] == bad
        if told:
            limit = 50 * sorted(norms)[(len(norms) - 1) // 2]
            assert told[0].reason.endswith(f"; the limit is {limit:.6g}")
        norms += [norm for client, norm in zip(answers.clients, moved, strict=True) if client not in bad]
    assert simulation.state.remembered_norms[0].shape[1] == 15 - 2


def test_rejected_norms_never_push_accepted_ones_out() -> None:
    """However many replies are left out, the limit stays."""
    limit = NormLimit(10.0, of_median=True)
    columns = Columns.of(FedAvg(), 0, limit)
    remembered = None
    for size in [1.0, 1.0, *[1e6] * 20]:
        facts = inspect(columns, torch.zeros(4), FedAvg.Reply(torch.full((60, 4), size), torch.ones(60, 1)), 60)
        verdict = judge(range(60), facts, columns, limit, remembered)
        assert all(verdict.accepted) == (size == 1) == any(verdict.accepted)
        remembered = remember(remembered, facts, columns, verdict.accepted)


def test_the_first_median_is_that_of_the_first_sound_replies() -> None:
    gate = Gate(limit=NormLimit.parse("50x"))
    bad = {1: range(8), 2: [2]}
    simulation, _ = watch(spoiled(FedAvg(), TASK, HARMS["nan"], {1: bad[1]}), ReferenceEngine, gate)
    simulation.step(cohort=COHORT)
    other = spoiled(FedAvg(), TASK, HARMS["far"], {2: [2]})
    object.__setattr__(simulation, "_algorithm", other)
    simulation.step(cohort=COHORT)
    assert [(one.round, one.client) for one in simulation.untold().rejections][5:] == [(2, 2)]


def test_only_the_latest_norms_are_remembered() -> None:
    columns = Columns.of(FedAvg(), 0, NormLimit(2.0, of_median=True))
    replies = FedAvg.Reply(torch.ones(5, 4), torch.ones(5, 1))
    facts = inspect(columns, torch.zeros(4), replies, 5)
    remembered = None
    for _ in range(REMEMBERED_NORMS):
        verdict = judge(range(5), facts, columns, NormLimit(2.0, of_median=True), remembered)
        remembered = remember(remembered, facts, columns, verdict.accepted)
    assert remembered is not None
    assert remembered.shape == (1, REMEMBERED_NORMS)
    assert set(remembered.flatten().tolist()) == {2.0}


def test_a_model_is_measured_by_its_difference_and_any_other_vector_by_itself() -> None:
    algorithm = make("scaffold")
    columns = Columns.of(algorithm, 0, NormLimit(1.0))
    assert columns.norms == ["model", "weighted_change"]
    replies = algorithm.reply_type(0)(torch.tensor([[3.0, 4.0]]), torch.tensor([[3.0, 4.0]]))
    _, _, norms = columns.parts(inspect(columns, torch.tensor([3.0, 3.0]), replies, 1))
    assert norms.tolist() == [[1.0, 5.0]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_rows_are_finite_if_all_their_numbers_are(dtype: torch.dtype, bad: float) -> None:
    """Their sums may be beyond all numbers, too."""
    rows_of = torch.full((4, 9), torch.finfo(dtype).max, dtype=dtype)
    rows_of[1, 3] = bad
    rows_of[2] = 0
    rows_of[3, [0, 5]] = torch.tensor([math.inf, -math.inf], dtype=dtype)
    assert torch.isfinite(finite_if_all_are(rows_of)).tolist() == [True, False, True, False]


def test_whole_numbers_are_finite() -> None:
    assert finite_if_all_are(torch.full((2, 1), 2**62)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("text", ["-1", "abc", "0", "0x", "nan", "inf", "x", "", "10 x y", "-2x"])
def test_a_limit_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(
        InputError, match=r"reply_limit = .* it should be none, a norm above 0 such as 25, or a multiple"
    ):
        NormLimit.parse(text)


def test_limits_are_read() -> None:
    assert not NormLimit.parse("none").is_set
    assert NormLimit.parse("25") == NormLimit(25.0)
    assert NormLimit.parse("2.5x") == NormLimit(2.5, of_median=True)


# --- A whole cohort ---------------------------------------------------------------------------------------------------


@every_engine
@every_algorithm
@every_value_harm
def test_a_round_without_accepted_replies_is_skipped(name: str, harm: str, engine: Callable[..., Any]) -> None:
    algorithm = make(name)
    kind = harm_for(harm, algorithm)
    simulation, _ = watch(spoiled(algorithm, TASK, kind, {2: range(8)}), engine, average_from=1)
    simulation.step(cohort=COHORT)
    before = simulation.state
    kept = [_copied(vector) for vector in (before.cloud, before.aggregate, before.server)]
    models = {client: simulation.client_model(client) for client in COHORT.tolist()}
    metrics = simulation.step(cohort=COHORT, evaluate=True)
    after = simulation.state
    assert after.round == 2
    assert torch.equal(after.cloud, kept[0])
    assert torch.equal(after.aggregate, kept[1])
    assert all(map(torch.equal, after.server, kept[2]))
    assert (after.h is None) == (before.h is None)
    assert torch.equal(averaged_model(simulation), kept[1])  # the mean over one round: the skipped one doesn't count
    assert all(torch.equal(simulation.client_model(client), model) for client, model in models.items())
    assert metrics is not None
    assert (metrics["cohort"], metrics["train_loss"], metrics["h_cosine"]) == (0, None, None)
    assert (metrics["rejected"], metrics["unanswered"]) == (5, 1)
    assert simulation.told.skips == (2,)
    etas = [simulation.context(number).eta for number in (2, 3)]
    assert etas[1] == pytest.approx(0.9 * etas[0])
    simulation.step(cohort=COHORT)
    assert simulation.state.round == 3
    assert not torch.equal(simulation.state.cloud, kept[0])


@every_engine
@every_algorithm
def test_ten_skipped_rounds_in_a_row_end_the_run(name: str, engine: Callable[..., Any]) -> None:
    bad = {number: range(8) for number in range(2, 12)}
    simulation, _ = watch(spoiled(make(name), TASK, HARMS["nan"], bad), engine)
    make_rounds(simulation, 10)
    assert simulation.state.round == 10
    match = r"no reply was accepted in 10 rounds in a row; in the last one, the reply of client \d in round 11 is left"
    with pytest.raises(Diverged, match=match):
        simulation.step()
    assert simulation.state.round == 10
    notes = simulation.untold()
    assert (notes.unanswered, notes.skips) == (10, tuple(range(2, 12)))
    assert notes.rejected == len(notes.rejections) == sum(len(simulation.cohort(number)) for number in range(2, 12))


@every_engine
@every_algorithm
def test_nine_skipped_rounds_in_a_row_do_not(name: str, engine: Callable[..., Any]) -> None:
    bad = {number: range(8) for number in range(1, 20) if number != 10}
    simulation, _ = watch(spoiled(make(name), TASK, HARMS["inf"], bad), engine)
    make_rounds(simulation, 20)
    assert simulation.untold().unanswered == 18


def test_a_round_without_present_clients_ends_no_row_of_skipped_ones() -> None:
    """Nobody was asked, so nothing was accepted."""
    bad = {number: range(8) for number in range(1, 40)}
    simulation = Simulation(
        spoiled(FedAvg(), TASK, HARMS["nan"], bad),
        TASK,
        TASK.partition.training,
        attendance=Attendance(participation=0.4, schedule=("4:leave:0-7", "8:join:0-7")),
    )
    make_rounds(simulation, 13)
    assert (simulation.state.skipped_rounds, simulation.untold().unanswered) == (4, 9)
    with pytest.raises(Diverged, match="10 rounds in a row"):
        simulation.step()


# --- Phases -----------------------------------------------------------------------------------------------------------


class TestTwoPhases:
    @pytest.mark.parametrize("engine", [ReferenceEngine, make_batched_engine], ids=["reference", "cores"])
    def test_a_client_left_out_in_the_first_phase_isnt_asked_in_the_second(self, engine: Callable[..., Any]) -> None:
        simulation, watched = watch(spoiled(FedDane(), TASK, HARMS["nan"], {1: [2], 2: [3]}), engine)
        simulation.step(cohort=COHORT)
        assert [list(request.clients) for request in watched.asked] == [COHORT.tolist(), [0, 3, 5, 6]]
        assert [one.client for one in simulation.untold().rejections] == [2]
        assert torch.equal(simulation.client_model(2), simulation._initial)
        states = [simulation.state.clients.read(client)["model"] for client in (0, 2, 3, 5, 6)]
        torch.testing.assert_close(simulation.scored_model(), torch.stack(states).mean(dim=0))
        cloud, before = simulation.state.cloud.clone(), simulation.client_model(3)
        simulation.step(cohort=COHORT)
        assert torch.equal(simulation.client_model(3), before)
        assert not torch.equal(simulation.client_model(2), cloud)

    @pytest.mark.parametrize("engine", [ReferenceEngine, make_batched_engine], ids=["reference", "cores"])
    def test_a_gradient_that_isnt_finite_never_becomes_an_h_i(self, engine: Callable[..., Any]) -> None:
        simulation, watched = watch(spoiled(ScaffoldGradient(), TASK, HARMS["nan"], {2: [2]}), engine)
        simulation.step(cohort=COHORT)
        kept = _copied(simulation.client_state(2))
        simulation.step(cohort=COHORT)
        assert [list(request.clients) for request in watched.asked[2:]] == [COHORT.tolist(), [0, 3, 5, 6]]
        assert all(map(torch.equal, simulation.client_state(2), kept))
        assert [(one.client, one.reason) for one in simulation.untold().rejections] == [
            (2, "its field largest isn't finite")
        ]

    def test_the_second_phase_averages_those_that_passed_both(self) -> None:
        algorithm = FedDane()
        simulation, watched = watch(spoiled(algorithm, TASK, HARMS["inf"], {1: [2]}, phase=1), ReferenceEngine)
        simulation.step(cohort=COHORT)
        assert [len(request.clients) for request in watched.asked] == [5, 5]
        replies = dict(zip(watched.answers[1].clients, rows(watched.answers[1].replies), strict=True))
        good = [(client, replies[client]) for client in (0, 3, 5, 6)]
        assert torch.equal(simulation.state.cloud, reduce_pairs(algorithm.means, good).mean("model"))
        assert simulation.untold().rejections[0].reason == "its field model isn't finite"

    @pytest.mark.parametrize("phase", [0, 1])
    def test_a_cohort_left_out_in_one_phase_skips_the_round(self, phase: int) -> None:
        simulation, watched = watch(spoiled(FedDane(), TASK, HARMS["nan"], {2: range(8)}, phase=phase), ReferenceEngine)
        simulation.step(cohort=COHORT)
        before = frozen(simulation.snapshot())
        simulation.step(cohort=COHORT, evaluate=True)
        after = simulation.snapshot()
        assert len(watched.asked) == 3 + phase
        for name in ("cloud", "aggregate", "server.h", "scored.total"):
            assert torch.equal(after.tensors[name], before.tensors[name]), name
        assert simulation.told.skips == (2,)
        assert simulation.scored_model() is not None
        simulation.step(cohort=COHORT)
        assert not torch.equal(simulation.state.cloud, before.tensors["cloud"])


def test_an_algorithm_without_a_scored_model_stays_without() -> None:
    simulation, _ = watch(spoiled(Mifa(), TASK, Harm(model=HARMS["nan"].model), {1: [2], 2: range(8)}), ReferenceEngine)
    for skipped in (False, True, False):
        metrics = simulation.step(cohort=COHORT, evaluate=True)
        assert metrics is not None
        assert (metrics["scored_accuracy"], metrics["scored_loss"]) == (None, None)
        assert bool(simulation.told.skips) == skipped
    assert simulation.scored_model() is None
    other = simulate(Mifa(), CASE, ReferenceEngine)
    other.restore(simulation.snapshot())
    assert other.scored_model() is None


# --- Lanes, resuming, settling later ----------------------------------------------------------------------------------


def rounds(simulation: Simulation, count: int, *, settled: bool = True) -> Lane[None]:
    for _ in range(count):
        yield from simulation.round(settled=settled)
    simulation.settle()


@every_algorithm
@pytest.mark.parametrize("engine", [make_batched_engine, StackedEngine], ids=["cores", "stacked"])
def test_a_bad_reply_in_one_lane_changes_no_bit_of_the_others(name: str, engine: Callable[..., Any]) -> None:
    algorithm = make(name)
    bad = spoiled(algorithm, TASK, HARMS["nan"], {2: range(8), 3: [0, 2, 3]})
    spoiled_lanes, clean_lanes = (
        [simulate(own, CASE._replace(seed=seed), engine) for seed, own in enumerate((algorithm, middle, algorithm))]
        for middle in (bad, algorithm)
    )
    for lanes in (spoiled_lanes, clean_lanes):
        advance_together([rounds(simulation, 4) for simulation in lanes], engine(no_heartbeat))
    assert spoiled_lanes[1].untold().rejected > 2
    for number in (0, 2):
        assert_same(spoiled_lanes[number].snapshot(), clean_lanes[number].snapshot())


BAD = {2: [0, 3], 3: range(8), 4: range(8), 6: [1, 2, 4]}
GATES = {"limitless": Gate(), "median": Gate(limit=NormLimit.parse("50x"))}


@every_engine
@every_algorithm
@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
def test_a_federation_resumed_amid_bad_replies_goes_on_alike(name: str, gate: Gate, engine: Callable[..., Any]) -> None:
    harm = HARMS["far" if gate.limit.is_set else "nan"]
    algorithm = spoiled(make(name), TASK, harm, BAD)
    rules = Rules(gate=gate, average_from=2)
    whole = simulate(algorithm, CASE, engine, rules=rules)
    snapshots = []
    for _ in range(7):
        whole.step()
        snapshots.append(frozen(whole.snapshot()))
    for done in (2, 3, 4):
        other = simulate(algorithm, CASE, engine, rules=rules)
        other.restore(snapshots[done - 1])
        assert_same(other.snapshot(), snapshots[done - 1])
        for _ in range(7 - done):
            other.step()
        assert_same(other.snapshot(), snapshots[-1])
        assert other.untold() == whole.untold()


@every_algorithm
@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
def test_notes_that_come_late_are_the_same(name: str, gate: Gate, request: pytest.FixtureRequest) -> None:
    harm = HARMS["far" if gate.limit.is_set else "nan"]
    algorithm = spoiled(make(name), TASK, harm, BAD)
    rules = Rules(gate=gate, average_from=2)
    known, sooner, later = (simulate(algorithm, CASE, StackedEngine, rules=rules) for _ in range(3))
    advance(rounds(known, 7), StackedEngine(no_heartbeat))
    request.getfixturevalue("late")
    advance(rounds(sooner, 7), StackedEngine(no_heartbeat))
    advance(rounds(later, 7, settled=False), StackedEngine(no_heartbeat))
    assert known.untold().rejected > 5
    assert known.untold().skips == (3, 4)
    for other in (sooner, later):
        assert_same(other.snapshot(), known.snapshot())
        assert other.untold().rejections == known.untold().rejections
        assert torch.equal(averaged_model(other), averaged_model(known))


@pytest.mark.parametrize("phase", [0, 1])
def test_notes_of_two_phases_that_come_late_are_the_same(phase: int, request: pytest.FixtureRequest) -> None:
    algorithm = spoiled(FedDane(), TASK, HARMS["nan"], BAD, phase=phase)
    known, later = (simulate(algorithm, CASE, StackedEngine) for _ in range(2))
    advance(rounds(known, 7), StackedEngine(no_heartbeat))
    request.getfixturevalue("late")
    advance(rounds(later, 7, settled=False), StackedEngine(no_heartbeat))
    mine, theirs = later.snapshot(), known.snapshot()
    assert later.untold().rejections == known.untold().rejections
    assert later.untold().skips == known.untold().skips == (3, 4)
    assert_same(mine, theirs)


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize("harm", [HARMS["nan"], HARMS["inf"], negative("samples")], ids=["nan", "inf", "negative"])
def test_a_round_is_made_again_only_if_it_has_a_bad_reply(harm: Harm) -> None:
    algorithm = spoiled(FedAvg(), TASK, harm, {3: range(8)})
    watched = StackedEngine(no_heartbeat)
    simulation = simulate(algorithm, CASE, lambda _: watched)
    asked: list[int] = []
    exchange = watched.exchange

    def noting(requests: Any) -> Any:
        asked.extend(request.context.round for request in requests)
        return exchange(requests)

    watched.exchange = noting  # type: ignore[method-assign]
    advance(rounds(simulation, 6, settled=False), watched)
    assert asked == [1, 2, 3, 4, 3, 4, 5, 6]
    assert simulation.untold().skips == (3,)


@pytest.mark.usefixtures("late")
def test_ten_skipped_rounds_that_are_known_late_end_the_run() -> None:
    algorithm = spoiled(AdaBest(), TASK, HARMS["nan"], {number: range(8) for number in range(2, 20)})
    simulation = simulate(algorithm, CASE, StackedEngine)
    with pytest.raises(Diverged, match="in round 11 is left out"):
        advance(rounds(simulation, 19, settled=False), StackedEngine(no_heartbeat))
    assert simulation.state.round == 10
    assert simulation.untold().skips == tuple(range(2, 12))


# --- No bad reply -----------------------------------------------------------------------------------------------------


@every_engine
@every_algorithm
def test_a_federation_without_bad_replies_has_no_trace_of_the_gate(name: str, engine: Callable[..., Any]) -> None:
    one, other = (simulate(make(name), CASE, engine, rules=Rules(gate=gate)) for gate in (Gate("stop"), LIMITED))
    for _ in range(3):
        metrics = [simulation.step(evaluate=True) for simulation in (one, other)]
        assert metrics[0] == metrics[1]
        assert metrics[0] is not None
        assert not {"rejected", "unanswered"} & metrics[0].keys()
    snapshot = one.snapshot()
    assert not [name for name in (*snapshot.tensors, *snapshot.numbers) if name.startswith(("gate", "remembered"))]
    assert_same(snapshot, other.snapshot())


# --- Any subset -------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    name=st.sampled_from(sorted(CORE)),
    bad=st.lists(st.sets(st.integers(0, 7)), min_size=3, max_size=3),
    harm=st.sampled_from(["nan", "inf", "far"]),
)
def test_any_subset_of_clients_may_be_bad(name: str, bad: list[set[int]], harm: str) -> None:
    """On quadratics every client's reply is the same whoever else takes part: so leave the bad ones out of the cohort.

    Estimates of the clients left out may differ by what they have kept, so only those of the server are compared, and
    cohorts don't overlap.
    """
    task = random_quadratics(0, 8, dim=4, unbalanced=True)
    assert len({task.samples(client) for client in range(8)}) == 8
    cohorts = [[0, 1, 2], [3, 4, 5], [6, 7]]
    by_round = dict(enumerate(bad, start=1))
    made = []
    for algorithm in (spoiled(make(name), task, HARMS[harm], by_round), make(name)):
        training = LocalTraining(learning_rate=0.1, weight_decay=0.0, clip=0.0)
        made.append(Simulation(algorithm, task, np.arange(8), training=training, rules=Rules(gate=LIMITED)))
    mine, truth = made
    rejected, unanswered = 0, 0
    for number, cohort in enumerate(cohorts, start=1):
        good = [client for client in cohort if client not in by_round[number]]
        rejected, unanswered = rejected + len(cohort) - len(good), unanswered + (not good)
        mine.step(cohort=np.array(cohort))
        if good:
            truth.step(cohort=np.array(good))
        else:
            truth.state.round += 1
            truth._roster.advance(number)
    notes = mine.untold()
    assert (notes.rejected, notes.unanswered) == (rejected, unanswered)
    assert torch.equal(mine.state.cloud, truth.state.cloud)
    assert torch.equal(mine.state.aggregate, truth.state.aggregate)
    assert all(map(torch.equal, mine.state.server, truth.state.server))
    assert all(math.isfinite(float(field.sum())) for field in mine.state.server if field.numel())
