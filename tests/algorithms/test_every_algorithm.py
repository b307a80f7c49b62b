"""What every algorithm must do, whatever it computes. An algorithm gets all of these tests by being registered.

Most tests look at real calls: a short federation is run with an algorithm whose five functions are recorded, and the
recorded calls are then examined or made again in another form. So they hold for any number of phases, too.
"""

import dataclasses
import functools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quadratics import random_quadratics, run, run_cohorts, simulate
from recording import (
    CLIENTS,
    COHORTS,
    CORE_VARIANTS,
    DIM,
    DTYPES,
    NAMES,
    OTHER_VARIANTS,
    VARIANTS,
    assert_equal,
    core_and_representatives,
    every_algorithm,
    every_typed_variant,
    every_variant,
    make,
    record,
    record_anew,
    stacked,
    stacked_context,
    tensors_in,
    unstacked,
    without_population,
)
from replies import reduce_pairs
from scored import scored_or_aggregate
from tiny_digits import digits_task, simulate_digits
from torch import Tensor

from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.adaptive import Adaptive
from adabest.algorithms.base import (
    Algorithm,
    Correction,
    Population,
    Replies,
    ServerContext,
    UndeclaredPopulationError,
    Update,
    Work,
)
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.feddyn import FedDyn
from adabest.algorithms.forms import Form, find_fault, forms_of
from adabest.algorithms.scaffold import Scaffold
from adabest.engine.simulation import Simulation
from adabest.engine.state import Snapshot
from adabest.errors import InputError
from adabest.registry import split_specification
from adabest.tasks.quadratic import QuadraticTask

# Vectors a client receives and sends in a round, in all of its phases together.
VECTORS = {
    "fedavg": (1, 1),
    "fedprox": (1, 1),
    "scaffold": (2, 2),
    "scaffold-m": (2, 1),
    "scaffold-gradient": (3, 2),
    "feddyn": (1, 1),
    "adabest": (1, 1),
    "fedavgm": (1, 1),
    "slowmo": (1, 1),
    "fedadam": (1, 1),
    "fedyogi": (1, 1),
    "fedadagrad": (1, 1),
    "fedexp": (1, 1),
    "fednova": (1, 1),
    "mifa": (1, 1),
    "vrl-sgd": (1, 1),
    "dane": (3, 2),
    "aide": (4, 2),
    "feddane": (3, 2),
    "feddc": (2, 1),
    "fedpd": (1, 1),
    "fedsplit": (1, 1),
    "fedcm": (2, 1),
    "mimelite": (3, 2),
    "fedacg": (1, 1),
    "local-momentum": (2, 2),
    "scaffnew": (1, 1),
    "fsvrg": (3, 2),
    "bvr-l-sgd": (3, 2),
    "mime": (3, 2),
    "mimelite-adam": (4, 2),
    "fedsam": (1, 1),
    "mofedsam": (2, 1),
    "fedspeed": (1, 1),
    "fedlesam": (1, 1),
    "fedper": (1, 1),
    "fedbn": (1, 1),
    "ditto": (2, 1),
}

# Those whose replies don't tell the clients' models.
UNSCORED = {"mifa", "fedpd", "fedsplit"}


# --- Types and shapes -------------------------------------------------------------------------------------------------


@every_variant
def test_states_messages_and_replies_are_named_tuples_of_tensors(name: str) -> None:
    recording = record(name)
    things = [call.result for call in recording.calls if call.function in {"server_init", "client_init", "downlink"}]
    for call in recording.of("client_finish"):
        things += call.result
    things += [call.result.server for call in recording.of("server_step")]
    for thing in things:
        assert isinstance(thing, tuple)
        assert hasattr(thing, "_fields")
        assert all(isinstance(value, Tensor) for value in thing)


@every_typed_variant
def test_every_vector_keeps_the_type_of_the_model(name: str, dtype: torch.dtype) -> None:
    recording = record(name, dtype=dtype)
    for call in recording.calls:
        for tensor in tensors_in(call.result):
            if tensor.shape[-1] == DIM:
                assert tensor.dtype == dtype, call.function
    state = recording.simulation.state
    for model in (state.cloud, state.aggregate, scored_or_aggregate(recording.simulation)):
        assert model.dtype == dtype


@every_typed_variant
def test_messages_and_replies_have_the_type_of_the_model(name: str, dtype: torch.dtype) -> None:
    """Numbers too: what travels can be put into one buffer."""
    recording = record(name, dtype=dtype)
    sent = [call.result for call in recording.of("downlink")] + [
        call.result[1] for call in recording.of("client_finish")
    ]
    assert {tensor.dtype for tensor in tensors_in(tuple(sent))} == {dtype}


