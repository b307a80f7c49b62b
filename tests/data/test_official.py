"""Published data sets are found and read in every official layout, and are what their publishers say."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_data as tiny
import torch
from tiny_data import CIFAR10_BINARY, CIFAR10_PICKLED, CIFAR100_BINARY, CIFAR100_PICKLED, EMNIST_FILES, MNIST_FILES

from adabest.data.catalog import OFFICIAL
from adabest.data.dataset import Defaults
from adabest.data.download import fetch
from adabest.data.location import data_folder, find
from adabest.data.official import load_official
from adabest.data.spec import Spec
from adabest.errors import InputError
from adabest.models.factory import build_model

TINY = {
    spec.name: spec
    for spec in (tiny.TINY_MNIST, tiny.TINY_EMNIST_L, tiny.TINY_LETTERS, tiny.TINY_CIFAR10, tiny.TINY_CIFAR100)
}
GZIP = tiny.zip_archive("gzip", tiny.gzipped(EMNIST_FILES))
MAT = {"emnist-letters.mat": tiny.matlab()}

# Where the files of each data set may lie: the data set, the folder, the files, and the layout's name.
PLACES: list[tuple[str, str, dict[str, bytes], str]] = [
    ("mnist", "MNIST/raw", MNIST_FILES, "idx"),
    ("mnist", "MNIST/raw", tiny.gzipped(MNIST_FILES), "idx"),
    ("mnist", "MNIST", MNIST_FILES, "idx"),
    ("mnist", "mnist", tiny.gzipped(MNIST_FILES), "idx"),
    ("mnist", ".", MNIST_FILES, "idx"),
    ("emnist-letters", "EMNIST/raw", EMNIST_FILES, "idx"),
    ("emnist-letters", "EMNIST/raw", tiny.gzipped(EMNIST_FILES), "idx"),
    ("emnist-letters", "EMNIST/raw/gzip", tiny.gzipped(EMNIST_FILES), "idx"),
    ("emnist-letters", "gzip", tiny.gzipped(EMNIST_FILES), "idx"),
    ("emnist-letters", ".", {"gzip.zip": GZIP}, "idx"),
    ("emnist-letters", "EMNIST/raw", {"gzip.zip": GZIP}, "idx"),
    ("emnist-letters", ".", MAT, "matlab"),
    ("emnist-letters", "matlab", MAT, "matlab"),
    ("emnist-letters", "emnist", {"matlab.zip": tiny.zip_archive("matlab", MAT)}, "matlab"),
    ("emnist-l", "EMNIST/raw", EMNIST_FILES, "idx"),
    ("emnist-l", ".", MAT, "matlab"),
    ("cifar10", "cifar-10-batches-bin", CIFAR10_BINARY, "binary"),
    ("cifar10", "cifar10/cifar-10-batches-bin", CIFAR10_BINARY, "binary"),
    ("cifar10", "cifar-10-batches-py", CIFAR10_PICKLED, "pickled"),
    (
        "cifar10",
        ".",
        {"cifar-10-binary.tar.gz": tiny.tar_archive("cifar-10-batches-bin", CIFAR10_BINARY)},
        "binary",
    ),
    (
        "cifar10",
        ".",
        {"cifar-10-python.tar.gz": tiny.tar_archive("cifar-10-batches-py", CIFAR10_PICKLED)},
        "pickled",
    ),
    ("cifar100", "cifar-100-binary", CIFAR100_BINARY, "binary"),
    ("cifar100", "cifar-100-python", CIFAR100_PICKLED, "pickled"),
    ("cifar100", ".", {"cifar-100-binary.tar.gz": tiny.tar_archive("cifar-100-binary", CIFAR100_BINARY)}, "binary"),
    ("cifar100", ".", {"cifar-100-python.tar.gz": tiny.tar_archive("cifar-100-python", CIFAR100_PICKLED)}, "pickled"),
]


def expecting(spec: Spec, files: dict[str, bytes]) -> Spec:
    """The specification, with the md5 sums of the archives among the files."""
    layouts = [
        dataclasses.replace(
            layout, archive=dataclasses.replace(layout.archive, md5=tiny.md5(files[layout.archive.name]))
        )
        if layout.archive and layout.archive.name in files
        else layout
        for layout in spec.layouts
    ]
    return dataclasses.replace(spec, layouts=tuple(layouts))


def expected(name: str) -> dict[str, Any]:
    """What comes out, whatever the layout."""
    if name == "mnist":
        images: dict[str, Any] = {split: array[:, None] for split, array in tiny.MNIST_IMAGES.items()}
        labels: dict[str, Any] = dict(tiny.MNIST_LABELS)
    elif name.startswith("emnist"):
        letters = 10 if name == "emnist-l" else 26
        images = dict.fromkeys(tiny.SPLITS, tiny.upright_letters()[:letters, None])
        labels = dict.fromkeys(tiny.SPLITS, np.arange(letters))
    else:
        images, labels = dict(tiny.CIFAR_IMAGES), dict(tiny.FINE)
    return {f"{key}_{split}": array[split] for key, array in (("x", images), ("y", labels)) for split in tiny.SPLITS}


class TestLayouts:
    @pytest.mark.parametrize(("name", "place", "files", "layout"), PLACES)
    def test_every_layout_gives_the_same(
        self, name: str, place: str, files: dict[str, bytes], layout: str, tmp_path: Path
    ) -> None:
        tiny.write(tmp_path / place, files)
        spec = expecting(TINY[name], files)
        found = find(spec, tmp_path)
        assert found is not None
        assert found.layout.name == layout
        assert found.bytes_on_disk() == sum(map(len, files.values()))
        data = load_official(spec, str(tmp_path))
        assert data.name == name
        assert data.x_train.dtype == torch.uint8
        assert data.x_train[:].is_contiguous()
        assert data.y_train.dtype == torch.int64
        assert data.classes == spec.classes
        for key, array in expected(name).items():
            np.testing.assert_array_equal(getattr(data, key).numpy(), array, err_msg=key)

    @pytest.mark.parametrize("folder", ["cifar-100-binary", "cifar-100-python"])
    def test_the_data_folder_may_be_that_of_the_files(self, folder: str, tmp_path: Path) -> None:
        tiny.write(tmp_path / folder, CIFAR100_BINARY | CIFAR100_PICKLED)
        assert len(load_official(tiny.TINY_CIFAR100, str(tmp_path / folder)).y_train) == 10

    def test_files_of_common_names_elsewhere_are_not_taken(self, tmp_path: Path) -> None:
        tiny.write(tmp_path, CIFAR100_BINARY | CIFAR100_PICKLED)
        assert find(tiny.TINY_CIFAR100, tmp_path) is None

    def test_binary_files_come_before_pickled_ones(self, tmp_path: Path) -> None:
        tiny.write(tmp_path / "cifar-10-batches-py", dict.fromkeys(CIFAR10_PICKLED, b"never read"))
        tiny.write(tmp_path / "cifar-10-batches-bin", CIFAR10_BINARY)
        assert len(load_official(tiny.TINY_CIFAR10, str(tmp_path)).y_train) == 10
        archive = tiny.tar_archive("cifar-10-batches-bin", CIFAR10_BINARY)
        other = tmp_path / "other"
        tiny.write(other / "cifar-10-batches-py", dict.fromkeys(CIFAR10_PICKLED, b"never read"))
        tiny.write(other, {"cifar-10-binary.tar.gz": archive})
        assert len(load_official(tiny.with_archive(tiny.TINY_CIFAR10, archive), str(other)).y_train) == 10

    def test_looking_for_a_data_set_reads_no_file(self, tmp_path: Path) -> None:
        tiny.write(tmp_path / "MNIST" / "raw", dict.fromkeys(MNIST_FILES, b"rubbish"))
        assert find(tiny.TINY_MNIST, tmp_path) is not None
        tiny.write(tmp_path / "cifar10", {"cifar-10-binary.tar.gz": b"rubbish"})
        assert find(tiny.TINY_CIFAR10, tmp_path) is not None


class TestEmnist:
    def test_letters_stand_upright(self, tmp_path: Path) -> None:
        tiny.write(tmp_path, EMNIST_FILES)
        image = load_official(tiny.TINY_LETTERS, str(tmp_path)).x_train[25, 0]
        assert bool((image[2:25, 4] == 200).all()), "the long stroke goes down"
        assert bool((image[25, 4:18] == 126).all()), "the short one lies at its foot"
        assert bool((image[4, 6:] == 0).all())

    def test_letters_are_a_to_j(self, tmp_path: Path) -> None:
        order = np.random.default_rng(0).permutation(26)
        images = tiny.column_by_column(tiny.upright_letters()[order])
        mixed = {"emnist-letters.mat": tiny.matlab(images, tiny.LETTERS[order][:, None])}
        tiny.write(tmp_path, mixed)
        data = load_official(tiny.TINY_EMNIST_L, str(tmp_path))
        assert data.y_train.tolist() == [letter for letter in order if letter < 10]
        for image, label in zip(data.x_train[:], data.y_train, strict=True):
            assert int(image[0, 25, 4]) == 101 + int(label)

    def test_too_few_samples_of_a_letter_are_refused(self, tmp_path: Path) -> None:
        labels = tiny.LETTERS.copy()
        labels[0] = 26
        tiny.write(tmp_path, EMNIST_FILES | {"emnist-letters-train-labels-idx1-ubyte": tiny.idx(labels)})
        with pytest.raises(
            InputError, match="holds 9 train samples of the 10 classes of emnist-l, but 10 were expected"
        ):
            load_official(tiny.TINY_EMNIST_L, str(tmp_path))


class TestFacts:
    @pytest.mark.parametrize(
        ("name", "shape", "classes", "samples"),
        [
            ("mnist", (1, 28, 28), 10, (60_000, 10_000)),
            ("emnist-l", (1, 28, 28), 10, (48_000, 8_000)),
            ("emnist-letters", (1, 28, 28), 26, (124_800, 20_800)),
            ("cifar10", (3, 32, 32), 10, (50_000, 10_000)),
            ("cifar100", (3, 32, 32), 100, (50_000, 10_000)),
        ],
    )
    def test_sizes_are_the_official_ones(
        self, name: str, shape: tuple[int, ...], classes: int, samples: tuple[int, int]
    ) -> None:
        spec = OFFICIAL[name]
        assert (spec.shape, spec.classes, (spec.samples["train"], spec.samples["test"])) == (shape, classes, samples)

    def test_defaults_are_those_of_the_protocol(self) -> None:
        letters = Defaults(model="mlp,hidden=100x100", batch_size=45, weight_decay=1e-4, augmentation="none")
        cifar = Defaults(model="cnn", batch_size=45, weight_decay=1e-3, augmentation="flip-crop")
        assert {name: spec.defaults for name, spec in OFFICIAL.items()} == {
            "mnist": letters,
            "emnist-l": letters,
            "emnist-letters": letters,
            "cifar10": cifar,
            "cifar100": cifar,
        }

    @pytest.mark.parametrize(("name", "parameters"), [("cifar10", 797_962), ("cifar100", 815_332), ("mnist", 89_610)])
    def test_the_model_is_the_papers(self, name: str, parameters: int) -> None:
        spec = OFFICIAL[name]
        module = build_model(spec.defaults.model, torch.zeros(2, *spec.shape), spec.classes, seed=0)
        assert sum(p.numel() for p in module.parameters()) == parameters

    def test_colours_are_normalised_by_channel(self, tmp_path: Path) -> None:
        tiny.write(tmp_path / "cifar-10-batches-bin", CIFAR10_BINARY)
        tiny.write(tmp_path / "cifar-100-binary", CIFAR100_BINARY)
        ten, hundred = (load_official(spec, str(tmp_path)) for spec in (tiny.TINY_CIFAR10, tiny.TINY_CIFAR100))
        assert ten.mean.shape == ten.std.shape == (3, 1, 1)
        torch.testing.assert_close(ten.mean.flatten() / 255, torch.tensor([0.491, 0.482, 0.447]))
        torch.testing.assert_close(ten.std.flatten() / 255, torch.tensor([0.247, 0.243, 0.262]))
        torch.testing.assert_close(hundred.mean.flatten() / 255, torch.tensor([0.5071, 0.4867, 0.4408]))
        torch.testing.assert_close(hundred.std.flatten() / 255, torch.tensor([0.2675, 0.2565, 0.2761]))
        red = (ten.x_train[0].float() - ten.mean) / ten.std
        assert float(red[0, 0, 0]) == pytest.approx(
            (tiny.CIFAR_IMAGES["train"][0, 0, 0, 0] / 255 - 0.491) / 0.247, 1e-5
        )

    def test_inputs_are_normalised_by_the_training_pixels(self, tmp_path: Path) -> None:
        tiny.write(tmp_path, MNIST_FILES)
        data = load_official(tiny.TINY_MNIST, str(tmp_path))
        assert float(data.mean) == pytest.approx(tiny.MNIST_IMAGES["train"].mean())
        assert float(data.std) == pytest.approx(tiny.MNIST_IMAGES["train"].std())

    def test_letters_are_normalised_by_those_that_are_kept(self, tmp_path: Path) -> None:
        tiny.write(tmp_path, EMNIST_FILES)
        data = load_official(tiny.TINY_EMNIST_L, str(tmp_path))
        kept = tiny.upright_letters()[:10]
        assert data.mean.shape == data.std.shape == ()
        assert float(data.mean) == pytest.approx(kept.mean())
        assert float(data.std) == pytest.approx(kept.std())


class TestFolder:
    def test_the_option_comes_before_the_environment_and_the_default(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        given, variable = tmp_path / "given", tmp_path / "variable"
        given.mkdir()
        variable.mkdir()
        monkeypatch.setenv("ADABEST_DATA", str(variable))
        assert data_folder(str(given)) == given
        assert data_folder() == variable
        monkeypatch.delenv("ADABEST_DATA")
        monkeypatch.setattr("platformdirs.user_cache_path", lambda name, appauthor: tmp_path / "cache" / name)
        assert data_folder() == tmp_path / "cache" / "adabest", "it need not exist"

    def test_data_folders_may_be_relative_or_below_home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "data").mkdir()
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("USERPROFILE", str(tmp_path))
        assert data_folder("~/data") == tmp_path / "data"
        monkeypatch.chdir(tmp_path)
        assert data_folder("data") == tmp_path / "data"

    def test_a_mistyped_folder_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(InputError, match=r"data_dir = .*none: there is no such folder"):
            data_folder(str(tmp_path / "none"))
        monkeypatch.setenv("ADABEST_DATA", str(tmp_path / "void"))
        with pytest.raises(InputError, match=r"ADABEST_DATA = .*void: there is no such folder"):
            data_folder()

    def test_complete_data_need_no_right_to_write(self, tmp_path: Path) -> None:
        tiny.write(tmp_path / "mnist", MNIST_FILES)
        fetch(tiny.TINY_MNIST, tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == {"mnist"}, "not even a lock"
