"""The scored model of a federation, or what counts in its place."""

from torch import Tensor

from adabest.engine.simulation import Simulation


def scored_model(simulation: Simulation) -> Tensor:
    """The scored model of a federation whose algorithm must have one."""
    model = simulation.scored_model()
    assert model is not None
    return model


def scored_or_aggregate(simulation: Simulation) -> Tensor:
    """The scored model; of a federation that has none, the aggregate, which counts in its place."""
    model = simulation.scored_model()
    return simulation.state.aggregate if model is None else model
