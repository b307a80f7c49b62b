"""The fused operators as Triton kernels, with the names and arguments of the twins."""

import functools

from adabest.engine.gpu.kernels import (
    batch,
    convolution,
    launches,
    linear,
    normalisation,
    pooling,
    sums,
    tables,
    updates,
)


class Fused:
    """The kernels, with float32 products made in full (``ieee``) or by the matrix units (``tf32``)."""

    gather = staticmethod(batch.gather)
    cross_entropy = staticmethod(batch.cross_entropy)
    spread = staticmethod(convolution.spread)
    parts = staticmethod(convolution.parts)
    add = staticmethod(sums.add)
    normalise = staticmethod(normalisation.normalise)
    normalise_gradients = staticmethod(normalisation.normalise_gradients)
    norm_parts = staticmethod(normalisation.norm_parts)
    pool = staticmethod(pooling.pool)
    pool_gradient = staticmethod(pooling.pool_gradient)
    fold = staticmethod(updates.fold)
    correct = staticmethod(updates.correct)
    update = staticmethod(updates.update)
    whole_update = staticmethod(updates.whole_update)
    displace = staticmethod(updates.displace)
    slots = staticmethod(updates.slots)
    linear_slots = staticmethod(linear.linear_slots)
    compile_together = staticmethod(launches.compile_together)
    chosen_samples = staticmethod(tables.chosen_samples)
    flip_crop_codes = staticmethod(tables.flip_crop_codes)

    def __init__(self, precision: str) -> None:
        bound = functools.partial
        self.convolve = bound(convolution.convolve, precision=precision)
        self.input_gradient = bound(convolution.input_gradient, precision=precision)
        self.weight_gradient = bound(convolution.weight_gradient, precision=precision)
        self.weight_gradient_of_pools = bound(convolution.weight_gradient_of_pools, precision=precision)
        self.linear = bound(linear.linear, precision=precision)
        self.linear_input_gradient = bound(linear.linear_input_gradient, precision=precision)
        self.linear_weight_gradient = bound(linear.linear_weight_gradient, precision=precision)