@every_typed_variant
def test_everything_is_a_vector_of_the_model_or_one_number(name: str, dtype: torch.dtype) -> None:
    for call in record(name, dtype=dtype).calls:
        kept = call.result.server if call.function == "server_step" else call.result
        lists = [getattr(kept, name, None) for name in ("h_norms", "means")]  # all that is neither: lists of numbers
        for tensor in tensors_in(call.result):
            assert any(tensor is numbers for numbers in lists) or tensor.shape in {(DIM,), (1,)}, call.function


@every_variant
def test_types_and_shapes_of_states_never_change(name: str) -> None:
    """A store keeps each field in one tensor, made when the first client took part."""
    recording = record(name)
    kinds = {"client_init": (lambda call: call.result), "client_finish": (lambda call: call.result[0])}
    kinds |= {"server_init": (lambda call: call.result), "server_step": (lambda call: call.result.server)}
    for first, later in (("client_init", "client_finish"), ("server_init", "server_step")):
        signatures = {
            (type(state), tuple((tensor.dtype, tensor.shape) for tensor in state))
            for function in (first, later)
            for state in map(kinds[function], recording.of(function))
        }
        assert len(signatures) == 1, later


@every_variant
def test_updates_and_corrections_are_what_the_engine_expects(name: str) -> None:
    recording = record(name)
    assert all(isinstance(call.result, Correction) for call in recording.of("client_start"))
    assert all(isinstance(call.result, Update) for call in recording.of("server_step"))
    assert {(call.result.h is None) for call in recording.of("server_step")} in ({True}, {False})


# --- Leading batch dimensions -----------------------------------------------------------------------------------------


@every_typed_variant
@pytest.mark.parametrize("function", ["client_start", "client_finish", "client_estimate"])
@pytest.mark.parametrize("shared_message", [True, False], ids=["one message", "a message each"])
def test_stacked_clients_give_the_same_as_one_by_one(
    name: str, dtype: torch.dtype, function: str, shared_message: bool
) -> None:
    recording = record(name, dtype=dtype)
    groups = list(recording.exchanges(function))
    assert any(len(group) > 1 for group in groups)
    for calls in groups:
        together = [stacked([call.given[i] for call in calls]) for i in range(len(calls[0].given) - 1)]
        if shared_message:
            together[1] = calls[0].given[1]
        result = getattr(recording.algorithm, function)(*together, stacked_context(calls))
        for index, call in enumerate(calls):
            assert_equal(unstacked(result, index, len(calls)), call.result)


class StackedReplies(Replies):
    """The replies of several lanes, each with its own."""

    def __init__(self, lanes: list[Replies]) -> None:
        self._lanes = lanes
        self.count = lanes[0].count

    def mean(self, field: str, weight: str = "one") -> Tensor:
        return torch.stack([lane.mean(field, weight) for lane in self._lanes])


@every_typed_variant
def test_stacked_lanes_give_the_same_as_one_by_one(name: str, dtype: torch.dtype) -> None:
    """Several runs at once, as a batched engine would have them."""
    lanes = [record(name, dtype=dtype, seed=8 * seed) for seed in range(3)]  # those seeds have the same n_i and K_i
    algorithm = lanes[0].algorithm
    for calls in zip(*(lane.of("server_step") for lane in lanes), strict=True):
        server, cloud = (stacked([call.given[i] for call in calls]) for i in range(2))
        replies = StackedReplies([call.given[2] for call in calls])
        update = algorithm.server_step(server, cloud, replies, calls[0].context)
        for index, call in enumerate(calls):
            assert_equal(unstacked(update, index, len(lanes)), call.result)
    for calls in zip(*(lane.of("downlink") for lane in lanes), strict=True):
        server, cloud = (stacked([call.given[i] for call in calls]) for i in range(2))
        message = algorithm.downlink(server, cloud, calls[0].context)
        for index, call in enumerate(calls):
            assert_equal(unstacked(message, index, len(lanes)), call.result)


@every_typed_variant
@pytest.mark.parametrize("function", ["server_init", "client_init"])
def test_states_start_with_the_leading_dimensions_of_the_model(name: str, dtype: torch.dtype, function: str) -> None:
    start = getattr(make(name), function)
    clouds = torch.arange(2.0 * 4 * DIM, dtype=dtype).reshape(2, 4, DIM)
    states = start(clouds)
    for row in range(2):
        for column in range(4):
            one = type(states)(*(tensor[row, column] for tensor in states))
            assert_equal(one, start(clouds[row, column]))


