"""The buffers that operators read and write beside activations."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Pace:
    """Which clients are still training.

    Attributes:
        step: The current local step, from 0, int32 ``[1]``.
        steps: K_i, int32 ``[clients]``. A client that has made all its steps is left alone.
    """

    step: Tensor
    steps: Tensor


@dataclass(frozen=True)
class Direction:
    """The corrected gradients of all clients, d = s ⊙ (∇L − minus) + o + ρ w, and what they are computed from.

    What is None exists in no kernel. Where b = 1, m is added to d, which is then the sum that is clipped.

    Attributes:
        d: The result, ``[clients, packed parameters]``.
        w: The parameters.
        offset: o; None if no client has one.
        scale: s, ``[clients]``.
        rho: ρ, ``[clients]``.
        squares: Partial sums of d², ``[clients, slots]``: each slot belongs to one program of one kernel, so nothing
            needs atomic additions and the sum is always the same.
        diagonal: The part of s that is a diagonal.
        minus: The gradient at the anchor.
        momentum: b, ``[clients]``.
        velocity: m.
    """

    d: Tensor
    w: Tensor
    offset: Tensor | None
    scale: Tensor
    rho: Tensor
    squares: Tensor
    diagonal: Tensor | None = None
    minus: Tensor | None = None
    momentum: Tensor | None = None
    velocity: Tensor | None = None


@dataclass(frozen=True)
class Moments:
    """What Adam needs of each client.

    Attributes:
        first: The running mean of directions, ``[clients, packed parameters]``.
        second: That of their squares.
        beta1: β₁, ``[clients]``.
        beta2: β₂, ``[clients]``.
        eps: ε, ``[clients]``.
        unbiased1: 1 − β₁ᵏ of the current step k, ``[clients]``.
        unbiased2: 1 − β₂ᵏ, ``[clients]``.
    """

    first: Tensor
    second: Tensor
    beta1: Tensor
    beta2: Tensor
    eps: Tensor
    unbiased1: Tensor
    unbiased2: Tensor


@dataclass(frozen=True)
class Region:
    """A parameter's place in the packed vector.

    Attributes:
        start: Its first element.
        size: How many elements it has, padding included.
        slot: The first of its slots in ``Direction.squares``.
    """

    start: int
    size: int
    slot: int

    def of(self, packed: Tensor) -> Tensor:
        """The parameter of all clients, ``[clients, size]``, as a view."""
        return packed[:, self.start : self.start + self.size]


@dataclass(frozen=True)
class Source:
    """The data set on the device, and which of it each client uses when.

    Attributes:
        inputs: All training inputs, ``[samples, *shape]``.
        labels: Their labels, ``[samples]``.
        mean: What is subtracted, one value a channel.
        deviation: What it is divided by, one value a channel.
        chosen: The samples of each step, int32 ``[steps, clients, batch]``. ``MISSING`` stands for what a batch lacks,
            always after the samples that it has.
        flip_crop_codes: How each image is flipped and cropped, int32 ``[steps, clients, batch]`` (see
            ``data.augmentation.encode_flip_crop``); None if none is.
        counts: The number of samples over which the gradients of each step are a mean, int32 ``[steps, clients]``;
            None if no batch lacks any, and each step has the mean over its batch.
    """

    inputs: Tensor
    labels: Tensor
    mean: Tensor
    deviation: Tensor
    chosen: Tensor
    flip_crop_codes: Tensor | None
    counts: Tensor | None = None


@dataclass(frozen=True)
class Rates:
    """What the update needs to know of each client, all ``[clients]``.

    Attributes:
        eta: η_t.
        clip: The largest norm of d; infinite for none.
        decay: λ + ρ′.
    """

    eta: Tensor
    clip: Tensor
    decay: Tensor


@dataclass(frozen=True)
class Parts:
    """Into how many partial sums the gradients of a convolution are cut, so that many programs can work on them.

    Attributes:
        spread: Of the bias, by ``spread``.
        weight: Of the weight, by ``weight_gradient``.
        pools: Of weight and bias, by ``weight_gradient_of_pools``.
    """

    spread: int
    weight: int
    pools: int
