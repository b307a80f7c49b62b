"""Folders of images by class: what becomes of them, and which are refused."""

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from adabest.data import image_folder
from adabest.data.loading import load_dataset
from adabest.errors import InputError


def save(path: Path, pixels: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels, np.uint8)).save(path)
    return path


def filled(folder: Path, *, colour: bool = False) -> Path:
    """Two classes of two training images of 2 × 3 pixels, and one test image."""
    for number, place in enumerate(["train/cat/a", "train/cat/b", "train/ant/c", "train/ant/d", "test/cat/e"]):
        save(folder / f"{place}.png", np.full((2, 3, 3) if colour else (2, 3), 10 * number))
    return folder


def refused(folder: Path, options: str = "") -> str:
    with pytest.raises(InputError) as caught:
        load_dataset(f"images,path={folder}{options}")
    return str(caught.value)


def test_folders_are_classes(tmp_path: Path) -> None:
    data = load_dataset(f"images,path={filled(tmp_path / 'zoo')}")
    assert data.name == "zoo"
    assert data.names == ("ant", "cat"), "sorted, also where a split lacks one"
    assert data.x_train.dtype == torch.uint8
    assert data.input_shape == (1, 2, 3)
    assert data.x_train[:][:, 0, 0, 0].tolist() == [20, 30, 0, 10]
    assert data.y_train.tolist() == [0, 0, 1, 1]
    assert data.x_test[:, 0, 0, 0].tolist() == [40]
    assert data.y_test.tolist() == [1]


def test_rows_and_channels_stay_in_order(tmp_path: Path) -> None:
    pixels = np.arange(18).reshape(2, 3, 3)
    save(filled(tmp_path) / "train" / "ant" / "c.png", pixels)
    data = load_dataset(f"images,path={tmp_path}")
    assert data.input_shape == (3, 2, 3), "one image in colour makes all of them so"
    np.testing.assert_array_equal(data.x_train[0].numpy(), pixels.transpose(2, 0, 1))
    assert data.x_train[1, :, 0, 0].tolist() == [30, 30, 30]
    assert load_dataset(f"images,path={tmp_path},colour=grey").input_shape == (1, 2, 3)
    assert load_dataset(f"images,path={filled(tmp_path / 'grey')},colour=rgb").input_shape == (3, 2, 3)


def test_a_share_of_one_folder_is_put_aside(tmp_path: Path) -> None:
    for number in range(20):
        save(tmp_path / ("even", "odd")[number % 2] / f"{number:02}.png", np.full((2, 2), number))
    data = load_dataset(f"images,path={tmp_path},test_share=0.2")
    assert data.y_test.bincount().tolist() == [2, 2]
    assert data.fingerprint() == load_dataset(f"images,path={tmp_path},test_share=0.2").fingerprint()
    assert "test_share = 2 of 20 images leaves none" in refused(tmp_path, ",test_share=2")


def test_sizes_differ_only_if_one_is_given(tmp_path: Path) -> None:
    odd = save(filled(tmp_path) / "train" / "cat" / "z.png", np.full((4, 6), 7))
    said = refused(tmp_path)
    assert f"{odd} has 6 × 4 pixels, but " in said
    assert said.endswith("bring all to one size, as in size=2x3")
    data = load_dataset(f"images,path={tmp_path},size=2x3")
    assert data.input_shape == (1, 2, 3)
    assert bool((data.x_train[-1] == 7).all())
    for wrong in ("2", "0x3", "1x2x3", "100000x100000"):
        assert "should be a height and a width" in refused(tmp_path, f",size={wrong}")


def test_folders_that_lack_something_are_named(tmp_path: Path) -> None:
    assert "is no folder" in refused(tmp_path / "nothing")
    assert "has no folder train and test" in refused(tmp_path)
    assert "has no folders; it should have one for each class" in refused(tmp_path, ",test_share=0.5")
    (filled(tmp_path) / "train" / "bee").mkdir()
    assert "bee holds no images" in refused(tmp_path)
    assert "can't be given, too" in refused(tmp_path, ",test_share=0.5")


