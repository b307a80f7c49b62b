"""Data sets fit together or are refused in words; augmentation does what its one-image description says."""

import copy
import dataclasses
import hashlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from tiny_runs import stripes
from torch import Tensor

from adabest import random
from adabest.data.augmentation import AUGMENTATIONS, flip_crop, none
from adabest.data.dataset import Dataset, Defaults, from_arrays, from_npz
from adabest.data.loading import findable, load_dataset
from adabest.errors import InputError
from adabest.random import Purpose


def arrays(**changes: Any) -> dict[str, Any]:
    """Arrays that fit together, with some replaced."""
    good = {
        "x_train": np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 2, 2),
        "y_train": np.array([0, 1, 2, 0, 1, 2]),
        "x_test": np.zeros((3, 2, 2), dtype=np.float32),
        "y_test": np.array([0, 1, 2]),
    }
    return good | changes


def save(path: Path, **content: Any) -> Path:
    np.savez(path, **content)
    return path


class TestDigits:
    def test_sizes_and_settings(self) -> None:
        data = load_dataset("digits")
        assert (len(data.y_train), len(data.y_test)) == (1437, 360)
        assert data.x_train.dtype == torch.uint8
        assert data.input_shape == (1, 8, 8)
        assert data.classes == 10
        assert data.defaults == Defaults(model="mlp,hidden=50", batch_size=10, weight_decay=1e-4, augmentation="none")

    def test_the_split_uses_every_image_once(self) -> None:
        data, bunch = load_dataset("digits"), load_digits()
        split = [
            (*image, label)
            for x, y in ((data.x_train, data.y_train), (data.x_test, data.y_test))
            for image, label in zip(x[:].flatten(1).tolist(), y.tolist(), strict=True)
        ]
        original = [
            (*image, label) for image, label in zip(bunch.data.astype(int).tolist(), bunch.target.tolist(), strict=True)
        ]
        assert sorted(split) == sorted(original)

    def test_the_split_is_stratified(self) -> None:
        data = load_dataset("digits")
        test, train = data.y_test.bincount(), data.y_train.bincount()
        quotas = (test + train) * (360 / 1797)
        assert bool(((test - quotas).abs() < 1).all())

    def test_the_split_never_changes(self) -> None:
        data = load_dataset("digits")
        assert data.fingerprint() == load_dataset("digits").fingerprint()
        # Integers only: the digest is the same on every platform.
        digest = hashlib.sha256(data.x_test.numpy().tobytes() + data.y_test.numpy().astype("<i8").tobytes())
        assert digest.hexdigest() == "3b3ce9967da576057f788230e365a5b8c5d2cd797d54a8a8e6918868c2b742c1"

    def test_training_pixels_are_standardised(self) -> None:
        data = load_dataset("digits")
        pixels = (data.x_train[:].double() - data.mean) / data.std
        assert abs(float(pixels.mean())) < 1e-6
        assert abs(float(pixels.std(correction=0)) - 1) < 1e-6


