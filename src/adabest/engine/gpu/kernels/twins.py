"""The fused operators in plain torch: what the Triton kernels must equal, and what runs where there is no Triton.

They have the names and arguments of the kernels, work in any precision and on any device, and write into the same
buffers. Clients that have made all their steps are computed along and left alone by ``update``.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from adabest.data.augmentation import decode_flip_crop
from adabest.engine import sample_table
from adabest.engine.cohort_table import CohortTable, DrawKeys
from adabest.engine.gpu.kernels.buffers import Direction, Moments, Pace, Parts, Rates, Region, Source
from adabest.engine.shapes import CUT_OFF, ConvolutionShape, InputShape, LinearShape, NormShape, PoolShape
from adabest.federation.batches import MISSING, Batching

_DEAD = 4  # the position in a pool of an output that relu has cut off


def gather(shape: InputShape, source: Source, pace: Pace, out: Tensor) -> None:
    """The batch of every client, normalised, flipped and cropped, and laid out as the first layer wants it.

    The batch's first sample stands in the places of those that it lacks.

    Args:
        shape: How.
        source: What.
        pace: When.
        out: ``[clients, batch, *shape.stored]``.
    """
    step = pace.step.to(torch.int64)
    chosen = source.chosen.index_select(0, step)
    if source.counts is not None:
        chosen = torch.where(chosen == MISSING, chosen[..., :1], chosen)
    images = source.inputs[chosen.flatten().to(torch.int64)].reshape(-1, shape.channels, shape.height, shape.width)
    values = images
    if out.is_floating_point():  # else they are ids
        values = (images.to(out.dtype) - source.mean.view(-1, 1, 1)) / source.deviation.view(-1, 1, 1)
    if source.flip_crop_codes is not None:
        values = _flipped_and_cropped(values, source.flip_crop_codes.index_select(0, step).flatten())
    place(shape, values, out)


def place(shape: InputShape, images: Tensor, out: Tensor) -> None:
    """Lays ready-made inputs ``[inputs, channels, height, width]`` out as the first layer wants them."""
    if shape.run == 0:
        out.flatten(0, 1)[:, : images[0].numel()] = images.flatten(1)
        return
    down, right = shape.padding
    bordered = functional.pad(images, (right, right, down, down)).permute(0, 2, 3, 1)
    runs = bordered.unfold(2, shape.run, shape.step).transpose(3, 4).flatten(3)
    out.flatten(0, 1)[..., : runs.shape[-1]] = runs


def _flipped_and_cropped(images: Tensor, codes: Tensor) -> Tensor:
    height, width = images.shape[-2:]
    mirrored, down, right = decode_flip_crop(codes)
    rows = torch.arange(height, device=images.device) + down[:, None]
    columns = torch.arange(width, device=images.device) + right[:, None]
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
    columns = torch.where(mirrored[:, None], width - 1 - columns, columns)
    pixels = rows.clamp(0, height - 1)[:, :, None] * width + columns.clamp(0, width - 1)[:, None, :]
    flat = images.flatten(2)
    moved = flat.gather(2, pixels.flatten(1)[:, None, :].expand(flat.shape).to(torch.int64)).view(images.shape)
    return torch.where(inside[:, None], moved, torch.zeros((), dtype=images.dtype, device=images.device))


def convolve(
    shape: ConvolutionShape, pace: Pace, x: Tensor, w: Tensor, bias: Tensor | None, y: Tensor, kind: Tensor | None
) -> None:
    """Convolution, bias, relu and pooling.

    Args:
        shape: The convolution.
        pace: Unused here.
        x: ``[clients, images, *shape.stored_input]``.
        w: ``[clients, shape.depth · outputs]``.
        bias: ``[clients, outputs]``.
        y: The output, ``[clients, images, rows, columns, outputs]``; its border, if it is larger than
            ``shape.pooled``, is left as it is.
        kind: For each output which input of its pool it is, 4 where relu has cut it off; None if nobody will ask.
    """
    clients, images = x.shape[:2]
    scores = torch.bmm(_patches(shape, x), w.view(clients, shape.depth, -1))
    if bias is not None:
        scores = scores + bias[:, None, :]
    scores = scores.view(clients, images, *shape.dense, -1)
    best, where = _largest_of_pools(scores, shape.pooled, shape.pool, relu=shape.relu)
    interior(y, shape.pooled).copy_(best)
    if kind is not None:
        kind.copy_(where)


def _largest_of_pools(scores: Tensor, pooled: tuple[int, int], pool: int, *, relu: bool) -> tuple[Tensor, Tensor]:
    """The largest score of each pool, through relu, and which of its pool that is."""
    rows, columns = pooled
    pools = scores[:, :, : rows * pool, : columns * pool].unflatten(2, (rows, pool)).unflatten(4, (columns, pool))
    best, where = pools.permute(0, 1, 2, 4, 6, 3, 5).flatten(5).max(dim=-1)
    if relu:
        where = where.masked_fill(~(best > 0), _DEAD)
        best = best.clamp(min=0)
    return best, where


def spread(shape: ConvolutionShape, pace: Pace, dy: Tensor, kind: Tensor, dense: Tensor, bias: Tensor) -> None:
    """The gradient before pooling and relu, out of the one after, and its sums for the bias.

    Args:
        shape: The convolution.
        pace: Unused here.
        dy: ``[clients, images, *shape.pooled, outputs]``.
        kind: What ``convolve`` wrote.
        dense: The result, ``[clients, images, *shape.dense, outputs]``.
        bias: Partial sums over images, ``[clients, parts, outputs]``.
    """
    _put_before_pools(dy, kind, shape.pool, dense)
    bias.zero_()
    bias[:, 0] = dense.to(bias.dtype).sum(dim=(1, 2, 3))


def _put_before_pools(dy: Tensor, kind: Tensor, pool: int, dense: Tensor) -> None:
    """Puts gradients to the outputs that pools have taken, and zeros to all others of the pools."""
    rows, columns = dy.shape[2:4]
    for position in range(pool**2):
        down, right = divmod(position, pool)
        into = dense[:, :, down : rows * pool : pool, right : columns * pool : pool]
        into.copy_(torch.where(kind == position, dy, torch.zeros((), dtype=dy.dtype, device=dy.device)))


def input_gradient(
    shape: ConvolutionShape, pace: Pace, dense: Tensor, w: Tensor, dx: Tensor, other: Tensor | None = None
) -> None:
    """The gradient with respect to a convolution's input.

    Args:
        shape: The convolution.
        pace: Unused here.
        dense: What ``spread`` wrote.
        w: ``[clients, shape.depth · outputs]``.
        dx: The result, without border, ``[clients, images, height, width, channels]``.
        other: The gradient of the same tensor by others that read it, which is added; None for none.
    """
    clients, images = dense.shape[:2]
    kernel = w.view(clients, shape.depth, -1)
    patches = torch.bmm(dense.flatten(1, 3), kernel.transpose(1, 2))
    patches = patches.view(clients, images, *shape.dense, *shape.kernel, -1)
    bordered = patches.new_zeros((clients, images, *shape.stored_input))
    (rows, columns), (down, right) = shape.dense, shape.stride
    for row in range(shape.kernel[0]):
        for column in range(shape.kernel[1]):
            last_row, last_column = row + (rows - 1) * down, column + (columns - 1) * right
            bordered[:, :, row : last_row + 1 : down, column : last_column + 1 : right] += patches[..., row, column, :]
    gradient = interior(bordered, (shape.height, shape.width))
    dx.copy_(gradient if other is None else gradient + other)


def add(pace: Pace, a: Tensor, b: Tensor | None, y: Tensor, *, relu: bool = False, shown: Tensor | None = None) -> None:
    """The sum of two activations, or of two gradients.

    Args:
        pace: Unused here.
        a: ``[clients, images, rows, columns, channels]``; may be a part of a tensor with a border.
        b: Of the same shape; None for none.
        y: The result, of the same shape.
        relu: Whether negative sums are cut off.
        shown: Of a gradient, what relu has let through; where it isn't positive, the result is 0. None for all.
    """
    total = a if b is None else a + b
    if relu:
        total = total.clamp(min=0)
    y.copy_(total if shown is None else total.masked_fill(~(shown > 0), 0.0))


def weight_gradient(shape: ConvolutionShape, pace: Pace, x: Tensor, dense: Tensor, partial: Tensor) -> None:
    """The gradient with respect to a kernel, as partial sums over images.

    Args:
        shape: The convolution.
        pace: Unused here.
        x: Its input.
        dense: What ``spread`` wrote.
        partial: The result, ``[clients, parts, shape.depth · outputs]``.
    """
    partial.zero_()
    gradient = torch.bmm(_patches(shape, x).transpose(1, 2), dense.flatten(1, 3))
    partial[:, 0] = gradient.flatten(1)


def weight_gradient_of_pools(
    shape: ConvolutionShape, pace: Pace, x: Tensor, dy: Tensor, kind: Tensor, partial: Tensor, bias: Tensor
) -> None:
    """``spread`` and ``weight_gradient`` at once, for a convolution whose input needs no gradient."""
    dense = dy.new_zeros((*dy.shape[:2], *shape.dense, dy.shape[-1]))
    spread(shape, pace, dy, kind, dense, bias)
    weight_gradient(shape, pace, x, dense, partial)


def fold(
    direction: Direction, pace: Pace, weight: Region, partial: Tensor, bias: Region | None, bias_partial: Tensor
) -> None:
    """Sums the partial gradients of a layer's weight and bias, and corrects them."""
    correct(direction, pace, weight, partial.sum(dim=1))
    if bias is not None:
        correct(direction, pace, bias, bias_partial.sum(dim=1))


