"""Whatever is wrong with a file of a published data set is said, and nothing is unpickled that isn't known."""

import contextlib
import io
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_data as tiny
from hypothesis import given
from hypothesis import strategies as st
from tiny_data import CIFAR10_BINARY, CIFAR100_BINARY, CIFAR100_PICKLED, EMNIST_FILES, MNIST_FILES

from adabest.data.cifar import binary, pickled
from adabest.data.emnist import read_matlab
from adabest.data.files import File, read_archive, read_folder
from adabest.data.idx import parse_idx
from adabest.data.official import load_official
from adabest.data.spec import Spec
from adabest.errors import InputError

MAT = {"emnist-letters.mat": tiny.matlab()}


class TestPickles:
    def test_nothing_is_unpickled_before_its_sum_has_matched(self, tmp_path: Path) -> None:
        ran = tmp_path / "ran"

        class Evil:
            def __reduce__(self) -> Any:
                return (Path.touch, (ran,))

        tiny.write(tmp_path / "cifar-100-python", CIFAR100_PICKLED | {"train": pickle.dumps(Evil())})
        with pytest.raises(
            InputError, match=r"cifar-100-python.train .* has the md5 checksum .*, but that of the official"
        ):
            load_official(tiny.TINY_CIFAR100, str(tmp_path))
        assert not ran.exists()

        # Not even if someone found another content with the same sum.
        content = pickle.dumps(Evil(), protocol=2)
        file = File("train", content, tiny.md5(content))
        with pytest.raises(InputError, match=r"it asks for .*, which no array needs"):
            pickled("fine_labels")([file], tiny.TINY_CIFAR100, "train")
        assert not ran.exists()

    def test_a_pickle_without_a_published_sum_is_not_read(self) -> None:
        with pytest.raises(InputError, match="train is pickled and has no published md5 checksum"):
            pickled("fine_labels")([File("train", CIFAR100_PICKLED["train"])], tiny.TINY_CIFAR100, "train")

    @pytest.mark.parametrize(
        "content",
        [
            pickle.dumps([1, 2]),
            pickle.dumps({b"data": [1], b"fine_labels": [1]}),
            pickle.dumps({b"data": [[1] * 3072] * 10, b"fine_labels": [1] * 10}),
            tiny.python2_pickle(tiny.CIFAR_IMAGES["train"], labels=tiny.FINE["train"]),
            tiny.python2_pickle(tiny.CIFAR_IMAGES["train"], fine_labels=tiny.FINE["train"][:9]),
            tiny.python2_pickle(tiny.CIFAR_IMAGES["train"], fine_labels=tiny.FINE["train"] + 91),
            CIFAR100_PICKLED["train"][:-10],
            b"",
        ],
        ids=["list", "too few", "numbers", "other key", "too few labels", "wrong labels", "cut off", "empty"],
    )
    def test_a_pickle_that_holds_something_else_is_refused(self, content: bytes) -> None:
        file = File("train", content, tiny.md5(content))
        with pytest.raises(InputError, match=r"^train .* expected"):
            pickled("fine_labels")([file], tiny.TINY_CIFAR100, "train")