# --- Purity -----------------------------------------------------------------------------------------------------------


@every_variant
def test_nothing_that_is_given_is_changed(name: str) -> None:
    for call in record(name).calls:
        assert tensors_in(call.given), "nothing to be changed"
        assert call.untouched, call.function


@every_variant
def test_the_same_question_gets_the_same_answer(name: str) -> None:
    """Nothing is remembered outside of the states."""
    recording = record(name)
    for call in reversed(recording.calls):
        assert_equal(getattr(recording.algorithm, call.function)(*call.given), call.result)


@every_variant
def test_a_run_can_be_repeated(name: str) -> None:
    one, other = (record_anew(name).simulation.snapshot() for _ in range(2))
    assert_same_snapshots(one, other)


@core_and_representatives
def test_a_run_on_digits_can_be_repeated(name: str) -> None:
    simulations = [simulate_digits(make(name), digits_task(unbalance=0.3, dtype=torch.float32)) for _ in range(2)]
    metrics = [[simulation.step(evaluate=True) for _ in range(2)] for simulation in simulations]
    assert metrics[0] == metrics[1]
    assert_same_snapshots(*(simulation.snapshot() for simulation in simulations))


# --- States survive ---------------------------------------------------------------------------------------------------


def assert_same_snapshots(one: Snapshot, other: Snapshot) -> None:
    assert one.numbers == other.numbers
    assert one.tensors.keys() == other.tensors.keys()
    for name, tensor in one.tensors.items():
        assert tensor.dtype == other.tensors[name].dtype, name
        assert torch.equal(tensor, other.tensors[name]), name


@pytest.mark.parametrize(
    ("name", "dtype", "interrupted_after"),
    [
        *((name, dtype, after) for name in CORE_VARIANTS for dtype in DTYPES for after in (0, 1, 4)),
        *((name, torch.float32, 4) for name in OTHER_VARIANTS),
    ],
    ids=str,
)
def test_a_restored_run_continues_to_the_last_bit(name: str, dtype: torch.dtype, interrupted_after: int) -> None:
    def start() -> Simulation:
        task = random_quadratics(4, CLIENTS, unbalanced=True, dtype=dtype)
        return simulate(make(name), task, participation=0.5, decay=0.9)

    whole, first, second = start(), start(), start()
    run(whole, 7)
    run(first, interrupted_after)
    second.restore(first.snapshot())
    assert_same_snapshots(first.snapshot(), second.snapshot())
    run(second, 7 - interrupted_after)
    assert_same_snapshots(whole.snapshot(), second.snapshot())
    assert torch.equal(scored_or_aggregate(whole), scored_or_aggregate(second))
    for client in range(CLIENTS):
        assert_equal(second.client_state(client), whole.client_state(client))


@every_variant
def test_a_snapshot_can_be_restored_more_than_once(name: str) -> None:
    """Neither the run it was taken of nor one that was restored from it may change it."""
    task = random_quadratics(4, CLIENTS, unbalanced=True)
    original = simulate(make(name), task, participation=0.5)
    run(original, 3)
    snapshot = original.snapshot()
    run(original, 3)
    for _ in range(2):
        restored = simulate(make(name), task, participation=0.5)
        restored.restore(snapshot)
        run(restored, 3)
        assert_same_snapshots(original.snapshot(), restored.snapshot())


# --- The population ---------------------------------------------------------------------------------------------------


@every_variant
def test_the_population_is_read_if_and_only_if_that_is_declared(name: str) -> None:
    recording = record(name)
    calls = recording.of("downlink") + recording.of("server_step")
    assert {call.context.known_population is not None for call in calls} == {recording.algorithm.needs_population}
    refused = False
    for call in calls:
        try:
            getattr(recording.algorithm, call.function)(*without_population(call, None))
        except UndeclaredPopulationError:
            refused = True
    assert refused == recording.algorithm.needs_population


@pytest.mark.parametrize("name", [name for name in VARIANTS if not make(name).needs_population])
def test_an_undeclared_population_changes_nothing_even_if_it_is_there(name: str) -> None:
    recording = record(name)
    for call in recording.of("downlink") + recording.of("server_step"):
        for population in (Population(size=1, mean_samples=0.5), Population(size=10**6, mean_samples=999.0)):
            result = getattr(recording.algorithm, call.function)(*without_population(call, population))
            assert_equal(result, call.result)