def correct(direction: Direction, pace: Pace, region: Region, gradient: Tensor) -> None:
    """Puts a gradient ``[clients, size]`` into the direction, corrected."""
    own = gradient.to(direction.d.dtype)
    if direction.minus is not None:
        own = own - region.of(direction.minus)
    corrected = direction.scale[:, None] * own
    if direction.diagonal is not None:
        corrected = corrected * region.of(direction.diagonal)
    if direction.offset is not None:
        corrected = corrected + region.of(direction.offset)
    corrected = corrected + direction.rho[:, None] * region.of(direction.w)
    if direction.momentum is not None and direction.velocity is not None:
        adds_up = (direction.momentum == 1)[:, None]
        corrected = torch.where(adds_up, corrected + region.of(direction.velocity), corrected)
    region.of(direction.d).copy_(corrected)


def linear(shape: LinearShape, pace: Pace, x: Tensor, w: Tensor, bias: Tensor | None, y: Tensor) -> None:
    """A linear layer and relu.

    Args:
        shape: The layer.
        pace: Unused here.
        x: ``[clients, batch, inputs]``.
        w: ``[clients, outputs · inputs]``.
        bias: ``[clients, outputs]`` or more.
        y: The output, ``[clients, batch, padded outputs]``.
    """
    scores = torch.bmm(x, w.view(len(w), shape.outputs, shape.inputs).transpose(1, 2))
    if bias is not None:
        scores = scores + bias[:, None, : shape.outputs]
    y[..., : shape.outputs] = scores.relu() if shape.relu else scores