class TestDamage:
    def refused(self, spec: Spec, folder: Path, place: str, files: dict[str, bytes]) -> str:
        tiny.write(folder / place, files)
        before = sorted(folder.rglob("*"))
        with pytest.raises(InputError) as refusal:
            load_official(spec, str(folder))
        assert sorted(folder.rglob("*")) == before, "nothing is left behind, and nothing was downloaded"
        message = str(refusal.value)
        assert "expected. Replace it by a good copy, or delete it, and the data set is downloaded again" in message
        return message

    @pytest.mark.parametrize("name", MNIST_FILES)
    @pytest.mark.parametrize("cut", [0, 3, 7, -1])
    def test_idx_files_that_are_cut_off_are_refused(self, name: str, cut: int, tmp_path: Path) -> None:
        files = MNIST_FILES | {name: MNIST_FILES[name][:cut]}
        assert str(tmp_path / "MNIST" / "raw" / name) in self.refused(tiny.TINY_MNIST, tmp_path, "MNIST/raw", files)

    def test_the_message_for_a_cut_file_names_both_sizes(self, tmp_path: Path) -> None:
        name = "train-images-idx3-ubyte"
        files = {**MNIST_FILES, name: MNIST_FILES[name][:-784]}
        assert "holds 3,920 bytes of data, but 4,704 were" in self.refused(tiny.TINY_MNIST, tmp_path, "mnist", files)

    def test_an_idx_file_of_another_size_is_refused(self, tmp_path: Path) -> None:
        files = MNIST_FILES | {"train-images-idx3-ubyte": tiny.idx(tiny.pixels(5, 28, 28))}
        message = self.refused(tiny.TINY_MNIST, tmp_path, "mnist", files)
        assert "says that it holds 5 × 28 × 28 bytes, but 6 × 28 × 28 were" in message

    def test_labels_in_place_of_images_are_refused(self, tmp_path: Path) -> None:
        files = MNIST_FILES | {"train-images-idx3-ubyte": MNIST_FILES["train-labels-idx1-ubyte"]}
        assert "begins with the bytes 00 00 08 01 and has 14, but 00 00 08 03, the mark of an idx file" in self.refused(
            tiny.TINY_MNIST, tmp_path, "mnist", files
        )

    def test_another_data_set_under_the_same_names_is_refused(self, tmp_path: Path) -> None:
        # Fashion-MNIST has the files' names and sizes of MNIST.
        files = MNIST_FILES | {"train-images-idx3-ubyte": tiny.idx(255 - tiny.MNIST_IMAGES["train"])}
        message = self.refused(tiny.TINY_MNIST, tmp_path, "mnist", files)
        assert "train-images-idx3-ubyte (4,720 bytes) has the md5 checksum" in message

    @pytest.mark.parametrize("cut", [0, 5, 20, -1])
    def test_gzipped_files_that_are_cut_off_are_refused(self, cut: int, tmp_path: Path) -> None:
        good = tiny.gzipped(MNIST_FILES)
        name = "t10k-images-idx3-ubyte.gz"
        message = self.refused(tiny.TINY_MNIST, tmp_path, "mnist", good | {name: good[name][:cut]})
        assert str(tmp_path / "mnist" / name) in message

    def test_a_gzipped_file_with_a_wrong_byte_is_refused(self, tmp_path: Path) -> None:
        good = tiny.gzipped(EMNIST_FILES)
        name = "emnist-letters-test-images-idx3-ubyte.gz"
        wrong = bytearray(good[name])
        wrong[len(wrong) // 2] ^= 1
        assert "can't be unpacked" in self.refused(tiny.TINY_LETTERS, tmp_path, "", good | {name: bytes(wrong)})

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (slice(None, -1), "has 6,145 bytes: 1 records of 3,073 bytes and 3,072 bytes more, but 2 records (6,146"),
            (slice(None, -3073), "1 records of 3,073 bytes and 0 bytes more, but 2 records (6,146 bytes) were"),
            (slice(None, 0), "has 0 bytes"),
        ],
    )
    def test_binary_files_that_are_cut_off_are_refused(self, change: slice, words: str, tmp_path: Path) -> None:
        files = CIFAR10_BINARY | {"data_batch_3.bin": CIFAR10_BINARY["data_batch_3.bin"][change]}
        message = self.refused(tiny.TINY_CIFAR10, tmp_path, "cifar-10-batches-bin", files)
        assert message.startswith(f"{tmp_path / 'cifar-10-batches-bin' / 'data_batch_3.bin'} ")
        assert words in message

    def test_a_binary_file_with_a_wrong_byte_is_refused(self, tmp_path: Path) -> None:
        wrong = bytearray(CIFAR100_BINARY["test.bin"])
        wrong[1000] ^= 1
        files = CIFAR100_BINARY | {"test.bin": bytes(wrong)}
        message = self.refused(tiny.TINY_CIFAR100, tmp_path, "cifar-100-binary", files)
        assert f"has the md5 checksum {tiny.md5(bytes(wrong))}, but that of the official file, " in message

    @pytest.mark.parametrize("label", [10, 255])
    def test_labels_out_of_range_are_refused(self, label: int, tmp_path: Path) -> None:
        labels = np.array([0, label], "u1")
        files = CIFAR10_BINARY | {"data_batch_2.bin": tiny.records(tiny.CIFAR_IMAGES["train"][2:4], labels)}
        spec = tiny.shrink(tiny.TINY_CIFAR10, 10, 3)
        message = self.refused(spec, tmp_path, "cifar-10-batches-bin", files)
        assert f"data_batch_2.bin has the label {label} in record 1, but one of 0 to 9 was" in message

    @pytest.mark.parametrize("label", [0, 27])
    def test_letters_count_from_one(self, label: int, tmp_path: Path) -> None:
        labels = tiny.LETTERS.copy()
        labels[4] = label
        for place, files in (
            ("idx", EMNIST_FILES | {"emnist-letters-train-labels-idx1-ubyte": tiny.idx(labels)}),
            ("mat", {"emnist-letters.mat": tiny.matlab(labels=labels[:, None])}),
        ):
            message = self.refused(tiny.TINY_LETTERS, tmp_path / place, "emnist", files)
            assert f"has the label {label} in record 4, but one of 1 to 26 was" in message

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"", "can't be read as a .mat file"),
            (tiny.matlab()[:300], "can't be read as a .mat file"),
            (tiny.matlab(dataset=3), "can't be read as a .mat file"),
            (
                tiny.matlab(tiny.pixels(26, 100)),
                "of uint8 and shape (26, 100), and 26 labels, but uint8 and shape (26, 784)",
            ),
            (tiny.matlab(np.zeros((26, 784))), "holds train images of float64"),
            (tiny.matlab(labels=tiny.LETTERS[:20, None]), "and 20 labels, but uint8"),
        ],
        ids=["empty", "cut off", "a number", "other images", "other numbers", "too few labels"],
    )
    def test_damaged_matlab_files_are_refused(self, content: bytes, words: str, tmp_path: Path) -> None:
        message = self.refused(tiny.TINY_LETTERS, tmp_path, ".", {"emnist-letters.mat": content})
        assert message.startswith(str(tmp_path / "emnist-letters.mat"))
        assert words in message

    def test_damaged_archives_are_refused(self, tmp_path: Path) -> None:
        good = tiny.tar_archive("cifar-10-batches-bin", CIFAR10_BINARY)
        spec = tiny.with_archive(tiny.TINY_CIFAR10, good)
        message = self.refused(spec, tmp_path / "cut", ".", {"cifar-10-binary.tar.gz": good[:-20]})
        assert f"cifar-10-binary.tar.gz ({len(good) - 20:,} bytes) has the md5 checksum" in message
        # Where no sum is published, the archive's own checks must do.
        cut = tiny.zip_archive("matlab", MAT)[:-30]
        message = self.refused(tiny.TINY_LETTERS, tmp_path / "zip", ".", {"matlab.zip": cut})
        assert "matlab.zip can't be unpacked" in message
        empty = {"matlab.zip": tiny.zip_archive("matlab", {"emnist-digits.mat": b""})}
        message = self.refused(tiny.TINY_LETTERS, tmp_path / "other", ".", empty)
        assert "matlab.zip has no matlab/emnist-letters.mat in it, but one was" in message

    def test_a_member_of_an_archive_is_named(self, tmp_path: Path) -> None:
        files = CIFAR10_BINARY | {"test_batch.bin": b"short"}
        archive = tiny.tar_archive("cifar-10-batches-bin", files)
        spec = tiny.with_archive(tiny.TINY_CIFAR10, archive)
        message = self.refused(spec, tmp_path, ".", {"cifar-10-binary.tar.gz": archive})
        assert message.startswith(
            f"{tmp_path / 'cifar-10-binary.tar.gz'}: cifar-10-batches-bin/test_batch.bin has 5 byt"
        )

    def test_files_that_cannot_be_read_are_named(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"gone can't be read: No such file"):
            read_folder(tmp_path, {"gone": None})
        with pytest.raises(InputError, match=r"gone\.zip can't be read: No such file"):
            read_archive(tmp_path / "gone.zip", "0" * 32, "inside", {"name": None})

    def test_a_link_in_an_archive_is_not_followed(self, tmp_path: Path) -> None:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            link = tarfile.TarInfo("inside/name")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
            archive.addfile(link)
        path = tmp_path / "archive.tar.gz"
        path.write_bytes(buffer.getvalue())
        with pytest.raises(InputError, match="has no inside/name in it"):
            read_archive(path, None, "inside", {"name": None})


