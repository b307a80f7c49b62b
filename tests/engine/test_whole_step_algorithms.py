"""The algorithms whose steps take a second gradient, another point, a diagonal or momentum, on the engines."""

import pytest
from odd_models import make
from side_by_side import Case, StackedEngine, assert_alike, simulate
from small import assert_same

from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.base import Algorithm
from adabest.algorithms.bvr_l_sgd import BvrLSgd
from adabest.algorithms.fedlesam import FedLESAM
from adabest.algorithms.fedsam import FedSAM
from adabest.algorithms.fedspeed import FedSpeed
from adabest.algorithms.fsvrg import Fsvrg
from adabest.algorithms.local_momentum import LocalMomentum
from adabest.algorithms.mime import Mime
from adabest.algorithms.mimelite_adam import MimeLiteAdam
from adabest.algorithms.mofedsam import MoFedSAM
from adabest.algorithms.scaffnew import Scaffnew
from adabest.engine.lanes import advance_together
from adabest.engine.local_step import LocalTraining
from adabest.engine.reference import ReferenceEngine
from adabest.runs.build import make_batched_engine
from adabest.tasks.base import no_heartbeat

ALGORITHMS: list[Algorithm] = [
    LocalMomentum(),
    Scaffnew(probability=0.2),
    Fsvrg(),
    Fsvrg(own_rate="by_steps"),
    BvrLSgd(),
    Mime(),
    MimeLiteAdam(),
    FedSAM(),
    MoFedSAM(),
    FedSpeed(),
    FedLESAM(radius=0.1),
]
MLP = Case("mlp,hidden=9x5", (2, 6, 6))
MIXED = Case(make("mixed"), (2, 6, 6))
CLIPPED = LocalTraining(clip=0.5, weight_decay=1e-2, learning_rate_decay=0.9)

each = pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)


@each
@pytest.mark.parametrize("case", [MLP, MIXED], ids=["mlp", "mixed"])
def test_an_algorithm_agrees_with_the_reference(algorithm: Algorithm, case: Case) -> None:
    """In float64, with half of the clients, who come back."""
    assert_alike(algorithm, case, make_batched_engine, rounds=3, training=CLIPPED)


@each
def test_an_algorithm_agrees_with_the_reference_where_clients_are_stacked(algorithm: Algorithm) -> None:
    assert_alike(algorithm, MLP, StackedEngine, rounds=2, training=CLIPPED)


def test_lanes_have_the_bits_of_single_runs() -> None:
    algorithms = [*ALGORITHMS, AdaBest()]
    alone, together = (
        [simulate(algorithm, MLP, make_batched_engine, CLIPPED) for algorithm in algorithms] for _ in range(2)
    )
    engine = make_batched_engine(no_heartbeat)
    for _ in range(2):
        for simulation in alone:
            simulation.step()
        advance_together([simulation.round() for simulation in together], engine)
    for mine, its in zip(together, alone, strict=True):
        assert_same(mine.snapshot(), its.snapshot())


@each
@pytest.mark.parametrize("engine", [ReferenceEngine, make_batched_engine], ids=["reference", "cpu"])
def test_a_restored_run_continues_to_the_last_bit(algorithm: Algorithm, engine: type[ReferenceEngine]) -> None:
    whole, resumed = (simulate(algorithm, MLP, engine, CLIPPED) for _ in range(2))
    for _ in range(2):
        whole.step()
    resumed.restore(whole.snapshot())
    for simulation in (whole, resumed):
        simulation.step()
    assert_same(whole.snapshot(), resumed.snapshot())