def linear_input_gradient(shape: LinearShape, pace: Pace, dy: Tensor, w: Tensor, x: Tensor | None, dx: Tensor) -> None:
    """The gradient with respect to a linear layer's input.

    Args:
        shape: The layer.
        pace: Unused here.
        dy: ``[clients, batch, padded outputs]``.
        w: As for ``linear``.
        x: The layer's input, if that is the output of a relu, through which the gradient then goes as well.
        dx: The result, ``[clients, batch, inputs]``.
    """
    gradient = torch.bmm(dy[..., : shape.outputs], w.view(len(w), shape.outputs, shape.inputs))
    dx.copy_(gradient if x is None else gradient.masked_fill(~(x > 0), 0.0))


def linear_weight_gradient(
    shape: LinearShape, pace: Pace, x: Tensor, dy: Tensor, direction: Direction, weight: Region, bias: Region | None
) -> None:
    """The corrected gradients with respect to a linear layer's weight and bias."""
    own = dy[..., : shape.outputs]
    correct(direction, pace, weight, torch.bmm(own.transpose(1, 2), x).flatten(1))
    if bias is not None:
        gradient = own.to(direction.d.dtype).sum(dim=1)
        correct(direction, pace, bias, functional.pad(gradient, (0, bias.size - shape.outputs)))


def normalise(
    shape: NormShape,
    pace: Pace,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    y: Tensor,
    means: Tensor,
    inverses: Tensor,
) -> None:
    """Normalisation of groups of channels, weight and bias, relu and pooling.

    Args:
        shape: The layer.
        pace: Unused here.
        x: ``[clients, images, height, width, padded channels]``.
        weight: ``[clients, padded channels]``; None for ones.
        bias: As ``weight``; None for zeros.
        y: The output, ``[clients, images, rows, columns, padded channels]``; its border, if it is larger than
            ``shape.pooled``, and the padding of channels are left as they are.
        means: Each group's mean, ``[clients, images, groups]``, at least in float32.
        inverses: The reciprocal of each group's deviation, of the same shape.
    """
    groups = x[..., : shape.channels].to(means.dtype).unflatten(-1, (shape.groups, shape.group))
    mean = groups.mean(dim=(2, 3, 5), keepdim=True)
    variance = (groups - mean).square().mean(dim=(2, 3, 5))
    means.copy_(mean[:, :, 0, 0, :, 0])
    inverses.copy_((variance + shape.eps).rsqrt())
    _, scores = _normalised(shape, x, weight, bias, means, inverses)
    best, _ = _largest_of_pools(scores, shape.pooled, shape.pool, relu=shape.relu)
    interior(y, shape.pooled)[..., : shape.channels] = best