@every_variant
def test_clients_that_never_take_part_matter_if_and_only_if_the_population_is_declared(name: str) -> None:
    task = random_quadratics(0, 3 * CLIENTS, unbalanced=True)
    alone, among_others = simulate(make(name), task, clients=CLIENTS), simulate(make(name), task)
    run_cohorts(alone, COHORTS)
    run_cohorts(among_others, COHORTS)
    assert torch.equal(alone.state.cloud, among_others.state.cloud) != make(name).needs_population


# --- Messages and replies ---------------------------------------------------------------------------------------------


@every_typed_variant
def test_bytes_are_those_of_messages_and_replies(name: str, dtype: torch.dtype) -> None:
    recording = record(name, dtype=dtype)
    finished = recording.of("client_finish")  # one message received and one reply sent in each
    private = recording.algorithm.private_part() is not None  # then the last coordinate is

    def size_as_sent(message: Any) -> int:
        lengths = [tensor.numel() - (private and tensor.numel() == DIM) for tensor in message]
        return sum(tensor.element_size() * length for tensor, length in zip(message, lengths, strict=True))

    assert recording.simulation.state.bytes_down == sum(size_as_sent(call.given[1]) for call in finished)
    assert recording.simulation.state.bytes_up == sum(size_as_sent(call.result[1]) for call in finished)
    assert len(finished) == len(make(name).phases) * sum(map(len, COHORTS))


@every_variant
def test_no_more_vectors_travel_than_the_algorithm_needs(name: str) -> None:
    vectors: dict[int, set[tuple[int, ...]]] = {}
    for call in record(name).of("client_finish"):
        counted = tuple(sum(tensor.numel() == DIM for tensor in sent) for sent in (call.given[1], call.result[1]))
        vectors.setdefault(call.context.phase, set()).add(counted)
    assert all(len(of_phase) == 1 for of_phase in vectors.values())
    by_phase = [next(iter(of_phase)) for of_phase in vectors.values()]
    assert tuple(map(sum, zip(*by_phase, strict=True))) == VECTORS[split_specification(name)[0]]
    assert all(down >= 1 for down, _ in by_phase), "clients have to be told where to start"


@every_algorithm
def test_means_are_of_fields_that_replies_have(name: str) -> None:
    variants = [record(variant) for variant in VARIANTS if split_specification(variant)[0] == name]
    means = variants[0].algorithm.means
    replies = [call.result[1] for recording in variants for call in recording.of("client_finish")]
    assert set(means) <= {field for reply in replies for field in reply._fields}
    for reply in replies:
        for field in set(means) & set(reply._fields):
            for weight in means[field]:
                assert weight == "one" or getattr(reply, weight).shape == (1,), "a weight is one number"
                assert weight == "one" or float(getattr(reply, weight)) > 0


@every_variant
def test_every_field_of_a_reply_is_of_use(name: str) -> None:
    """What is neither averaged nor a weight needn't be sent."""
    means = make(name).means
    used = set(means) | {weight for weights in means.values() for weight in weights}
    for call in record(name).of("client_finish"):
        assert set(call.result[1]._fields) <= used


@every_variant
def test_the_scored_weight_is_one_that_exists(name: str) -> None:
    assert make(name).scored_weight in {"one", "samples"}


@every_variant
def test_a_round_has_training_in_it(name: str) -> None:
    assert Work.TRAIN in make(name).phases


@pytest.mark.parametrize("name", CORE_VARIANTS)
@settings(max_examples=10)
@given(order=st.permutations(range(CLIENTS)))
def test_neither_the_order_of_arrival_nor_that_of_the_cohort_matters(name: str, order: list[int]) -> None:
    assert_same_in_any_order(name, order)


@pytest.mark.parametrize("name", OTHER_VARIANTS)
def test_neither_a_reversed_arrival_nor_a_reversed_cohort_matters(name: str) -> None:
    assert_same_in_any_order(name, list(reversed(range(CLIENTS))))


def assert_same_in_any_order(name: str, order: list[int]) -> None:
    shuffled_cohort = simulate(make(name), random_quadratics(0, CLIENTS, unbalanced=True))
    run_cohorts(shuffled_cohort, [order] * 2)
    assert_same_snapshots(with_sorted_cohorts(name), shuffled_cohort.snapshot())
    replies = [(client, make_reply(name, client)) for client in range(CLIENTS)]
    one = reduce_pairs(make(name).means, replies)
    other = reduce_pairs(make(name).means, [replies[client] for client in order])
    for field in replies[0][1]._fields:
        for weight in make(name).means.get(field, ()):
            assert torch.equal(one.mean(field, weight), other.mean(field, weight))


