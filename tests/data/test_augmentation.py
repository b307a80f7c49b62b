"""Flip-and-crop codes."""

import torch

from adabest.data.augmentation import decode_flip_crop, encode_flip_crop, flip_crop_draws


def test_decoded_codes_are_what_was_encoded() -> None:
    drawn = flip_crop_draws(torch.arange(1000))
    assert {len(set(values.tolist())) for values in drawn} == {2, 9}, "mirrored or not, and all shifts"
    assert all(
        torch.equal(one, other) for one, other in zip(drawn, decode_flip_crop(encode_flip_crop(*drawn)), strict=True)
    )


def test_codes_are_the_numbers_that_the_kernel_takes_apart() -> None:
    codes = encode_flip_crop(torch.tensor([False, True, True]), torch.tensor([0, -4, 4]), torch.tensor([0, -4, 3]))
    assert codes.tolist() == [9 * 4 + 4, 128, 128 + 9 * 8 + 7]
    assert codes.dtype == torch.int32
