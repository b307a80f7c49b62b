"""Data files that were damaged, or made to do damage: each is refused by name, before it takes time or memory."""

import gzip
import io
import json
import struct
import tarfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import tiny_data as tiny
import torch

from adabest import machine
from adabest.data.cifar import pickled
from adabest.data.dataset import Dataset, from_arrays
from adabest.data.emnist import read_matlab
from adabest.data.files import File, read_archive, read_folder
from adabest.data.limits import limit_of, refuse_growth
from adabest.data.loading import load_dataset
from adabest.data.matlab import read_matlab_array
from adabest.errors import InputError

MIB = 2**20
GOOD: dict[str, np.ndarray] = {
    "x_train": np.zeros((4, 3), np.float32),
    "y_train": np.array([0, 1, 2, 1]),
    "x_test": np.ones((2, 3), np.float32),
    "y_test": np.array([0, 1]),
}


def npy(array: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version)
    return buffer.getvalue()


def header(text: str, data: bytes = b"") -> bytes:
    """An array's file with a header of one's own."""
    padded = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded + data


def write_npz(path: Path, method: int = zipfile.ZIP_DEFLATED, **changes: bytes) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in ({key: npy(array) for key, array in GOOD.items()} | changes).items():
            archive.writestr(f"{name}.npy", content)
    return path


