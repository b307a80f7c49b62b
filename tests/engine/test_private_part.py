"""Private parts of models on every engine, in lanes, restored, and where replies are bad; personal models."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from side_by_side import Case, StackedEngine, assert_alike, simulate, with_norms
from small import assert_same
from torch import Tensor

from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.base import Algorithm, ClientContext
from adabest.algorithms.ditto import Ditto
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.fedbn import FedBN
from adabest.algorithms.fedper import FedPer
from adabest.algorithms.scaffold import Scaffold
from adabest.engine.client_side import states_by_client
from adabest.engine.gate_rules import Gate, NormLimit
from adabest.engine.interface import Answers, Request
from adabest.engine.lanes import advance_together
from adabest.engine.reference import ReferenceEngine
from adabest.engine.simulation import Rules, Simulation
from adabest.errors import InputError
from adabest.model_part import Part
from adabest.runs.build import make_batched_engine
from adabest.tasks.base import no_heartbeat

MLP = Case("mlp,hidden=9x5", (2, 6, 6))
NORMED = with_norms(MLP)
HEAD = 5 * 3 + 3  # numbers of the MLP's last layer
ENGINES: dict[str, Any] = {"cpu": make_batched_engine, "stacked": StackedEngine}
every_engine = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES.keys())
PERSONAL: list[tuple[Algorithm, Case]] = [
    (FedPer(), MLP),
    (FedPer(private="1.weight+*.bias"), MLP),
    (FedBN(), NORMED),
    (Ditto(), MLP),
]
every_personal = pytest.mark.parametrize(("algorithm", "case"), PERSONAL, ids=[str(one) for one, _ in PERSONAL])


@every_engine
@every_personal
def test_an_engine_agrees_with_the_reference(algorithm: Algorithm, case: Case, engine: Any) -> None:
    mine, reference = assert_alike(algorithm, case, engine, rounds=2)
    clients = reference.clients_with_models()
    assert mine.clients_with_models() == clients
    assert len(clients) > 2
    for client in clients:
        torch.testing.assert_close(mine.personal_model(client), reference.personal_model(client), rtol=0, atol=1e-10)
        assert not torch.equal(mine.personal_model(client), mine.client_model(client))


def mask_of(simulation: Simulation) -> Tensor:
    private: Any = simulation._private
    assert private.size == int(private.mask.sum())
    mask: Tensor = private.mask
    return mask


def test_the_mask_is_that_of_the_last_layer() -> None:
    simulation = simulate(FedPer(), MLP, ReferenceEngine)
    assert mask_of(simulation).nonzero().flatten().tolist() == list(range(len(mask_of(simulation))))[-HEAD:]


@pytest.mark.parametrize("engine", [ReferenceEngine, make_batched_engine, StackedEngine])
def test_nothing_private_reaches_the_server(engine: Any) -> None:
    """Not even from an algorithm that sends all it has."""

    @dataclass(frozen=True)
    class PrivateScaffold(Scaffold):
        def private_part(self) -> Part:
            return Part(last_layers=1)

    simulation = simulate(PrivateScaffold(), MLP, engine)
    initial, mask = simulation.state.cloud.clone(), mask_of(simulation)
    for _ in range(2):
        lane = simulation.round()
        request = next(lane)
        assert isinstance(request, Request)
        (answers,) = engine(no_heartbeat).exchange([request])
        assert torch.equal(answers.replies.model[:, mask], initial[mask].expand(len(answers.clients), -1))
        assert not answers.replies.weighted_change[:, mask].any()
        assert answers.replies.weighted_change[:, ~mask].all(dim=0).any()
        lane.close()
        simulation.step(evaluate=True)
    state, scored = simulation.state, simulation.scored_model()
    assert scored is not None
    for model in (state.cloud, state.aggregate, scored):
        assert torch.equal(model[mask], initial[mask])
        assert not torch.equal(model[~mask], initial[~mask])


@pytest.mark.parametrize("engine", [ReferenceEngine, make_batched_engine])
def test_bytes_of_private_parts_are_not_counted(engine: Any) -> None:
    """In float64; FedAvg's replies have one number beside the model, as FedPer's have."""
    plain, private = (simulate(algorithm, MLP, engine) for algorithm in (FedAvg(), FedPer()))
    for simulation in (plain, private):
        simulation.step()
    cohort = len(plain.cohort(1))
    assert plain.state.bytes_down - private.state.bytes_down == cohort * 8 * HEAD
    assert plain.state.bytes_up - private.state.bytes_up == cohort * 8 * HEAD


def test_two_private_models_differ_in_their_private_part_alone() -> None:
    simulation = simulate(FedPer(), MLP, ReferenceEngine)
    for _ in range(3):
        simulation.step()
    mask = mask_of(simulation)
    one, other = (simulation.personal_model(client) for client in simulation.clients_with_models()[:2])
    assert torch.equal(one[~mask], other[~mask])
    assert not torch.equal(one[mask], other[mask])
    assert torch.equal(one[~mask], simulation.state.cloud[~mask])


@pytest.mark.parametrize("engine", [make_batched_engine, StackedEngine], ids=["cpu", "stacked"])
def test_lanes_have_the_bits_of_single_runs(engine: Any) -> None:
    algorithms = [FedPer(), FedAvg(), FedPer(layers=2), FedPer(private="1.bias"), Ditto(), AdaBest(), FedPer()]
    case = MLP._replace(kind="mlp")
    alone, together = ([simulate(one, case, engine) for one in algorithms] for _ in range(2))
    for _ in range(2):
        for simulation in alone:
            simulation.step()
        advance_together([simulation.round() for simulation in together], engine(no_heartbeat))
    for mine, its in zip(together, alone, strict=True):
        assert_same(mine.snapshot(), its.snapshot())


@every_personal
def test_a_restored_run_continues_to_the_last_bit(algorithm: Algorithm, case: Case) -> None:
    whole, first, second = (simulate(algorithm, case, make_batched_engine) for _ in range(3))
    for _ in range(4):
        whole.step()
    for _ in range(2):
        first.step()
    second.restore(first.snapshot())
    for _ in range(2):
        second.step()
    assert_same(whole.snapshot(), second.snapshot())
    for client in whole.clients_with_models():
        assert torch.equal(whole.personal_model(client), second.personal_model(client))


def test_rounds_that_settle_late_have_the_same_personal_models(late: None) -> None:
    """Ditto's first replies have no field at all."""
    for algorithm in (FedPer(), Ditto()):
        plain, begun = (simulate(algorithm, MLP, make_batched_engine) for _ in range(2))
        for _ in range(3):
            plain.step()
            advance_together([begun.round(settled=False)], begun.engine)
        begun.settle()
        assert_same(plain.snapshot(), begun.snapshot())


