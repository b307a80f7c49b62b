"""What a GPU refuses at a launch and an interpreter doesn't: grids that are too long, and too much shared memory."""

from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton isn't installed")

from adabest.engine.gpu.kernels import convolution, pooling
from adabest.engine.gpu.kernels.buffers import Pace
from adabest.engine.gpu.kernels.launches import shared_memory
from adabest.engine.shapes import ConvolutionShape, PoolShape

LONGEST = 65_535  # of the second and the third axis of a grid
META = torch.device("meta")
Launches = list[tuple[tuple[int, ...], dict[str, Any]]]


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    """The grids and options of what would be launched."""
    found: Launches = []
    for module in (convolution, pooling):
        monkeypatch.setattr(module, "launch", lambda _kernel, grid, *_, **options: found.append((grid, options)))
    return found


def zeros(*shape: int, kind: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.zeros(shape, dtype=kind, device=META)


PACE = Pace(zeros(1, kind=torch.int32), zeros(1, kind=torch.int32))


@pytest.mark.parametrize(
    ("shape", "images"),
    [
        (PoolShape(64, 32, 32, (3, 3), (1, 1), (1, 1), mean=True), 200),
        (PoolShape(64, 112, 112, (3, 3), (2, 2), (1, 1)), 256),
        (PoolShape(2048, 7, 7, (7, 7), (7, 7), mean=True), 500),
    ],
)
def test_grids_of_pooling_are_short_but_for_the_first_axis(shape: PoolShape, images: int, launches: Launches) -> None:
    x = zeros(7, images, shape.height, shape.width, shape.stored)
    y = zeros(7, images, *shape.pooled, shape.stored)
    kind = None if shape.mean else zeros(*y.shape, kind=torch.uint8)
    pooling.pool(shape, PACE, x, y, kind)
    pooling.pool_gradient(shape, PACE, y, kind, x)
    assert len(launches) == 2
    for grid, _ in launches:
        assert max(grid[1:]) <= LONGEST
        assert grid[-1] == 7


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("outputs", [64, 128, 192, 256, 512, 1024])
def test_gradients_of_inputs_have_room_for_any_number_of_outputs(
    outputs: int, kind: torch.dtype, launches: Launches
) -> None:
    """Loads of a turn of the loop are kept for each stage; a single stage keeps none beside those in use."""
    shape = ConvolutionShape(64, 8, 8, outputs, (3, 3), (1, 1))
    dense, dx = zeros(1, 4, 8, 8, outputs, kind=kind), zeros(1, 4, 8, 8, 64, kind=kind)
    convolution.input_gradient(shape, PACE, dense, zeros(1, 9 * 64 * outputs, kind=kind), dx, precision="tf32")
    ((_, options),) = launches
    blocks = convolution.BLOCKS["input gradient", kind.itemsize]
    stages = options["num_stages"]
    assert stages == 1 or stages * outputs * (blocks.pixels + 64) * kind.itemsize <= shared_memory(META)
    assert outputs > 192 or stages == blocks.stages, "narrow layers keep the stages that were measured"