def peak_of(work: Callable[[], Any]) -> int:
    """The most memory that Python's allocators, NumPy's among them, held during some work."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class TestLimits:
    def test_small_files_may_grow_to_64_MiB_and_others_a_hundredfold(self) -> None:
        assert limit_of(0) == limit_of(1000) == 64 * MIB
        assert limit_of(2 * MIB) == 200 * MIB

    def test_nothing_may_outgrow_the_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(machine, "_CONTAINER_LIMITS", ())
        assert limit_of(10**15) == machine.total_memory()

    def test_the_refusal_tells_all_sizes_and_the_limit(self) -> None:
        refuse_growth("file.npz", 100, 64 * MIB)
        with pytest.raises(InputError, match=r"file\.npz has 100 B and would grow to 67\.1 MB .* limit is 67\.1 MB"):
            refuse_growth("file.npz", 100, 64 * MIB + 1)


class TestNpz:
    def refused(self, path: Path) -> str:
        with pytest.raises(InputError) as refusal:
            load_dataset(str(path))
        assert str(path) in str(refusal.value)
        return str(refusal.value)

    @pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
    @pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    def test_files_that_numpy_writes_are_read(self, version: tuple[int, int], method: int, tmp_path: Path) -> None:
        x = np.asfortranarray(np.arange(12, dtype=">f4").reshape(4, 3))
        data = load_dataset(str(write_npz(tmp_path / "good.npz", method, x_train=npy(x, version))))
        np.testing.assert_array_equal(data.x_train[:].numpy(), x)

    def test_a_file_that_grows_too_much_is_refused_before_it_is_inflated(self, tmp_path: Path) -> None:
        bomb = write_npz(tmp_path / "bomb.npz", x_train=npy(np.zeros((70, MIB), np.uint8)))
        assert bomb.stat().st_size < MIB
        words: list[str] = []
        assert peak_of(lambda: words.append(self.refused(bomb))) < 8 * MIB
        assert "would grow to 73.4 MB when it is unpacked; the limit is 67.1 MB" in words[0]

    def test_a_header_that_promises_too_much_takes_no_memory(self, tmp_path: Path) -> None:
        text = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000, 1000), }"
        liar = write_npz(tmp_path / "liar.npz", x_train=header(text, b"1234"))
        words: list[str] = []
        assert peak_of(lambda: words.append(self.refused(liar))) < 8 * MIB
        assert "holds 4 bytes of data, but its header says float32 of shape (1000000000, 1000)" in words[0]

    def test_an_entry_longer_than_declared_is_cut_and_refused(self, tmp_path: Path) -> None:
        path = write_npz(tmp_path / "lies.npz", x_train=npy(np.zeros((4000, 3), np.float32)))
        content = bytearray(path.read_bytes())
        place = content.index(b"x_train.npy", content.index(b"PK\x01\x02")) - 46
        struct.pack_into("<I", content, place + 24, 1000)
        path.write_bytes(bytes(content))
        assert "can't be read as .npz" in self.refused(path)

    def test_methods_without_a_bound_on_what_comes_out_are_refused(self, tmp_path: Path) -> None:
        bomb = write_npz(tmp_path / "bomb.npz", zipfile.ZIP_BZIP2)
        assert "compressed by a method other than deflate" in self.refused(bomb)

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, "), "has a damaged header"),
            (header("'''"), "has a damaged header"),
            (header("(" * 9000), "has a damaged header"),
            (header("-" * 9000 + "1"), "has a damaged header"),
            (header("{'descr': '<f4', 'fortran_order': False, 'shape': (1e9,), }"), "has a damaged header"),
            (header("{'descr': 'much', 'fortran_order': False, 'shape': (1,), }"), "has a damaged header"),
            (header("{'descr': '<f4', 'fortran_order': False, 'shape': (" + "9" * 5000 + ",), }"), "damaged header"),
            (header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 4), }"), "not numbers or texts"),
            (header("{'descr': '<M8[s]', 'fortran_order': False, 'shape': (1,), }", bytes(8)), "not numbers or texts"),
            (header("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"), "holds Python objects (pickles)"),
            (b"\x93NUMPY\x09\x00" + bytes(20), "has version (9, 0) of the format"),
            (b"", "has a damaged header"),
            (b"\x93NUMPY\x01\x00\xff\xff{}", "has a damaged header"),
        ],
        ids=lambda value: str(value)[:20],
    )
    def test_damaged_headers_are_refused(self, content: bytes, words: str, tmp_path: Path) -> None:
        message = self.refused(write_npz(tmp_path / "bad.npz", x_train=content))
        assert "x_train.npy" in message
        assert words in message

    def test_a_changed_byte_is_refused_or_without_effect(self, tmp_path: Path) -> None:
        path = write_npz(tmp_path / "data.npz")
        good, before = path.read_bytes(), load_dataset(str(path)).fingerprint()
        refusals = []
        for place in range(len(good)):
            path.write_bytes(good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :])
            try:
                assert load_dataset(str(path)).fingerprint() == before
            except InputError as refusal:
                refusals.append(str(refusal))
        assert len(refusals) > len(good) // 2
        assert all(str(path) in refusal for refusal in refusals)

    def test_archives_that_are_cut_off_are_refused(self, tmp_path: Path) -> None:
        path = write_npz(tmp_path / "data.npz")
        good = path.read_bytes()
        for length in range(0, len(good), 10):
            path.write_bytes(good[:length])
            assert "can't be read as .npz" in self.refused(path)

    def test_an_encrypted_entry_is_refused(self, tmp_path: Path) -> None:
        path = write_npz(tmp_path / "secret.npz")
        content = bytearray(path.read_bytes())
        content[content.index(b"PK\x01\x02") + 8] |= 1
        path.write_bytes(bytes(content))
        assert "can't be read as .npz" in self.refused(path)

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"y_train": np.array([0, 1, 2, 2**62])}, "4,611,686,018,427,387,905 classes are more than its 6 samples"),
            ({"y_test": np.array([0, 100_000])}, "100,001 classes are more than"),
            ({"y_train": np.array([0, 1, 2, 2**63], np.uint64)}, "y_train holds labels of 2⁶³ and more"),
            ({"y_train": np.array([0, 1, 2, -1])}, "has the label -1"),
            ({"x_train": np.zeros((4, 0)), "x_test": np.zeros((2, 0))}, "none of them 0"),
            ({"clients": np.zeros((4, 2), np.int64)}, "clients should be one number or text a sample"),
        ],
    )
    def test_arrays_that_make_no_data_set_are_refused(
        self, changes: dict[str, np.ndarray], words: str, tmp_path: Path
    ) -> None:
        path = tmp_path / "odd.npz"
        np.savez(path, **(GOOD | changes))  # type: ignore[arg-type]
        assert words in self.refused(path)

    def test_names_that_no_file_can_have_are_refused(self) -> None:
        with pytest.raises(InputError, match="can't be read: File name too long"):
            load_dataset("a" * 5000 + ".npz")
        with pytest.raises(InputError, match="doesn't exist"):
            load_dataset("a\0b.npz")


class TestLabels:
    def test_classes_that_no_sample_shows_are_taken_up_to_a_limit(self) -> None:
        x = np.zeros((2, 1))
        assert from_arrays(x, [0, 99_999], x, [0, 0], classes=100_000).classes == 100_000
        with pytest.raises(InputError, match="100,001 classes are more than its 4 samples"):
            from_arrays(x, [0, 0], x, [0, 0], classes=100_001)

    def test_clients_with_gaps_are_refused(self) -> None:
        x, y = torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64)
        with pytest.raises(InputError, match="should count from 0 without gaps"):
            Dataset("odd", x, y, x, y, 1, clients=torch.tensor([0, 1, 2**62]))


class TestLeaf:
    def refused(self, folder: Path, text: str) -> str:
        for split in ("train", "test"):
            (folder / split).mkdir(exist_ok=True)
            (folder / split / "all.json").write_text(text)
        with pytest.raises(InputError) as refusal:
            load_dataset(f"leaf,path={folder}")
        assert str(folder) in str(refusal.value)
        return str(refusal.value)

    def content(self, x: Any = ([1.0],), y: Any = (0,), **changes: Any) -> str:
        return json.dumps({"users": ["a"], "user_data": {"a": {"x": x, "y": y}}} | changes)

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"users": [["a"]]}, "users should be texts"),
            ({"users": [{"a": 1}]}, "users should be texts"),
            ({"users": [7]}, "users should be texts"),
            ({"users": {"a": 1}}, "it should hold a list users"),
            ({"user_data": [1]}, "it should hold a list users"),
            ({"user_data": {"a": [1]}}, "user_data should hold x and y"),
            ({"user_data": {}}, "user_data should hold x and y"),
            ({"num_samples": 1}, "num_samples should have one number"),
            ({"num_samples": [[1]]}, "num_samples says [1]"),
            ({"x": [[1.0], [1.0, 2.0]], "y": [0, 1]}, "inputs of one shape"),
            ({"x": [[{}]]}, "should be numbers"),
            ({"x": [[10**400]]}, "should be numbers"),
            ({"x": [[1e300]]}, "aren't finite"),
            ({"x": [[None]]}, "aren't finite"),
            ({"y": [1e300]}, "which should be whole numbers"),
            ({"y": [float("inf")]}, "which should be whole numbers"),
            ({"y": [float("nan")]}, "which should be whole numbers"),
            ({"y": [2**52]}, "classes are more than its 2 samples"),
            ({"y": 3}, "x should be a list of inputs and y one of labels"),
        ],
        ids=str,
    )
    def test_hostile_contents_are_refused(self, changes: dict[str, Any], words: str, tmp_path: Path) -> None:
        assert words in self.refused(tmp_path, self.content(**changes))

    @pytest.mark.parametrize(
        "text", ["[" * 10**5, '{"a":' * 10**5, '{"users": [' + "9" * 5000 + "]}", "\x00", '"\ud800"'], ids=range(5)
    )
    def test_texts_that_are_no_json_are_refused(self, text: str, tmp_path: Path) -> None:
        (tmp_path / "train").mkdir()
        (tmp_path / "train" / "all.json").write_bytes(text.encode("utf-8", "surrogatepass"))
        with pytest.raises(InputError, match=r"all\.json (can't be read as JSON|isn't a file of LEAF's)"):
            load_dataset(f"leaf,path={tmp_path}")

    def test_a_long_name_is_not_stored_for_every_sample(self, tmp_path: Path) -> None:
        name = "n" * MIB
        text = json.dumps({"users": [name], "user_data": {name: {"x": [[0.0]] * 300, "y": [0] * 300}}})
        for split in ("train", "test"):
            (tmp_path / split).mkdir()
            (tmp_path / split / "all.json").write_text(text)
        assert peak_of(lambda: load_dataset(f"leaf,path={tmp_path}")) < 32 * MIB

    def test_a_file_larger_than_the_memory_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("adabest.machine.total_memory", lambda: 100)
        assert "all.json as JSON would need about" in self.refused(tmp_path, self.content())


class TestArchives:
    @pytest.mark.parametrize("name", ["archive.zip", "archive.tar.gz"])
    def test_a_bomb_is_refused_before_it_is_inflated(self, name: str, tmp_path: Path) -> None:
        pack = tiny.zip_archive if name.endswith(".zip") else tiny.tar_archive
        path = tmp_path / name
        path.write_bytes(pack("inside", {"name": bytes(70 * MIB)}))
        words: list[str] = []

        def read() -> None:
            with pytest.raises(InputError, match=r"would grow to (over )?[0-9.]+ MB") as refusal:
                read_archive(path, None, "inside", {"name": None})
            words.append(str(refusal.value))

        assert peak_of(read) < 16 * MIB
        assert str(path) in words[0]

    def test_a_bomb_beside_the_wanted_files_is_not_inflated_either(self, tmp_path: Path) -> None:
        path = tmp_path / "archive.tar.gz"
        path.write_bytes(tiny.tar_archive("inside", {"other": bytes(70 * MIB), "name": b"1"}))
        with pytest.raises(InputError, match="would grow to over"):
            read_archive(path, None, "inside", {"name": None})

    def test_a_gzip_bomb_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "name.gz").write_bytes(gzip.compress(bytes(70 * MIB)))
        with pytest.raises(InputError, match=r"name\.gz has .* would grow to over 67\.1 MB"):
            read_folder(tmp_path, {"name": None})

    def test_a_sparse_member_is_no_file(self, tmp_path: Path) -> None:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
            sparse = tarfile.TarInfo("inside/name")
            sparse.pax_headers = {
                "GNU.sparse.major": "0",
                "GNU.sparse.minor": "1",
                "GNU.sparse.name": "inside/name",
                "GNU.sparse.size": str(10**12),
                "GNU.sparse.map": "0,0",
            }
            archive.addfile(sparse)
        path = tmp_path / "archive.tar.gz"
        path.write_bytes(buffer.getvalue())
        with pytest.raises(InputError, match="has no inside/name in it"):
            read_archive(path, None, "inside", {"name": None})

    def test_damaged_headers_of_a_tar_are_refused(self, tmp_path: Path) -> None:
        plain = bytearray(gzip.decompress(tiny.tar_archive("inside", {"name": b"content"})))
        path = tmp_path / "archive.tar.gz"
        for place in (0, 124, 148, 156, 257):
            changed = bytes(plain[:place] + b"\xff\xfe\xfd" + plain[place + 3 :])
            path.write_bytes(gzip.compress(changed))
            with pytest.raises(InputError, match=r"archive\.tar\.gz (can't be unpacked|has no inside/name)"):
                read_archive(path, None, "inside", {"name": None})


class TestPickles:
    def read(self, content: bytes) -> str:
        with pytest.raises(InputError, match="can't be unpickled") as refusal:
            pickled("fine_labels")([File("train", content, tiny.md5(content))], tiny.TINY_CIFAR100, "train")
        return str(refusal.value)

    def test_a_table_of_billions_is_not_made(self) -> None:
        assert "remembers something as number 2147483647" in self.read(b"\x80\x02}r\xff\xff\xff\x7f.")

    def test_later_protocols_are_refused(self) -> None:
        assert "which protocol 2 doesn't have" in self.read(b"\x80\x05\x96" + struct.pack("<Q", 1) + b"a.")

    def test_lists_of_lists_are_not_multiplied_out(self) -> None:
        many = b"K\x01q\x000"  # 1, remembered as number 0, then lists of ten times the one before
        for level in range(30):
            many += b"]q" + bytes([level + 1]) + b"(" + 10 * (b"h" + bytes([level])) + b"e0"
        begin = b"\x80\x02" + many + b"}(U\x04data"
        assert "data should be an array" in self.read(begin + b"h\x1eU\x0bfine_labels](K\x01eu.")
        good = tiny.CIFAR100_PICKLED["train"]
        labels = good.index(b"fine_labels") + len(b"fine_labels")
        assert "labels should be a list of numbers" in self.read(b"\x80\x02" + many + good[2:labels] + b"h\x1eu.")

    def test_numpy_is_not_told_lies_about_types(self) -> None:
        good = tiny.CIFAR100_PICKLED["train"]
        flags = b"J" + struct.pack("<i", 0) + b"tb\x89"  # the last of a type's state, before the array's order
        assert good.count(flags) == 1
        lie = good.replace(flags, b"J" + struct.pack("<i", 63) + b"tb\x89")
        images, _ = pickled("fine_labels")([File("train", lie, tiny.md5(lie))], tiny.TINY_CIFAR100, "train")
        np.testing.assert_array_equal(images, tiny.CIFAR_IMAGES["train"])

    @pytest.mark.parametrize(
        ("old", "new", "words"),
        [
            (b"u1", b"f8", "data should be an array of bytes"),
            (b"\x89T", b"\x89B", "can't be unpickled"),
            (b"cnumpy\ndtype\n", b"cnumpy\nndarray\n", "not callable"),
            (b"cnumpy\ndtype\n", b"cnumpy\ndtype\nNb", "it changes a function of NumPy's"),
        ],
    )
    def test_changed_arrays_are_refused(self, old: bytes, new: bytes, words: str) -> None:
        good = tiny.CIFAR100_PICKLED["train"]
        assert words in self.read(good.replace(old, new, 1))


class TestMatlab:
    PATH = ("dataset", "train", "images")

    @pytest.mark.parametrize("compressed", [True, False])
    @pytest.mark.parametrize("kind", ["u1", "i2", "u4", "f4", "f8", "i8"])
    @pytest.mark.parametrize("shape", [(3, 4), (1, 1), (2, 3, 2), (0, 3)])
    def test_arrays_are_read_as_scipy_writes_them(self, shape: tuple[int, ...], kind: str, compressed: bool) -> None:
        array = np.arange(np.prod(shape)).reshape(shape).astype(kind)
        parts = {"im": np.ones(3), "images": array, "texts": "words"}
        variables = {"other": np.zeros(5), "cells": np.array([[1, "a"]], object), "dataset": {"w": 1, "train": parts}}
        buffer = io.BytesIO()
        scipy.io.savemat(buffer, variables, do_compression=compressed)
        found = read_matlab_array("file", buffer.getvalue(), self.PATH)
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)

    @pytest.mark.parametrize(
        ("path", "words"),
        [
            (("data",), "it has no variable data"),
            (("dataset", "validation"), "there is no validation in it"),
            (("dataset", "train"), "something else than numbers"),
            (("dataset", "mapping", "images"), "isn't a struct of one element"),
        ],
    )
    def test_missing_variables_are_named(self, path: tuple[str, ...], words: str) -> None:
        with pytest.raises(ValueError, match=words):
            read_matlab_array("file", tiny.matlab(), path)

    def test_a_bomb_is_refused(self) -> None:
        deflated = zlib.compress(bytes(70 * MIB))
        content = tiny.matlab()[:128] + struct.pack("<II", 15, len(deflated)) + deflated
        with pytest.raises(InputError, match=r"file has .* and would grow to over 67\.1 MB"):
            read_matlab([File("file", content)], tiny.TINY_LETTERS, "train")

    def test_many_small_bombs_are_refused(self) -> None:
        deflated = zlib.compress(bytes(16 * MIB))
        content = tiny.matlab()[:128] + 5 * (struct.pack("<II", 15, len(deflated)) + deflated)
        with pytest.raises(InputError, match=r"file has .* and would grow to over 83\.9 MB"):
            read_matlab([File("file", content)], tiny.TINY_LETTERS, "train")

    @pytest.mark.parametrize("cut", [0, 100, 130, 140, 200, -1])
    def test_files_that_are_cut_off_are_refused(self, cut: int) -> None:
        with pytest.raises(InputError, match=r"^file can't be read as a \.mat file"):
            read_matlab([File("file", tiny.matlab()[:cut])], tiny.TINY_LETTERS, "train")

    def test_every_damaged_byte_of_a_plain_file_is_refused_or_harmless(self) -> None:
        buffer = io.BytesIO()
        scipy.io.savemat(buffer, {"dataset": {"train": {"images": np.zeros((2, 2), "u1")}}})
        good = buffer.getvalue()
        refused = 0
        for place in range(124, len(good)):
            for value in (0, 1, 0x7F, 0xFF):
                try:
                    read_matlab_array("file", good[:place] + bytes([value]) + good[place + 1 :], self.PATH)
                except ValueError:
                    refused += 1
        assert refused > 200