def _normalised(
    shape: NormShape, x: Tensor, weight: Tensor | None, bias: Tensor | None, means: Tensor, inverses: Tensor
) -> tuple[Tensor, Tensor]:
    """Normalised inputs, and the same with weight and bias, without the padding of channels."""
    groups = x[..., : shape.channels].to(means.dtype).unflatten(-1, (shape.groups, shape.group))
    centred = groups - means[:, :, None, None, :, None]
    normal = (centred * inverses[:, :, None, None, :, None]).flatten(4)
    scores = normal * _of_channels(shape, weight, normal) if weight is not None else normal
    return normal, scores + _of_channels(shape, bias, normal) if bias is not None else scores


def _of_channels(shape: NormShape, parameter: Tensor, like: Tensor) -> Tensor:
    """A parameter of all channels, to be multiplied with images or added to them."""
    return parameter[:, None, None, None, : shape.channels].to(like.dtype)


def normalise_gradients(
    shape: NormShape,
    pace: Pace,
    x: Tensor,
    dy: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    means: Tensor,
    inverses: Tensor,
    dx: Tensor | None,
    of_weight: Tensor,
    of_bias: Tensor,
) -> None:
    """The gradients of ``normalise``. What relu and pools have taken is found out anew, out of the input.

    Args:
        shape: The layer.
        pace: Unused here.
        x: Its input.
        dy: ``[clients, images, *shape.pooled, padded channels]``.
        weight: As for ``normalise``.
        bias: As for ``normalise``.
        means: What ``normalise`` wrote.
        inverses: What ``normalise`` wrote.
        dx: The gradient of the input, of the input's shape, but for the padding of channels; None for none.
        of_weight: That of the weight, as partial sums over images, ``[clients, parts, padded channels]``.
        of_bias: That of the bias, of the same shape.
    """
    normal, scores = _normalised(shape, x, weight, bias, means, inverses)
    _, kind = _largest_of_pools(scores, shape.pooled, shape.pool, relu=shape.relu)
    gradient = torch.zeros_like(scores)
    _put_before_pools(dy[..., : shape.channels].to(scores.dtype), kind, shape.pool, gradient)
    for partial, own in ((of_weight, gradient * normal), (of_bias, gradient)):
        partial.zero_()
        partial[:, 0, : shape.channels] = own.sum(dim=(1, 2, 3))
    if dx is not None:
        if weight is not None:
            gradient = gradient * _of_channels(shape, weight, normal)
        slope, place = (own.unflatten(-1, (shape.groups, shape.group)) for own in (gradient, normal))
        mean, along = (own.mean(dim=(2, 3, 5), keepdim=True) for own in (slope, slope * place))
        found = (slope - mean - place * along) * inverses[:, :, None, None, :, None]
        dx[..., : shape.channels] = found.flatten(4)


def pool(shape: PoolShape, pace: Pace, x: Tensor, y: Tensor, kind: Tensor | None) -> None:
    """Pooling over windows of any size, and relu.

    Args:
        shape: The pooling.
        pace: Unused here.
        x: ``[clients, images, height, width, padded channels]``.
        y: The output, ``[clients, images, rows, columns, padded channels]``; its border, if it is larger than
            ``shape.pooled``, is left as it is.
        kind: For each output which input of its window it is, ``CUT_OFF`` where relu has cut it off; None for means.
    """
    (rows, columns), (down, right) = shape.kernel, shape.padding
    bordered = functional.pad(x, (0, 0, right, right, down, down), value=0.0 if shape.mean else -torch.inf)
    windows = bordered.unfold(2, rows, shape.stride[0]).unfold(3, columns, shape.stride[1]).flatten(5)
    if kind is None:
        interior(y, shape.pooled).copy_(windows.mean(dim=-1))
        return
    best, where = windows.max(dim=-1)
    if shape.relu:
        where = where.masked_fill(~(best > 0), CUT_OFF)
        best = best.clamp(min=0)
    interior(y, shape.pooled).copy_(best)
    kind.copy_(where)


