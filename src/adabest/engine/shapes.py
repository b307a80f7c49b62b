"""The shapes that the fused operators work on.

Activations of a convolution are ``[clients, images, rows, columns, channels]``: a pixel's channels lie side by side, so
the pixels under one row of a kernel are one run of memory, and a convolution is a matrix product over ``kernel rows``
such runs. Channels are padded with zeros to a multiple of 16, the least that the matrix units take, and a border of
zeros around the pixels stands for the convolution's padding, so that no load needs to ask where it is.

An image that comes straight from the data set has few channels, whose runs would be too short for wide loads. Its runs
are laid out one by one instead ("unfolded"): for each row and output column the pixels under one row of the kernel.
"""

from dataclasses import dataclass

_MULTIPLE = 16
CUT_OFF = 255  # the position in a window of an output that relu has cut off


def padded(count: int, multiple: int = _MULTIPLE) -> int:
    """The next multiple."""
    return -(-count // multiple) * multiple


@dataclass(frozen=True)
class ConvolutionShape:
    """A convolution with what is fused into it.

    Attributes:
        channels: Input channels.
        height: Input rows, without padding.
        width: Input columns, without padding.
        outputs: Output channels.
        kernel: Rows and columns of the kernel.
        padding: Zeros around the input, in rows and columns.
        bias: Whether a bias is added.
        relu: Whether negative outputs are cut off.
        pool: Rows and columns of the output over which the largest value is taken; 1 or 2.
        unfolded: Whether the input comes as runs (see the module's docstring).
        stride: From one output to the next, in rows and columns of the input.
    """

    channels: int
    height: int
    width: int
    outputs: int
    kernel: tuple[int, int]
    padding: tuple[int, int] = (0, 0)
    bias: bool = True
    relu: bool = False
    pool: int = 1
    unfolded: bool = False
    stride: tuple[int, int] = (1, 1)

    @property
    def run(self) -> int:
        """The length of one row of the kernel, over its columns and channels."""
        if self.unfolded:
            return padded(self.kernel[1] * self.channels)
        return self.kernel[1] * padded(self.channels)

    @property
    def depth(self) -> int:
        """The length of the whole kernel: what a matrix product sums over."""
        return self.kernel[0] * self.run

    @property
    def stored_input(self) -> tuple[int, int, int]:
        """Rows, columns and channels of an input image as it is stored, with its border."""
        rows, columns = self.height + 2 * self.padding[0], self.width + 2 * self.padding[1]
        if self.unfolded:
            return rows, self.dense[1], self.run
        return rows, columns, padded(self.channels)

    @property
    def step(self) -> tuple[int, int]:
        """From one output to the next, in rows and columns of the stored input, which has a run for each column."""
        return self.stride[0], 1 if self.unfolded else self.stride[1]

    @property
    def dense(self) -> tuple[int, int]:
        """Rows and columns of the output before pooling."""
        return (
            (self.height + 2 * self.padding[0] - self.kernel[0]) // self.stride[0] + 1,
            (self.width + 2 * self.padding[1] - self.kernel[1]) // self.stride[1] + 1,
        )

    @property
    def pooled(self) -> tuple[int, int]:
        """Rows and columns of the output; what doesn't fill a pool is left out."""
        return self.dense[0] // self.pool, self.dense[1] // self.pool

    @property
    def stored_outputs(self) -> int:
        """Output channels, padded."""
        return padded(self.outputs)


@dataclass(frozen=True)
class LinearShape:
    """A linear layer with what is fused into it.

    Attributes:
        inputs: Features that come in, as they are stored: with the padding of the layer before, a multiple of 16.
        outputs: Features that go out.
        bias: Whether a bias is added.
        relu: Whether negative outputs are cut off.
    """

    inputs: int
    outputs: int
    bias: bool = True
    relu: bool = False

    @property
    def stored_outputs(self) -> int:
        """Features that go out, padded."""
        return padded(self.outputs)


@dataclass(frozen=True)
class NormShape:
    """Normalisation over groups of channels, with what is fused into it.

    Flat features are the channels of an image of one pixel.

    Attributes:
        channels: Channels, or features.
        height: Rows; 1 for features.
        width: Columns; 1 for features.
        groups: Groups of neighbouring channels, each of which is normalised over its channels and all pixels.
        eps: What is added to the variance.
        flat: Whether what comes in and goes out are features.
        relu: Whether negative outputs are cut off.
        pool: Rows and columns of the output over which the largest value is taken; 1 or 2.
    """

    channels: int
    height: int
    width: int
    groups: int
    eps: float
    flat: bool = False
    relu: bool = False
    pool: int = 1

    @property
    def group(self) -> int:
        """Channels of a group."""
        return self.channels // self.groups

    @property
    def stored(self) -> int:
        """Channels, padded."""
        return padded(self.channels)

    @property
    def pooled(self) -> tuple[int, int]:
        """Rows and columns of the output; what doesn't fill a pool is left out."""
        return self.height // self.pool, self.width // self.pool


@dataclass(frozen=True)
class PoolShape:
    """Pooling over windows of any size.

    Attributes:
        channels: Channels.
        height: Rows of the input.
        width: Columns of the input.
        kernel: Rows and columns of a window.
        stride: From one window to the next, in rows and columns.
        padding: Pixels around the input, in rows and columns: zeros for a mean, for the largest value none.
        mean: Whether the mean is taken; else the largest value.
        relu: Whether negative outputs are cut off; only behind the largest value.
    """

    channels: int
    height: int
    width: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int] = (0, 0)
    mean: bool = False
    relu: bool = False

    @property
    def taps(self) -> int:
        """Pixels of a window."""
        return self.kernel[0] * self.kernel[1]

    @property
    def stored(self) -> int:
        """Channels, padded."""
        return padded(self.channels)

    @property
    def pooled(self) -> tuple[int, int]:
        """Rows and columns of the output; windows that end outside are left out."""
        return (
            (self.height + 2 * self.padding[0] - self.kernel[0]) // self.stride[0] + 1,
            (self.width + 2 * self.padding[1] - self.kernel[1]) // self.stride[1] + 1,
        )