@functools.cache
def with_sorted_cohorts(name: str) -> Snapshot:
    """The snapshot after two rounds of all clients in their order."""
    sorted_cohort = simulate(make(name), random_quadratics(0, CLIENTS, unbalanced=True))
    run_cohorts(sorted_cohort, [range(CLIENTS)] * 2)
    return sorted_cohort.snapshot()


@functools.cache
def reply_type(name: str) -> Any:
    return type(record(name).of("client_finish")[0].result[1])


def make_reply(name: str, client: int) -> Any:
    """A reply of the algorithm's type; sums of such depend on their order in the last bits."""
    kind = reply_type(name)
    generator = torch.Generator().manual_seed(client)
    return kind(*(torch.rand(1, generator=generator, dtype=torch.float64) for _ in kind._fields))


# --- Behaviour that all algorithms share ------------------------------------------------------------------------------


@every_variant
def test_nothing_moves_where_all_clients_are_at_their_optimum(name: str) -> None:
    task = random_quadratics(0, CLIENTS, unbalanced=True)
    settled = QuadraticTask(
        task.curvatures, task.origin.expand(CLIENTS, DIM), task.counts, task.paces, origin=task.origin
    )
    algorithm: Any = make(name)
    if hasattr(algorithm, "radius"):  # which is how far SAM goes uphill, also for a gradient that is rounding alone
        algorithm = dataclasses.replace(algorithm, radius=0.0)
    simulation = simulate(algorithm, settled)
    run_cohorts(simulation, COHORTS)
    # FedProx and FedDyn add and subtract μθ, which rounds; and an adaptive server divides what was rounded by τ
    tolerance = 1e-11 if isinstance(algorithm, Adaptive) else 2e-15
    torch.testing.assert_close(simulation.state.cloud, task.origin, rtol=0, atol=tolerance)
    torch.testing.assert_close(scored_or_aggregate(simulation), task.origin, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("name", "unbalanced", "rounds"),
    [*((name, True, 40) for name in CORE_VARIANTS), *((name, False, 20) for name in OTHER_VARIANTS)],
)
def test_every_algorithm_learns(name: str, unbalanced: bool, rounds: int) -> None:
    task = random_quadratics(0, CLIENTS, unbalanced=unbalanced)
    algorithm = make(name)
    if isinstance(algorithm, Adaptive):
        algorithm = dataclasses.replace(algorithm, rate=0.1)  # a step is about as long, and the way is 1
    simulation = simulate(algorithm, task)
    run(simulation, rounds)  # everyone in every round: not all algorithms can do with less
    best = task.test(task.optimum()).loss
    assert task.test(scored_or_aggregate(simulation)).loss - best < 0.5 * (task.test(task.origin).loss - best)


@every_variant
def test_metrics_are_finite_and_agree_with_the_state(name: str) -> None:
    simulation = simulate(make(name), random_quadratics(0, CLIENTS, unbalanced=True))
    simulation.step()
    metrics = simulation.step(evaluate=True)
    assert metrics is not None
    assert all(value is None or math.isfinite(value) for value in metrics.values())
    assert metrics["cloud_norm"] == pytest.approx(float(simulation.state.cloud.norm()))
    h = simulation.state.h
    assert metrics["h_norm"] == (None if h is None else pytest.approx(float(h.norm())))
    assert (metrics["h_cosine"] is None) == (h is None)
    cosine = metrics["h_cosine"]
    assert cosine is None or -1 - 1e-12 <= cosine <= 1 + 1e-12


@pytest.mark.parametrize(
    "name",
    ["adabest", "adabest,beta=auto", "scaffold", "scaffold-m", "scaffold-gradient", "scaffold,sample_mean=progressive"],
)
def test_the_first_local_training_is_fedavgs(name: str) -> None:
    """All states are zero, so nothing corrects the gradient yet, and clients come to the same models bit for bit."""
    task = random_quadratics(0, CLIENTS, unbalanced=True)
    simulation, fedavg = simulate(make(name), task, clip=1.0), simulate(FedAvg(), task, clip=1.0)
    for one in (simulation, fedavg):
        one.step(cohort=np.array([0, 2, 3]))
    mine, theirs = simulation.snapshot().tensors, fedavg.snapshot().tensors
    assert torch.equal(mine["clients.model"], theirs["clients.model"])
    assert not torch.equal(mine["clients.model"][0], task.origin)