def pool_gradient(shape: PoolShape, pace: Pace, dy: Tensor, kind: Tensor | None, dx: Tensor) -> None:
    """The gradient with respect to the input of ``pool``.

    Args:
        shape: The pooling.
        pace: Unused here.
        dy: ``[clients, images, *shape.pooled, padded channels]``.
        kind: What ``pool`` wrote; None for means.
        dx: The result, of the input's shape.
    """
    (height, width), (rows, columns), (down, right) = dx.shape[2:4], shape.pooled, shape.stride
    size = (height + 2 * shape.padding[0], width + 2 * shape.padding[1])
    sums = torch.promote_types(dx.dtype, torch.float32)
    bordered = dx.new_zeros((*dx.shape[:2], *size, dx.shape[-1]), dtype=sums)
    for tap in range(shape.taps):
        row, column = divmod(tap, shape.kernel[1])
        own = dy / shape.taps if kind is None else torch.where(kind == tap, dy, torch.zeros_like(dy))
        bordered[:, :, row : row + down * rows : down, column : column + right * columns : right] += own
    dx.copy_(interior(bordered, (height, width)))


def cross_entropy(
    source: Source, pace: Pace, scores: Tensor, classes: int, dy: Tensor, losses: Tensor, right: Tensor
) -> None:
    """The loss of every sample, whether it is classified rightly, and the gradient of the batch's mean.

    All three are zero for a sample that the batch lacks. Where batches may lack samples, the mean is over
    ``source.counts``.

    Args:
        source: Where the labels are.
        pace: Which step.
        scores: ``[clients, batch, padded classes]``.
        classes: How many there are.
        dy: The gradient, of the same shape; zero in the padding.
        losses: ``[steps, clients, batch]``, of which the current step is written.
        right: Whether each sample is classified rightly, of the same shape as ``losses``.
    """
    step = pace.step.to(torch.int64)
    chosen = source.chosen.index_select(0, step)[0].to(torch.int64)
    labels = source.labels[chosen if source.counts is None else chosen.clamp(min=0)]
    precise = torch.promote_types(scores.dtype, torch.float32)
    logarithms = functional.log_softmax(scores[..., :classes].to(precise), dim=-1)
    true = functional.one_hot(labels, classes)
    loss = -logarithms.gather(-1, labels[..., None])[..., 0]
    hit = scores[..., :classes].argmax(dim=-1) == labels
    gradient = logarithms.exp() - true
    if source.counts is None:
        gradient = gradient / scores.shape[1]
    else:
        missing = chosen == MISSING
        loss, hit = loss.masked_fill(missing, 0.0), hit & ~missing
        count = source.counts.index_select(0, step)[0].to(precise)
        gradient = (gradient / count[:, None, None]).masked_fill(missing[..., None], 0.0)
    losses.index_copy_(0, step, loss[None].to(losses.dtype))
    right.index_copy_(0, step, hit[None].to(right.dtype))
    dy[..., :classes] = gradient


def update(direction: Direction, pace: Pace, rates: Rates, half: Tensor) -> None:
    """One step, w ← w − η (clip(d) + (λ + ρ′) w), for clients that are still training.

    Args:
        direction: d and w.
        pace: Who is still training.
        rates: η, the clip and the decay.
        half: A copy of the parameters in the precision of the operands; w itself where that is the same.
    """
    d, w = direction.d, direction.w
    factor = _clip_factor(d, rates)
    moved = w - rates.eta[:, None] * (factor[:, None] * d + rates.decay[:, None] * w)
    torch.where((pace.step < pace.steps)[:, None], moved, w, out=w)
    if half is not w:
        half.copy_(w)


def _clip_factor(d: Tensor, rates: Rates) -> Tensor:
    norm = torch.linalg.vector_norm(d, dim=1)
    # A norm too large for a number must end the run, not shrink the step to nothing.
    factor = torch.where(torch.isinf(norm), torch.nan, (rates.clip / norm).clamp(max=1.0))
    return torch.where(torch.isinf(rates.clip), 1.0, factor)