@dataclass(frozen=True)
class SumShape:
    """A sum of two tensors with what is fused into it.

    Flat features are the channels of an image of one pixel.

    Attributes:
        channels: Channels, or features.
        height: Rows; 1 for features.
        width: Columns; 1 for features.
        flat: Whether what comes in and goes out are features.
        relu: Whether negative sums are cut off.
    """

    channels: int
    height: int = 1
    width: int = 1
    flat: bool = False
    relu: bool = False

    @property
    def stored(self) -> int:
        """Channels, padded."""
        return padded(self.channels)


@dataclass(frozen=True)
class InputShape:
    """How a sample of the data set becomes an input of the first layer.

    Attributes:
        channels: Channels of a sample; 1 where samples aren't images.
        height: Rows of a sample; 1 where samples aren't images.
        width: Columns of a sample, or all its features.
        run: Pixels that a run holds: the kernel's columns if the input is unfolded, otherwise 1; 0 where samples stay
            flat, as a linear layer takes them.
        padding: Zeros around the pixels, in rows and columns.
        stored: The shape in which an input is stored.
        step: From one run to the next, in pixels.
    """

    channels: int
    height: int
    width: int
    run: int
    padding: tuple[int, int]
    stored: tuple[int, ...]
    step: int = 1


def unfolded_or_not(shape: ConvolutionShape) -> InputShape:
    """The input that a first convolution reads."""
    run, step = (shape.kernel[1], shape.stride[1]) if shape.unfolded else (1, 1)
    return InputShape(shape.channels, shape.height, shape.width, run, shape.padding, shape.stored_input, step)


def channels_last(channels: int, height: int, width: int) -> InputShape:
    """The input that a first layer reads whose images have no border."""
    return InputShape(channels, height, width, 1, (0, 0), (height, width, padded(channels)))


def flat(channels: int, height: int, width: int) -> InputShape:
    """The input that a first layer of flat features reads."""
    features = padded(channels * height * width)
    return InputShape(channels, height, width, 0, (0, 0), (features,))