def test_this_suite_covers_the_built_in_algorithms() -> None:
    assert set(VECTORS) == set(NAMES)


def test_the_message_of_an_undeclared_population_says_what_to_do() -> None:
    with pytest.raises(UndeclaredPopulationError, match="needs_population = True"):
        _ = ServerContext(round=1, phase=0, eta=0.1, base_eta=0.1).population


@pytest.mark.parametrize("algorithm", [FedDyn(mu=0.1), Scaffold(), AdaBest(), AdaBest(beta="auto")], ids=str)
def test_lanes_may_differ_in_populations_and_rates(algorithm: Algorithm) -> None:
    lanes, size = 3, 4
    cloud = torch.randn(lanes, size, dtype=torch.float64)
    column = torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64)

    def contexts(population: Population, eta: Any) -> ServerContext:
        known = population if algorithm.needs_population else None
        return ServerContext(round=1, phase=0, eta=eta, base_eta=eta, known_population=known)

    together = algorithm.downlink(
        algorithm.server_init(cloud), cloud, contexts(Population(10 * column, 7 * column), 0.1 * column)
    )
    for lane in range(lanes):
        number = float(column[lane])
        one = contexts(Population(10 * number, 7 * number), 0.1 * number)
        alone = algorithm.downlink(algorithm.server_init(cloud[lane]), cloud[lane], one)
        for field, value in alone._asdict().items():
            torch.testing.assert_close(getattr(together, field)[lane], value)


# --- Declared forms ---------------------------------------------------------------------------------------------------


@every_typed_variant
def test_functions_return_what_is_declared(name: str, dtype: torch.dtype) -> None:
    """One by one, and with clients that are stacked."""
    recording = record(name, dtype=dtype)
    algorithm, like = recording.algorithm, recording.simulation.state.cloud
    for call in recording.of("server_init"):
        assert find_fault(algorithm.server_type(), call.result, like) is None
    for call in recording.of("server_step"):
        assert find_fault(algorithm.server_type(), call.result.server, like) is None
    for call in recording.of("client_init"):
        assert find_fault(algorithm.client_type(), call.result, like) is None
    for call in recording.of("downlink"):
        assert find_fault(algorithm.message_type(call.context.phase), call.result, like) is None
    for calls in recording.exchanges("client_finish"):
        phase = calls[0].context.phase
        kinds = algorithm.client_type(), algorithm.reply_type(phase)
        for call in calls:
            for kind, thing in zip(kinds, call.result, strict=True):
                assert find_fault(kind, thing, like) is None
        for kind, thing in zip(kinds, stacked([call.result for call in calls]), strict=True):
            assert find_fault(kind, thing, like, leading=(len(calls),)) is None


@every_variant
def test_every_field_has_a_declared_form(name: str) -> None:
    algorithm = make(name)
    kinds = [algorithm.server_type(), algorithm.client_type()]
    for phase in range(len(algorithm.phases)):
        kinds += [algorithm.message_type(phase), algorithm.reply_type(phase)]
    undeclared = {field for kind in kinds for field, form in forms_of(kind).items() if form is None}
    lists = {"h_norms", "means"}  # of numbers, as many as the patience and the formula of β have
    assert undeclared <= (lists if isinstance(algorithm, AdaBest) else set())


@every_variant
def test_a_message_has_the_cloud_model(name: str) -> None:
    algorithm = make(name)
    for phase in range(len(algorithm.phases)):
        assert forms_of(algorithm.message_type(phase))["cloud"] is Form.MODEL


@every_variant
def test_the_clients_model_follows_from_message_and_reply(name: str) -> None:
    recording = record(name)
    for call in recording.of("client_finish"):
        _, message, model, context = call.given
        found = recording.algorithm.client_model(message, call.result[1], context)
        if split_specification(name)[0] in UNSCORED:
            assert found is None
        elif "model" in call.result[1]._fields and recording.algorithm.phases[context.phase] is Work.TRAIN:
            assert found is not None
            assert torch.equal(found, model)


def test_an_algorithm_that_declares_no_reply_is_told_how() -> None:
    class Silent(AdaBest):
        Reply = None  # type: ignore[assignment]

    with pytest.raises(InputError, match=r"algorithm Silent declares no Reply: its class should hold a NamedTuple"):
        Silent().reply_type(0)