class TestArrays:
    def test_floating_point_inputs_are_used_as_they_are(self) -> None:
        data = from_arrays(**arrays())
        assert torch.equal(data.x_train[:], torch.from_numpy(arrays()["x_train"]))
        assert (float(data.mean), float(data.std)) == (0.0, 1.0)
        assert (data.name, data.classes, data.input_shape) == ("arrays", 3, (2, 2))
        assert data.defaults == Defaults()

    def test_tensors_float64_and_small_integers_are_taken_too(self) -> None:
        as_tensors: dict[str, Any] = {key: torch.from_numpy(value) for key, value in arrays().items()}
        converted = arrays(x_train=arrays()["x_train"].astype(np.float64), y_train=arrays()["y_train"].astype(np.uint8))
        assert from_arrays(**as_tensors).fingerprint() == from_arrays(**arrays()).fingerprint()
        precise = from_arrays(**converted)
        assert precise.x_train.dtype == precise.x_test.dtype == torch.float64, "what was precise stays precise"
        assert torch.equal(precise.x_train[:].float(), from_arrays(**arrays()).x_train[:])
        assert torch.equal(precise.y_train, from_arrays(**arrays()).y_train)

    def test_bytes_are_standardised_by_all_training_pixels(self) -> None:
        x = np.array([[0, 10], [20, 30]], dtype=np.uint8)
        data = from_arrays(x, [0, 1], np.full((1, 2), 255, dtype=np.uint8), [0])
        assert float(data.mean) == 15
        assert float(data.std) == pytest.approx(np.sqrt(125))
        assert data.x_train.dtype == torch.uint8

    def test_constant_bytes_do_not_divide_by_zero(self) -> None:
        x = np.full((2, 2), 9, dtype=np.uint8)
        data = from_arrays(x, [0, 1], x, [0, 1])
        assert float(data.std) > 0

    def test_a_class_that_only_the_test_set_has_counts(self) -> None:
        assert from_arrays(**arrays(y_test=np.array([0, 1, 3]))).classes == 4

    def test_the_fingerprint_sees_every_array(self) -> None:
        changes: list[dict[str, Any]] = [{}]
        for key, array in arrays().items():
            other = array.copy()
            other.flat[0] = 1
            changes.append({key: other})
        changes.append({"x_train": arrays()["x_train"].reshape(6, 4), "x_test": arrays()["x_test"].reshape(3, 4)})
        assert len({from_arrays(**arrays(**change)).fingerprint() for change in changes}) == len(changes)

    def test_the_fingerprint_is_computed_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        data = from_arrays(**arrays())
        before = data.fingerprint()
        monkeypatch.setattr(Dataset, "_hash", None)
        assert data.fingerprint() == before

    @pytest.mark.parametrize("key", ["x_train", "y_train", "x_test", "y_test", "mean", "std"])
    def test_the_fingerprint_sees_changes_in_place(self, key: str) -> None:
        data = from_arrays(**arrays())
        before = data.fingerprint()
        getattr(data, key).view(-1)[0] += 1
        assert data.fingerprint() != before
        getattr(data, key).view(-1)[0] -= 1
        assert data.fingerprint() == before

    def test_the_fingerprint_of_a_changed_copy_is_its_own(self) -> None:
        data = from_arrays(**arrays())
        before = data.fingerprint()
        data.x_train[0] += 1
        assert copy.deepcopy(data).fingerprint() != before

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"y_train": np.zeros((6, 1), dtype=int)}, r"y_train \(\(1,\), .* and y_test .* differ in shape or type"),
            ({"y_train": np.zeros((6, 0), dtype=int)}, r"x_train \(6, 2, 2\) and y_train \(6, 0\)"),
            ({"y_train": np.zeros(5, dtype=int)}, r"x_train \(6, 2, 2\) and y_train \(5,\) should have the same"),
            ({"y_test": np.zeros(0, dtype=int), "x_test": np.zeros((0, 2, 2), dtype="f4")}, "non-zero number"),
            ({"y_train": np.array([0, 1, -2, 0, 1, 2])}, "y_train has the label -2; labels count from 0"),
            (
                {"y_test": np.array([0.0, 1.0, 2.0])},
                "y_train .*int64.* and y_test .*float64.* differ",
            ),
            (
                {"y_test": np.array([0j, 1j, 2j])},
                "y_test should hold whole or floating-point numbers",
            ),
            ({"y_train": np.full(6, np.inf), "y_test": np.zeros(3)}, "y_train holds values that aren't finite"),
            ({"y_train": np.full((6, 2), -1), "y_test": np.zeros((3, 2), int)}, "all labels of y_train are negative"),
            ({"x_train": np.full((6, 2, 2), np.nan, dtype="f4")}, "x_train holds values that aren't finite"),
            ({"x_test": np.full((3, 2, 2), 1e300)}, "x_test holds values that aren't finite"),
            ({"x_test": np.zeros((3, 4), dtype="f4")}, "differ in shape or type"),
            ({"x_test": np.zeros((3, 2, 2), dtype="u1")}, "differ in shape or type"),
            ({"x_train": np.zeros((6, 2, 2), dtype=int)}, "x_train .*int64.* and x_test .* differ in shape or type"),
            ({"x_train": np.full((6, 2, 2), 2**63, dtype="u8")}, "x_train holds ids of 2⁶³ and more; number them anew"),
            ({"x_train": np.zeros((6, 2, 2), dtype=bool)}, "x_train should hold bytes .* not torch.bool"),
            ({"x_train": np.zeros((6, 2, 2), dtype=complex)}, "x_train should hold bytes .* not torch.complex128"),
            ({"x_train": np.array([["a"]] * 6)}, "x_train can't be used as numbers"),
            ({"x_train": np.array([None] * 6)}, "x_train can't be used as numbers"),
            ({"x_train": [[1.0], [1.0, 2.0]]}, "x_train can't be used as numbers"),
            ({"x_train": np.float32(1.0)}, "x_train"),
        ],
    )
    def test_arrays_that_do_not_fit_are_named(self, changes: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            from_arrays(**arrays(**changes))

    def test_the_first_sample_that_is_not_finite_is_named(self) -> None:
        x, y = np.zeros((6, 2, 2)), np.zeros(6)
        x[2, 1, 0] = x[4] = np.inf
        y[3] = np.nan
        with pytest.raises(InputError, match=r"x_train .*, in 2 of 6 samples, the first of which is number 2 from 0"):
            from_arrays(**arrays(x_train=x))
        with pytest.raises(InputError, match=r"y_train .*, in 1 of 6 samples, the first of which is number 3 from 0"):
            from_arrays(**arrays(y_train=y, y_test=np.zeros(3)))

    def test_numbers_of_the_other_byte_order_are_numbers(self) -> None:
        # .npz files written on or for another machine have them.
        swapped = {key: value.astype(value.dtype.newbyteorder()) for key, value in arrays().items()}
        assert from_arrays(**swapped).fingerprint() == from_arrays(**arrays()).fingerprint()


class TestTexts:
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({}, "3 classes"),
            ({"y_train": np.zeros(6, int), "y_test": np.zeros(3, int)}, "1 class"),
            ({"y_train": np.zeros(6), "y_test": np.zeros(3)}, "targets of one number"),
            ({"y_train": np.zeros((6, 2, 3)), "y_test": np.zeros((3, 2, 3))}, r"targets of shape \(2, 3\)"),
        ],
    )
    def test_a_data_set_says_what_its_targets_are(self, changes: dict[str, Any], words: str) -> None:
        assert re.search(rf"samples of shape \(2, 2\), {words}\)$", repr(from_arrays(**arrays(**changes))))