def test_what_systems_leave_behind_is_passed_over(tmp_path: Path) -> None:
    before = load_dataset(f"images,path={filled(tmp_path)}").fingerprint()
    for name in (".DS_Store", "Thumbs.db"):
        (tmp_path / "train" / "cat" / name).write_bytes(b"x")
    (tmp_path / "train" / ".cache").mkdir()
    assert load_dataset(f"images,path={tmp_path}").fingerprint() == before


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int) -> bytes:
    """The start of a PNG that claims a size, in a few bytes."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 100))


class TestHostileFiles:
    @pytest.mark.parametrize(
        ("name", "content", "said"),
        [
            ("x.png", b"", "x.png can't be decoded as PNG: UnidentifiedImageError"),
            ("x.png", b"\x89PNG\r\n\x1a\n and no more", "x.png can't be decoded as PNG"),
            ("x.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 2 3\n", "x.png can't be decoded as PNG"),
            ("x.jpg", png(2, 3), "x.jpg can't be decoded as JPEG"),
            ("x.png", png(9000, 9000), "x.png would have 9,000 × 9,000 pixels; at most 67,108,864 are decoded"),
            ("x.png", png(60_000, 60_000), "x.png can't be decoded as PNG: DecompressionBombError"),
            ("x.eps", b"%!PS-Adobe-3.0 EPSF-3.0\n", "x.eps is no image; a class's folder should hold only files"),
            ("x.py", b"raise SystemExit", "x.py is no image"),
        ],
    )
    def test_they_are_refused_by_name(self, tmp_path: Path, name: str, content: bytes, said: str) -> None:
        (filled(tmp_path) / "train" / "cat" / name).write_bytes(content)
        assert said in refused(tmp_path)

    def test_a_file_that_is_cut_off(self, tmp_path: Path) -> None:
        path = save(filled(tmp_path) / "test" / "cat" / "e.png", np.random.default_rng(0).integers(256, size=(2, 3)))
        path.write_bytes(path.read_bytes()[:-26])
        assert f"{path} can't be decoded as PNG: " in refused(tmp_path)

    def test_more_than_a_byte_a_pixel(self, tmp_path: Path) -> None:
        Image.fromarray(np.full((2, 3), 1000, np.uint16)).save(filled(tmp_path) / "train" / "cat" / "a.png")
        assert "a.png has more than a byte a pixel" in refused(tmp_path)

    def test_more_images_than_memory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("adabest.machine.total_memory", lambda: 80)
        assert "would need about 90 B" in refused(filled(tmp_path))


def test_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adabest.extras.is_installed", lambda package: package != "PIL")
    assert "adabest[images]" in refused(tmp_path)


def test_only_decoders_that_start_no_program_are_called() -> None:
    assert not {"EPS", "WMF", "PDF"} & set(image_folder._FORMATS.values())


def by_client(folder: Path, test: str) -> Path:
    for number, place in enumerate(["train/zoe/cat/a", "train/bob/cat/b", "train/bob/ant/c", "train/zoe/ant/d", test]):
        save(folder / f"{place}.png", np.full((2, 3), 10 * number))
    return folder


@pytest.mark.parametrize("test", ["test/zoe/cat/e", "test/cat/e"])
def test_folders_of_clients_hold_those_of_classes(tmp_path: Path, test: str) -> None:
    data = load_dataset(f"images,path={by_client(tmp_path, test)},by_client=yes")
    assert data.names == ("ant", "cat")
    assert data.x_train[:][:, 0, 0, 0].tolist() == [20, 10, 30, 0]
    assert data.y_train.tolist() == [0, 1, 0, 1]
    assert data.clients is not None
    assert data.clients.tolist() == [0, 0, 1, 1]
    assert (data.x_test[:, 0, 0, 0].tolist(), data.y_test.tolist()) == ([40], [1])


def test_a_share_of_clients_images_is_put_aside(tmp_path: Path) -> None:
    for client, number in ((client, number) for client in "ab" for number in range(4)):
        save(tmp_path / client / ("cat" if number % 2 else "ant") / f"{number}.png", np.full((2, 3), number))
    data = load_dataset(f"images,path={tmp_path},by_client=yes,test_share=0.25")
    assert data.clients is not None
    assert len(data.clients) == len(data.y_train) == 6
    assert sorted(set(data.clients.tolist())) == [0, 1]


def test_a_missing_level_of_folders_is_named(tmp_path: Path) -> None:
    assert f"{tmp_path / 'train' / 'ant'} has no folders; it should have one for each class" in refused(
        filled(tmp_path), ",by_client=yes"
    )
    (tmp_path / "empty" / "train").mkdir(parents=True)
    (tmp_path / "empty" / "test").mkdir()
    assert "with by_client=yes it should have one for each client" in refused(tmp_path / "empty", ",by_client=yes")


def test_folders_of_clients_are_recognised_without_the_option(tmp_path: Path) -> None:
    said = refused(by_client(tmp_path, "test/zoe/cat/e"))
    assert "ant is a folder in the folder of a class" in said
    assert said.endswith("if 'bob' is a client and folders of classes lie in it, say by_client=yes")


def test_a_folder_that_only_test_has_is_named(tmp_path: Path) -> None:
    save(filled(tmp_path) / "test" / "dusk" / "f.png", np.zeros((2, 3)))
    with pytest.warns(UserWarning, match=r"test has the label 'dusk', which no training sample has"):
        assert load_dataset(f"images,path={tmp_path}").names == ("ant", "cat", "dusk")