@dataclass(frozen=True)
class Spoiled(FedPer):
    """FedPer whose clients with an odd number of samples have a private part that isn't finite, in round 2."""

    def client_finish(self, client: Any, message: Any, model: Tensor, context: ClientContext) -> Any:
        assert context.private is not None
        bad = context.private & (context.samples % 2 == 1) & (context.round == 2)
        return super().client_finish(client, message, torch.where(bad, torch.nan, model), context)


@every_engine
def test_a_private_part_that_is_not_finite_is_forgotten_and_reaches_nobody(engine: Any) -> None:
    simulation, sound = (simulate(algorithm, MLP, engine) for algorithm in (Spoiled(), FedPer()))
    for one in (simulation, sound):
        one.step()
        before = {client: one.client_state(client).own.clone() for client in one.clients_with_models()}
        one.step()
    assert torch.equal(simulation.state.cloud, sound.state.cloud)
    task: Any = simulation._task
    spoiled = [client for client in simulation.cohort(2).tolist() if task.samples(client) % 2 == 1]
    assert spoiled
    for client in spoiled:
        own = simulation.client_state(client).own
        assert torch.equal(own, before.get(client, task.initial_model()))


def test_the_limit_of_norms_does_not_count_what_is_private() -> None:
    """The distance between a client's private part and the cloud model's grows; what is sent doesn't."""
    rules = Rules(gate=Gate(limit=NormLimit(1e-9)))
    simulation = simulate(FedPer(private="1+3+5.bias"), MLP, ReferenceEngine, rules=rules)
    lane = simulation.round()
    request = next(lane)
    assert isinstance(request, Request)
    (answers,) = ReferenceEngine(no_heartbeat).exchange([request])
    away = answers.replies.model - simulation.state.cloud
    assert away[:, mask_of(simulation)].count_nonzero() == 0
    assert isinstance(answers, Answers)
    assert all(bool((state.own != simulation.state.cloud).any()) for state in states_by_client(answers).values())


@pytest.mark.parametrize(
    ("algorithm", "case", "words"),
    [
        (
            FedPer(private="5.wieght"),
            MLP,
            r"of FedPer: '5\.wieght' is the name of no .* did you mean '5\.weight'\? Known: ",
        ),
        (
            FedPer(layers=3),
            MLP,
            r"of FedPer: that is the whole model, and nothing of it would be shared; it has 1\.weight",
        ),
        (FedPer(), Case("logistic", (5,)), r"of FedPer: that is the whole model"),
        (FedBN(), MLP, r"of FedBN: the model has no normalisation layers with parameters; it has 1\.weight, "),
    ],
    ids=["mistyped", "too many", "one layer", "no normalisation"],
)
def test_a_part_that_the_model_lacks_is_refused_before_training(algorithm: Algorithm, case: Case, words: str) -> None:
    with pytest.raises(InputError, match=rf"^the private part {words}"):
        simulate(algorithm, case, ReferenceEngine)


def test_an_algorithm_without_personal_models_has_the_latest_ones() -> None:
    simulation = simulate(FedAvg(), MLP, ReferenceEngine)
    simulation.step()
    for client in simulation.clients_with_models():
        assert torch.equal(simulation.personal_model(client), simulation.client_model(client))


def test_a_personal_model_of_a_wrong_shape_is_refused() -> None:
    class Short(FedAvg):
        def personal_model(self, client: Any, message: Any, context: ClientContext) -> Tensor:
            return torch.zeros(3, dtype=torch.float64)

    simulation = simulate(Short(), MLP, ReferenceEngine)
    simulation.step()
    with pytest.raises(
        InputError, match=r"algorithm Short: personal_model returned what can't be a model: it has the "
    ):
        simulation.personal_model(simulation.clients_with_models()[0])


def test_personal_models_are_there_though_replies_do_not_tell_models() -> None:
    class Hidden(Ditto):
        def client_model(self, message: Any, reply: Any, context: Any) -> None:
            return None

    simulation = simulate(Hidden(), MLP, ReferenceEngine)
    simulation.step(cohort=np.array([2, 5]))
    assert simulation.scored_model() is None
    assert simulation.clients_with_models() == [2, 5]
    assert torch.equal(simulation.personal_model(5), simulation.client_state(5).own)
