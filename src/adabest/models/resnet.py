"""A small residual network whose normalisation keeps no state, so that nothing leaks between clients."""

from torch import Tensor, nn

from adabest.errors import InputError
from adabest.models.classifiers import MOST_LAYERS

_GROUP = 8  # channels that are normalised together


class _Block(nn.Module):
    """A residual block: two 3×3 convolutions and a shortcut (He et al., *Deep residual learning*, 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.GroupNorm(outputs // _GROUP, outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.GroupNorm(outputs // _GROUP, outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """The sum of body and shortcut, through ReLU."""
        result: Tensor = self.relu(self.body(x) + self.shortcut(x))
        return result


def resnet(input_shape: tuple[int, ...], classes: int, width: int = 16, blocks: int = 1) -> nn.Module:
    """A ResNet for small images with GroupNorm (Wu and He, 2018) in place of BatchNorm.

    A 3×3 convolution, then three stages of residual blocks with ``width``, twice and four times as many channels, each
    after the first at half the resolution, then the mean over all pixels and a linear layer. With one block a stage
    and 16 channels it has eight layers with weights and 77,850 parameters on CIFAR-10.

    Args:
        input_shape: The shape of one input.
        classes: How many classes there are.
        width: Channels of the first stage, a multiple of 8.
        blocks: Residual blocks of a stage.
    """
    if len(input_shape) != 3 or min(input_shape[1:]) < 4:
        raise InputError(f"resnet needs images of channels × 4 × 4 or larger, not inputs of shape {input_shape}")
    if width < _GROUP or width % _GROUP != 0:
        raise InputError(f"resnet: width = {width}: it must be a multiple of {_GROUP}, from {_GROUP}")
    if not 1 <= blocks <= MOST_LAYERS:
        raise InputError(f"resnet: blocks = {blocks}: a stage needs at least one, and has at most {MOST_LAYERS:,}")
    layers: list[nn.Module] = [
        nn.Conv2d(input_shape[0], width, 3, padding=1, bias=False),
        nn.GroupNorm(width // _GROUP, width),
        nn.ReLU(),
    ]
    channels = width
    for stage in range(3):
        for block in range(blocks):
            outputs = width * 2**stage
            layers.append(_Block(channels, outputs, stride=2 if stage > 0 and block == 0 else 1))
            channels = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
