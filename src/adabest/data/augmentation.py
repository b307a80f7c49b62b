"""Augmentation of training images, as pure functions of the images and of random bits.

They act on normalised images and on any leading batch dimensions, so that every engine can use them.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from adabest import random
from adabest.registry import Registry

Augmentation = Callable[[Tensor, Tensor], Tensor]

PADDING = 4


def none(images: Tensor, keys: Tensor) -> Tensor:
    """Leaves the images as they are."""
    return images


def flip_crop(images: Tensor, keys: Tensor) -> Tensor:
    """Mirrors an image with probability ½, then with probability ½ zero-pads it by 4 and crops at a uniform offset.

    Args:
        images: ``[..., channels, height, width]``.
        keys: int64 random bits, one word an image, ``[...]``; the four draws of an image are four hashes of its word.
    """
    height, width = images.shape[-2:]
    mirrored, down, right = flip_crop_moves(keys)
    rows = torch.arange(height, device=images.device) + down[..., None]
    columns = torch.arange(width, device=images.device) + right[..., None]
    inside = _inside(rows, height)[..., :, None] & _inside(columns, width)[..., None, :]
    columns = torch.where(mirrored[..., None], width - 1 - columns, columns)
    pixels = rows.clamp(0, height - 1)[..., :, None] * width + columns.clamp(0, width - 1)[..., None, :]
    flat = images.flatten(-2)
    source = pixels.flatten(-2)[..., None, :].expand(flat.shape)
    moved: Tensor = flat.gather(-1, source).reshape(images.shape)
    return torch.where(inside[..., None, :, :], moved, 0.0)


def flip_crop_moves(keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What ``flip_crop`` does to images: whether they are mirrored, and by how much they are shifted down and right."""
    draws = [random.bits(0, random.Purpose.AUGMENTATION, keys, which) for which in range(4)]
    cropped = random.uniform(draws[1]) < 0.5
    down, right = (torch.where(cropped, random.below(draw, 2 * PADDING + 1) - PADDING, 0) for draw in draws[2:])
    return random.uniform(draws[0]) < 0.5, down, right


def _inside(positions: Tensor, size: int) -> Tensor:
    return (positions >= 0) & (positions < size)


AUGMENTATIONS: Registry[Augmentation] = Registry(
    kind="augmentation",
    group="adabest.augmentations",
    builtin={"none": none, "flip-crop": flip_crop},
)
