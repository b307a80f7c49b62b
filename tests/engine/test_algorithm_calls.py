"""What an algorithm returns is held against what it declares, whatever the engine, alone and in lanes."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
from faulty import FAULTS, Keeper, faulty
from side_by_side import Case, StackedEngine, simulate
from torch import Tensor

from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.base import Algorithm, ServerContext, UndeclaredPopulationError, Update
from adabest.algorithms.fedavg import FedAvg
from adabest.engine.lanes import advance_together
from adabest.engine.reference import ReferenceEngine
from adabest.engine.server_step import ServerStep, take_stacked
from adabest.engine.simulation import Simulation
from adabest.errors import InputError
from adabest.runs.build import make_batched_engine
from adabest.tasks.base import no_heartbeat

CASE = Case("mlp,hidden=5", (1, 5, 5))
PARAMETERS = len(CASE.task().initial_model())
ENGINES: dict[str, Callable[..., Any]] = {
    "reference": ReferenceEngine,
    "cores": make_batched_engine,
    "stacked": StackedEngine,
}
every_engine = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
every_fault = pytest.mark.parametrize("name", FAULTS)


def expected(name: str) -> str:
    return f"algorithm Faulty: {FAULTS[name].words}".replace("[P]", f"[{PARAMETERS}]")


def federation(algorithm: Algorithm, engine: Callable[..., Any] = ReferenceEngine) -> Simulation:
    return simulate(algorithm, CASE, engine)


@every_engine
@every_fault
def test_a_result_of_the_wrong_form_is_refused_in_the_first_round(name: str, engine: Callable[..., Any]) -> None:
    with pytest.raises(InputError) as caught:
        federation(faulty(name), engine).step(evaluate=True)
    assert str(caught.value).startswith(expected(name))


@every_engine
@every_fault
def test_a_result_of_the_wrong_form_is_refused_in_lanes(name: str, engine: Callable[..., Any]) -> None:
    algorithms = AdaBest(), faulty(name), Keeper()

    def together() -> None:
        advance_together([federation(one).round(evaluate=True) for one in algorithms], engine(no_heartbeat))

    with pytest.raises(InputError) as caught:
        together()
    assert str(caught.value).startswith(expected(name))


@every_engine
def test_an_algorithm_without_a_mistake_is_as_before(engine: Callable[..., Any]) -> None:
    keeper, fedavg = federation(Keeper(), engine), federation(FedAvg(), engine)
    for simulation in (keeper, fedavg):
        simulation.step()
        simulation.step(evaluate=True)
    assert torch.equal(keeper.state.cloud, fedavg.state.cloud)


@pytest.mark.parametrize("name", ["cloud of one number", "cloud in float32"])
def test_a_step_that_is_wrong_only_where_runs_are_stacked_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, where steps of several runs are one operation."""

    class Stacked(Keeper):
        def server_step(self, server: Any, cloud: Tensor, replies: Any, context: Any) -> Update:
            right = super().server_step(server, cloud, replies, context)
            wrong: Update = FAULTS[name].change(right)
            return wrong if cloud.ndim > 1 else right

    def stacked(steps: list[ServerStep]) -> Any:
        return take_stacked(steps) if len(steps) > 1 else [step.alone() for step in steps]

    monkeypatch.setattr("adabest.engine.lanes.take_server_steps", stacked)
    simulations = [federation(Stacked()) for _ in range(2)]
    with pytest.raises(InputError, match="algorithm Stacked: server_step returned an Update"):
        advance_together([one.round() for one in simulations], ReferenceEngine(no_heartbeat))


def test_a_field_of_any_form_may_change_its_shape() -> None:
    class Growing(Keeper):
        class Server(NamedTuple):
            history: Tensor

        def server_init(self, cloud: Tensor) -> Any:
            return self.Server(cloud.new_zeros(0))

        def server_step(self, server: Any, cloud: Tensor, replies: Any, context: Any) -> Update:
            aggregate = replies.mean("model", "samples")
            return Update(self.Server(torch.cat([server.history, aggregate[:1]])), aggregate, cloud=aggregate)

    simulation = federation(Growing())
    for _ in range(3):
        simulation.step()
    assert simulation.state.server.history.shape == (3,)


def test_a_mistake_of_a_later_round_is_refused_there() -> None:
    class Late(Keeper):
        def server_step(self, server: Any, cloud: Tensor, replies: Any, context: ServerContext) -> Update:
            update = super().server_step(server, cloud, replies, context)
            return update._replace(cloud=update.cloud.sum()) if context.round == 3 else update

    simulation = federation(Late())
    simulation.step()
    simulation.step()
    with pytest.raises(InputError, match="algorithm Late: server_step returned an Update"):
        simulation.step()
    assert simulation.state.round == 2


def test_a_message_without_the_cloud_model_is_refused() -> None:
    class Mute(Keeper):
        class Message(NamedTuple):
            model: Tensor

        def downlink(self, server: Any, cloud: Tensor, context: Any) -> Any:
            return self.Message(cloud)

    with pytest.raises(InputError, match="Mute: declares a Message of model; one of its fields should be cloud: Model"):
        federation(Mute()).step()


def test_a_server_number_of_several_is_refused() -> None:
    class Talker(Keeper):
        def server_numbers(self, server: Any) -> Mapping[str, Tensor]:
            return {"move": server.move}

    with pytest.raises(InputError, match=rf"Talker: server_numbers returned move of the shape \[{PARAMETERS}\]; it"):
        federation(Talker()).step(evaluate=True)


def test_an_estimate_of_one_number_is_refused() -> None:
    class Short(Keeper):
        def client_estimate(self, client: Any, message: Any, context: Any) -> Tensor:
            short: Tensor = client.last[..., :1]
            return short

    with pytest.raises(InputError, match=r"Short: client_estimate returned what can't be an h_i: it has the shape \[1"):
        federation(Short()).step(evaluate=True)


def test_a_population_that_is_not_declared_is_an_error_for_people() -> None:
    class Curious(Keeper):
        def server_step(self, server: Any, cloud: Tensor, replies: Any, context: ServerContext) -> Update:
            return Update(server, cloud, cloud / context.population.size)

    with pytest.raises(UndeclaredPopulationError, match="needs_population = True") as caught:
        federation(Curious()).step()
    assert isinstance(caught.value, InputError)


class MisspeltScore(FedAvg):
    scored_weight = "sample"


class VectorAsWeight(FedAvg):
    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"model": ("samples",), "samples": ("model",)}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (MisspeltScore, "MisspeltScore: declares scored_weight = 'sample'; it should be 'one' or 'samples'"),
        (
            VectorAsWeight,
            "VectorAsWeight: declares a mean of samples under model, which is a vector; a weight should be",
        ),
    ],
)
def test_a_weight_that_weighs_nothing_is_refused(make: type[Algorithm], words: str) -> None:
    with pytest.raises(InputError, match=words):
        federation(make())