class TestGarbage:
    """Whatever the bytes, only an InputError ever comes out."""

    @given(st.binary(max_size=64), st.integers(0, 2000), st.integers(0, 255))
    def test_garbage_in_idx_files_is_refused(self, garbage: bytes, place: int, cut: int) -> None:
        good = MNIST_FILES["train-images-idx3-ubyte"]
        for content in (garbage, good[:place] + garbage + good[place + len(garbage) :], good[:cut], good + garbage):
            with contextlib.suppress(InputError):
                assert parse_idx(File("file", content), (6, 28, 28)).shape == (6, 28, 28)

    @given(st.binary(max_size=64), st.integers(0, 3000))
    def test_garbage_in_other_files_is_refused(self, garbage: bytes, place: int) -> None:
        mat, batch = MAT["emnist-letters.mat"], CIFAR100_BINARY["train.bin"]
        pickle_ = CIFAR100_PICKLED["train"]
        for read, spec, good in (
            (read_matlab, tiny.TINY_LETTERS, mat),
            (binary(2), tiny.shrink(tiny.TINY_CIFAR100, 10, 3), batch),
            (pickled("fine_labels"), tiny.TINY_CIFAR100, pickle_),
        ):
            for content in (garbage, good[:place] + garbage + good[place + len(garbage) :]):
                with contextlib.suppress(InputError):
                    images, labels = read([File("file", content, tiny.md5(content))], spec, "train")
                    assert len(images) == len(labels) == spec.records["train"]
