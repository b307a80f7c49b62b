"""Built-in classifiers: logistic regression, and the MLP and CNN of the paper."""

from torch import nn

from adabest.errors import InputError

MOST_LAYERS = 1000  # hidden layers, or blocks of a stage: more than any trained model has, and still quick to build


def logistic(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Multinomial logistic regression: one linear layer."""
    return mlp(input_shape, classes, hidden=())


def mlp(input_shape: tuple[int, ...], classes: int, hidden: tuple[int, ...] = (100, 100)) -> nn.Module:
    """Linear layers with ReLU between them; the paper's has two hidden layers of 100.

    Args:
        input_shape: The shape of one input.
        classes: How many classes there are.
        hidden: The widths of the hidden layers.
    """
    if any(width < 1 for width in hidden):
        raise InputError(f"mlp: hidden = {hidden}: a layer needs at least one unit")
    if len(hidden) > MOST_LAYERS:
        raise InputError(f"mlp: hidden names {len(hidden):,} layers; at most {MOST_LAYERS:,} are taken")
    features = 1
    for size in input_shape:
        features *= size
    layers: list[nn.Module] = [nn.Flatten()]
    for width in hidden:
        layers += [nn.Linear(features, width), nn.ReLU()]
        features = width
    return nn.Sequential(*layers, nn.Linear(features, classes))


def cnn(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The paper's CNN for CIFAR: two 5×5 convolutions of 64 with 2×2 max-pooling, then 384, 192 and the classes.

    Its 797,962 parameters for CIFAR-10 are those of the reference code; the paper's width of 394 is a misprint.
    """
    if len(input_shape) != 3 or min(input_shape[1:]) < 16:
        raise InputError(f"cnn needs images of channels × 16 × 16 or larger, not inputs of shape {input_shape}")
    channels, height, width = input_shape
    rows, columns = (((size - 4) // 2 - 4) // 2 for size in (height, width))
    return nn.Sequential(
        nn.Conv2d(channels, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * rows * columns, 384),
        nn.ReLU(),
        nn.Linear(384, 192),
        nn.ReLU(),
        nn.Linear(192, classes),
    )