class TestFiles:
    def test_a_file_gives_what_its_arrays_give(self, tmp_path: Path) -> None:
        data = from_npz(save(tmp_path / "mine.npz", **arrays()))
        assert data.name == "mine"
        assert data.fingerprint() == from_arrays(**arrays()).fingerprint()

    def test_arrays_of_other_names_are_warned_of(self, tmp_path: Path) -> None:
        """One that is called ``client`` would be left out without a word."""
        path = save(tmp_path / "mine.npz", **arrays(), client=np.arange(6))
        with pytest.warns(UserWarning, match=r"mine\.npz holds client, which isn't used; .* may hold clients"):
            data = from_npz(path)
        assert data.clients is None
        assert data.fingerprint() == from_arrays(**arrays()).fingerprint()

    def test_a_missing_file_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"none\.npz doesn't exist"):
            from_npz(tmp_path / "none.npz")

    def test_missing_arrays_are_named(self, tmp_path: Path) -> None:
        path = save(tmp_path / "some.npz", x_train=np.zeros(1), other=np.zeros(1))
        with pytest.raises(InputError, match="lacks y_train, x_test, y_test; it holds x_train, other"):
            from_npz(path)
        with pytest.raises(InputError, match="it holds nothing"):
            from_npz(save(tmp_path / "empty.npz"))

    def test_pickled_objects_are_refused(self, tmp_path: Path) -> None:
        # Unpickling runs code of whoever wrote the file.
        with pytest.raises(InputError, match=r"y_test\.npy holds Python objects \(pickles\), which could run code"):
            from_npz(save(tmp_path / "pickle.npz", **arrays(y_test=np.array([None, 1, 2], dtype=object))))

    @pytest.mark.parametrize("share", [0.0, 0.002, 0.1, 0.5, 0.99])
    def test_truncated_files_are_refused(self, tmp_path: Path, share: float) -> None:
        path = save(tmp_path / "cut.npz", **arrays())
        content = path.read_bytes()
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises(InputError, match=r"cut\.npz can't be read as \.npz"):
            from_npz(path)

    def test_a_damaged_file_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "damaged.npz"
        np.savez_compressed(path, **arrays(x_train=np.random.default_rng(0).random((6, 2, 2))))
        content = bytearray(path.read_bytes())
        content[60:120] = bytes(60)
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"can't be read as \.npz"):
            from_npz(path)

    def test_a_single_array_under_the_wrong_name_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "array.npz"
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
        with pytest.raises(InputError, match=r"array\.npz"):
            from_npz(path)


