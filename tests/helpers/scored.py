"""The scored model of a federation that has one."""

from torch import Tensor

from adabest.engine.simulation import Simulation


def scored_model(simulation: Simulation) -> Tensor:
    """The scored model of a federation whose algorithm must have one."""
    model = simulation.scored_model()
    assert model is not None
    return model