def whole_update(
    direction: Direction, pace: Pace, rates: Rates, half: Tensor, previous: Tensor | None, moments: Moments | None
) -> None:
    """One step with momentum, by Adam, or with an anchor that is the point before, for clients that still train.

    m ← b m + clip(d), or m ← d where b = 1, of which the step is clip(d); w ← w − η (m + (λ + ρ′) w).

    Args:
        direction: d, w, and m if there is momentum.
        pace: Who is still training.
        rates: η, the clip and the decay.
        half: A copy of the parameters in the precision of the operands; w itself where that is the same.
        previous: Where the point before the step is written; None for nowhere.
        moments: What Adam needs, which gets m; None for plain descent.
    """
    d, w, trains = direction.d, direction.w, (pace.step < pace.steps)[:, None]
    move = _clip_factor(d, rates)[:, None] * d
    if direction.momentum is not None and direction.velocity is not None:
        adds_up = (direction.momentum == 1)[:, None]
        velocity = torch.where(adds_up, d, direction.momentum[:, None] * direction.velocity + move)
        move = torch.where(adds_up, move, velocity)
        torch.where(trains, velocity, direction.velocity, out=direction.velocity)
    if moments is not None:
        beta1, beta2 = moments.beta1[:, None], moments.beta2[:, None]
        first = beta1 * moments.first + (1 - beta1) * move
        second = beta2 * moments.second + (1 - beta2) * move.square()
        root = (second / moments.unbiased2[:, None]).sqrt() + moments.eps[:, None]
        move = first / moments.unbiased1[:, None] / root
        torch.where(trains, first, moments.first, out=moments.first)
        torch.where(trains, second, moments.second, out=moments.second)
    if previous is not None:
        previous.copy_(w)  # of a client that is done nobody asks for it
    moved = w - rates.eta[:, None] * (move + rates.decay[:, None] * w)
    torch.where(trains, moved, w, out=w)
    if half is not w:
        half.copy_(w)


def displace(direction: Direction, pace: Pace, shift: Tensor | None, radius: Tensor | None, point: Tensor) -> None:
    """The point where the gradient is taken: w + shift + r g / ‖g‖.

    Args:
        direction: w; as d, the gradient g, if there is a radius.
        pace: Who is still training.
        shift: A fixed shift, ``[clients, packed parameters]``; None for none.
        radius: r, ``[clients]``; None for none.
        point: The result, in the precision of the operands.
    """
    moved = direction.w if shift is None else direction.w + shift
    if radius is not None:
        norm = torch.linalg.vector_norm(direction.d, dim=1)
        # A gradient of zero has no direction. A norm too large for a number must end the run.
        factor = torch.where(norm == 0, 0.0, torch.where(torch.isinf(norm), torch.nan, radius / norm))
        moved = moved + factor[:, None] * direction.d
    point.copy_(moved)


def parts(shape: ConvolutionShape, images: int) -> Parts:
    """Here a gradient is one sum."""
    return Parts(spread=1, weight=1, pools=1)


def norm_parts(shape: NormShape, images: int) -> int:
    """Here the gradients of a normalisation's weight and bias are one sum each."""
    return 1


def slots(size: int) -> int:
    """Here no sums of squares are kept: ``update`` has all of d before it."""
    return 0


def linear_slots(shape: LinearShape) -> tuple[int, int]:
    """Here no sums of squares are kept for a linear layer's weight and bias either."""
    return 0, 0


def chosen_samples(table: CohortTable, batch: int, batching: Batching = "top-up") -> Tensor:
    """The samples of each step; see ``sample_table.chosen_samples``."""
    return sample_table.chosen_samples(table, batch, batching)


def flip_crop_codes(keys: DrawKeys, steps: int, batch: int) -> Tensor:
    """How each image is flipped and cropped; see ``sample_table.flip_crop_codes``."""
    return sample_table.flip_crop_codes(keys, steps, batch)


def compile_together(work: Callable[[], object]) -> None:
    """Here nothing is compiled, so the function isn't called."""


def interior(bordered: Tensor, inside: tuple[int, int]) -> Tensor:
    """``[clients, images, rows, columns, channels]`` without its border of zeros."""
    down, right = ((bordered.shape[2 + axis] - inside[axis]) // 2 for axis in (0, 1))
    return bordered[:, :, down : down + inside[0], right : right + inside[1]]


def _patches(shape: ConvolutionShape, x: Tensor) -> Tensor:
    """What lies under the kernel at each output, ``[clients, images · outputs, shape.depth]``."""
    clients, images = x.shape[:2]
    client, image, row, pixel, _ = x.stride()
    down, right = shape.step
    size = (clients, images, *shape.dense, shape.kernel[0], shape.run)
    strides = (client, image, down * row, right * pixel, row, 1)
    return x.as_strided(size, strides, x.storage_offset()).flatten(4).flatten(1, 3)