class TestNames:
    def test_a_path_names_a_data_set(self, tmp_path: Path) -> None:
        assert load_dataset(str(save(tmp_path / "mine.npz", **arrays()))).classes == 3

    @pytest.mark.usefixtures("trusting")
    def test_an_own_function_or_data_set_is_taken(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "own_data.py").write_text(
            "import numpy as np\nfrom adabest import from_arrays\n"
            "def made(): return from_arrays(np.zeros((2, 3)), [0, 1], np.zeros((2, 3)), [0, 1], name='made')\n"
            "ready = made()\ndef wrong(): return [1, 2]\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        assert load_dataset("own_data:made").name == "made"
        assert isinstance(load_dataset("own_data:ready"), Dataset)
        with pytest.raises(InputError, match="'own_data:wrong' gave a list, not an adabest Dataset"):
            load_dataset("own_data:wrong")

    def test_an_unknown_data_set_is_refused(self) -> None:
        with pytest.raises(InputError, match="unknown data set 'digist'; did you mean 'digits'"):
            load_dataset("digist")


def flip_crop_by_hand(image: np.ndarray, key: int) -> np.ndarray:
    """One image: mirror it, then pad it with zeros and cut a window out."""
    mirror, crop, down, right = (random.bits(0, Purpose.AUGMENTATION, key, which) for which in range(4))
    if random.uniform(mirror)[0] < 0.5:
        image = image[:, :, ::-1]
    if random.uniform(crop)[0] < 0.5:
        height, width = image.shape[1:]
        padded = np.pad(image, ((0, 0), (4, 4), (4, 4)))
        top, left = int(random.below(down, 9)[0]), int(random.below(right, 9)[0])
        image = padded[:, top : top + height, left : left + width]
    return image


class TestAugmentation:
    @given(st.integers(1, 3), st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**40))
    def test_flip_crop_is_pad_flip_crop_of_each_image(self, channels: int, height: int, width: int, seed: int) -> None:
        images = torch.rand(16, channels, height, width, generator=torch.Generator().manual_seed(seed))
        keys = random.bits(seed, Purpose.AUGMENTATION, torch.arange(16))
        augmented = flip_crop(images, keys)
        for image, key, found in zip(images.numpy(), keys.tolist(), augmented.numpy(), strict=True):
            np.testing.assert_array_equal(found, flip_crop_by_hand(image, key))

    def test_any_batch_shape_gives_what_one_image_at_a_time_gives(self) -> None:
        images = torch.rand(2, 5, 3, 8, 8, dtype=torch.float64)
        keys = random.bits(0, Purpose.AUGMENTATION, torch.arange(10).reshape(2, 5))
        augmented = flip_crop(images, keys)
        assert augmented.dtype == torch.float64
        assert torch.equal(flip_crop(images, keys), augmented)
        for place in np.ndindex(2, 5):
            assert torch.equal(flip_crop(images[place][None], keys[place][None])[0], augmented[place])

    def test_an_image_without_a_batch_is_augmented(self) -> None:
        image, key = torch.rand(3, 8, 8), torch.tensor(5)
        assert torch.equal(flip_crop(image, key), flip_crop(image[None], key[None])[0])

    def test_half_are_mirrored_and_half_are_moved(self) -> None:
        # A single bright pixel left of the middle tells what was done to its image.
        images = torch.zeros(8000, 1, 20, 20)
        images[:, :, 9, 5] = 1
        places = flip_crop(images, random.bits(0, Purpose.AUGMENTATION, torch.arange(8000))).flatten(1).argmax(1)
        row, column = places // 20, places % 20
        mirrored = column > 9
        column = torch.where(mirrored, column - 14, column - 5)
        still = (row == 9) & (column == 0)
        assert abs(float(mirrored.double().mean()) - 0.5) < 5 * 0.5 / np.sqrt(8000)
        # Half are left alone, and 1 in 81 of the others is moved by nothing.
        assert abs(float(still.double().mean()) - (0.5 + 0.5 / 81)) < 5 * 0.5 / np.sqrt(8000)
        counts = np.bincount(((row - 5) * 9 + column + 4)[~still].numpy(), minlength=81)
        assert counts[40] == 0
        expected = counts.sum() / 80
        assert ((np.delete(counts, 40) - expected) ** 2 / expected).sum() < 80 + 5 * np.sqrt(160)

    def test_none_does_nothing_and_both_have_names(self) -> None:
        images: Tensor = torch.rand(2, 1, 3, 3)
        assert none(images, torch.arange(2)) is images
        assert AUGMENTATIONS.find("none") is none
        assert AUGMENTATIONS.find("flip-crop") is flip_crop


def test_a_data_set_made_by_replace_is_checked() -> None:
    data = stripes()
    with pytest.raises(InputError, match="there is a label 2, but only 2 classes"):
        dataclasses.replace(data, classes=2)
    with pytest.raises(InputError, match="should have the same"):
        dataclasses.replace(data, y_train=data.y_train[:-1])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("d.csv", r"unknown data set 'd\.csv'; a table is named by table,path=d\.csv,label=\.\.\., with"),
        ("folder/d.parquet,label=y,test_share=0.2", r"named by table,path=folder/d\.parquet,label="),
        ("x.npy", r"should be an \.npz with x_train, .* numpy\.savez\(path, .* see adabest\.from_arrays"),
        (
            "table,path=d.csv,features=a,b",
            r"'b' should be an option .*\. Columns are joined by \+, as in features=a\+b",
        ),
    ],
)
def test_names_of_data_sets_that_are_nearly_right(name: str, words: str) -> None:
    for call in (load_dataset, findable):
        with pytest.raises(InputError, match=words):
            call(name)
