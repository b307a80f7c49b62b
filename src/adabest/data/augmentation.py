"""Augmentation of training images: pure functions of normalised images and of random bits.

They take any leading batch dimensions, so that every engine can use them. An engine that flips and crops within a
kernel stores the flip and the shifts of an image as one number, its code: see ``encode_flip_crop``.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from adabest import random
from adabest.registry import Registry

Augmentation = Callable[[Tensor, Tensor], Tensor]

_PADDING = 4
_SHIFTS = 2 * _PADDING + 1  # shifts along one axis: −4 … 4
_MIRRORED = 128


def none(images: Tensor, keys: Tensor) -> Tensor:
    """Leaves the images as they are."""
    return images


def flip_crop(images: Tensor, keys: Tensor) -> Tensor:
    """Mirrors an image with probability ½, then with probability ½ zero-pads it by 4 and crops at a uniform offset.

    Args:
        images: ``[..., channels, height, width]``.
        keys: int64 random bits, one word per image, ``[...]``; the four draws of an image are four hashes of its word.
    """
    height, width = images.shape[-2:]
    mirrored, down, right = flip_crop_draws(keys)
    rows = torch.arange(height, device=images.device) + down[..., None]
    columns = torch.arange(width, device=images.device) + right[..., None]
    inside = _inside(rows, height)[..., :, None] & _inside(columns, width)[..., None, :]
    columns = torch.where(mirrored[..., None], width - 1 - columns, columns)
    pixels = rows.clamp(0, height - 1)[..., :, None] * width + columns.clamp(0, width - 1)[..., None, :]
    flat = images.flatten(-2)
    source = pixels.flatten(-2)[..., None, :].expand(flat.shape)
    moved: Tensor = flat.gather(-1, source).reshape(images.shape)
    return torch.where(inside[..., None, :, :], moved, 0.0)


def flip_crop_draws(keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The draws of ``flip_crop``: whether images are mirrored, and by how much they are shifted down and right."""
    draws = [random.bits(0, random.Purpose.AUGMENTATION, keys, which) for which in range(4)]
    cropped = random.uniform(draws[1]) < 0.5
    down, right = (torch.where(cropped, random.below(draw, _SHIFTS) - _PADDING, 0) for draw in draws[2:])
    return random.uniform(draws[0]) < 0.5, down, right


def encode_flip_crop(mirrored: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Codes of flips and shifts, int32: 128 if mirrored, plus 9 (down + 4) + right + 4."""
    return (mirrored * _MIRRORED + (down + _PADDING) * _SHIFTS + right + _PADDING).to(torch.int32)


def decode_flip_crop(codes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Flips and shifts from codes: whether images are mirrored, and by how much they are shifted down and right.

    The kernel ``gather`` of ``engine.gpu.kernels.batch`` decodes with constants of its own: change both together.
    """
    shifts = codes % _MIRRORED
    return codes >= _MIRRORED, shifts // _SHIFTS - _PADDING, shifts % _SHIFTS - _PADDING


def _inside(positions: Tensor, size: int) -> Tensor:
    return (positions >= 0) & (positions < size)


AUGMENTATIONS: Registry[Augmentation] = Registry(
    kind="augmentation",
    group="adabest.augmentations",
    builtin={"none": none, "flip-crop": flip_crop},
)
