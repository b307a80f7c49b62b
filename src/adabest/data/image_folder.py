"""Folders of images by class, read by Pillow. Files are only decoded, within a limit on their pixels."""

import contextlib
import math
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from adabest.data.dataset import Dataset, from_arrays
from adabest.data.labels import warn_of_test_only
from adabest.data.sheet import share_rows
from adabest.errors import InputError, told
from adabest.extras import require
from adabest.machine import refuse_beyond_memory

Colour = Literal["grey", "rgb"]

# No other decoder of Pillow's is called: some of them start programs, such as Ghostscript.
_FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".bmp": "BMP", ".gif": "GIF", ".webp": "WEBP"}
_FORMATS |= {".tif": "TIFF", ".tiff": "TIFF", ".pgm": "PPM", ".ppm": "PPM"}
_MOST_PIXELS = 64 * 2**20  # of one image: more than cameras have, and 192 MiB in memory
_GREY = {"1", "L", "LA"}
_DEEP = ("I", "F")  # more than a byte a pixel


def images(
    *,
    path: Path,
    size: tuple[int, ...] | None = None,
    colour: Colour | None = None,
    test_share: float | None = None,
    by_client: bool = False,
) -> Dataset:
    """Images in folders named by their classes: ``train/cat/1.png`` and ``test/cat/2.png``, or ``cat/1.png`` alone.

    With ``by_client`` there is one folder more, of each client: ``train/ann/cat/1.png``, or ``ann/cat/1.png`` alone.

    Needs Pillow, which ``pip install "adabest[images]"`` installs. Pixels are bytes.

    Args:
        path: The folder. It has ``train`` and ``test``, or, with ``test_share``, a folder for each class.
        size: The height and the width that all images are brought to, as in ``32x32``. By default all have to be of one
            size.
        colour: ``grey`` or ``rgb``. By default grey if all images are, else rgb.
        test_share: The share of the images that is put aside to test with, class by class.
        by_client: Whether the folders of classes lie in folders of clients. In ``test`` they need not.

    Raises:
        InputError: If a folder or an image can't be used; the message names it.
    """
    require("data set 'images'", "images", "PIL")
    if size is not None and (len(size) != 2 or min(size) < 1 or math.prod(size) > _MOST_PIXELS):
        raise InputError(
            f"data set 'images': size = {'x'.join(map(str, size))} should be a height and a width, as in 32x32"
        )
    if not path.is_dir():
        raise InputError(f"{path} is no folder; it should hold a folder for each class, or train and test")
    splits = _splits(path, test_share)
    owners = [_owners(folder) if by_client else {"": folder} for folder in splits]
    if by_client and test_share is None and not _has_folders(next(iter(owners[1].values()))):
        owners[1] = {"": splits[1]}
    folders = [[(owner, folder) for owner, folder in split.items()] for split in owners]
    names = sorted({name for split in folders for _, folder in split for name in _classes(folder)})
    number = {name: position for position, name in enumerate(names)}
    files = [
        [
            (file, number[name])
            for _, folder in split
            for name in _classes(folder)
            for file in _files(folder / name, by_client=by_client)
        ]
        for split in folders
    ]
    whose = [
        owner
        for owner, folder in folders[0]
        for name in _classes(folder)
        for _ in _files(folder / name, by_client=by_client)
    ]
    pixels = _read([file for found in files for file, _ in found], size, colour)
    labels = np.array([label for found in files for _, label in found])
    if test_share is None:
        test = np.arange(len(labels)) >= len(files[0])
        warn_of_test_only(str(splits[1]), labels[~test], labels[test], names)
    else:
        test = share_rows(str(path), "images", labels, test_share)
    title = path.resolve().name
    clients = np.array(whose)[~test[: len(whose)]] if by_client else None
    return from_arrays(
        pixels[~test], labels[~test], pixels[test], labels[test], clients=clients, name=title, names=tuple(names)
    )


def _owners(folder: Path) -> dict[str, Path]:
    """The folders of clients by name."""
    found = {
        entry.name: entry for entry in sorted(folder.iterdir()) if entry.is_dir() and not entry.name.startswith(".")
    }
    if not found:
        raise InputError(
            f"{folder} has no folders; with by_client=yes it should have one for each client, as in "
            f"{folder / 'ann' / 'cat' / '1.png'}"
        )
    return found


def _has_folders(folder: Path) -> bool:
    return any(entry.is_dir() and not entry.name.startswith(".") for entry in folder.iterdir())


def _splits(path: Path, test_share: float | None) -> list[Path]:
    """The folders of classes: one to train and one to test with, or one for both."""
    there = [split for split in ("train", "test") if (path / split).is_dir()]
    if test_share is None and len(there) < 2:
        lacks = "test" if there == ["train"] else "train and test" if not there else "train"
        raise InputError(
            f"{path} has no folder {lacks}; name the folder that has both, or put a share of the images aside, as in "
            "test_share=0.2"
        )
    if test_share is not None and len(there) == 2:
        raise InputError(f"{path} has folders train and test, so test_share = {test_share:g} can't be given, too")
    if test_share is None:
        return [path / split for split in ("train", "test")]
    return [path / "train" if there == ["train"] else path]


def _classes(folder: Path) -> list[str]:
    """The names of the classes in a folder."""
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not names:
        raise InputError(
            f"{folder} has no folders; it should have one for each class, as in {folder / 'cat' / '1.png'}"
        )
    return names


def _files(folder: Path, *, by_client: bool) -> list[Path]:
    """The images of a class. Hidden files, which systems leave behind, don't count."""
    files = []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or entry.name == "Thumbs.db":
            continue
        if entry.is_dir() and not by_client:
            raise InputError(
                f"{entry} is a folder in the folder of a class, which should hold only images; if {folder.name!r} is a "
                "client and folders of classes lie in it, say by_client=yes"
            )
        if not entry.is_file() or entry.suffix.lower() not in _FORMATS:
            raise InputError(
                f"{entry} is no image; a class's folder should hold only files that end in {', '.join(_FORMATS)}"
            )
        files.append(entry)
    if not files:
        raise InputError(f"{folder} holds no images; remove it, or put files into it that end in {', '.join(_FORMATS)}")
    return files


def _read(files: Sequence[Path], size: tuple[int, ...] | None, colour: Colour | None) -> np.ndarray:
    """The pixels of images ``[images, channels, height, width]``, as bytes."""
    looks = [_look(file) for file in files]
    height, width = looks[0][:2] if size is None else size
    for file, look in zip(files, looks, strict=True):
        if size is None and look[:2] != (height, width):
            raise InputError(
                f"{file} has {look[1]} × {look[0]} pixels, but {files[0]} {width} × {height}; bring all to one size, "
                f"as in size={height}x{width}"
            )
    grey = colour == "grey" or (colour is None and all(look[2] for look in looks))
    channels = 1 if grey else 3
    needed = {f"{len(files):,} images of {width} × {height} pixels": 3 * len(files) * channels * height * width}
    refuse_beyond_memory("a data set of images", needed, "choose a smaller size=...")
    pixels = np.empty((len(files), channels, height, width), np.uint8)
    for position, file in enumerate(files):
        with _opened(file) as picture:
            converted = picture.convert("L" if grey else "RGB")
            if converted.size != (width, height):
                converted = converted.resize((width, height), _bilinear())
            array = np.asarray(converted)
        pixels[position] = array[None] if grey else array.transpose(2, 0, 1)
    return pixels


def _look(file: Path) -> tuple[int, int, bool]:
    """An image's height and width, and whether it is grey, from its header."""
    with _opened(file) as picture:
        return picture.height, picture.width, picture.mode in _GREY


def _bilinear() -> Any:
    from PIL import Image

    return Image.Resampling.BILINEAR


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[Any]:
    """While entered, an image whose header was read and is within limits; errors name the file."""
    from PIL import Image

    try:
        with (
            warnings.catch_warnings(action="ignore"),  # of large images, which are refused below, and of odd metadata
            Image.open(file, formats=[_FORMATS[file.suffix.lower()]]) as picture,
        ):
            if picture.width * picture.height > _MOST_PIXELS:
                raise InputError(
                    f"{file} would have {picture.width:,} × {picture.height:,} pixels; at most {_MOST_PIXELS:,} are "
                    "decoded. Check where it comes from, or make it smaller"
                )
            if picture.mode.startswith(_DEEP):
                raise InputError(f"{file} has more than a byte a pixel (mode {picture.mode}); save it with 8 bits")
            yield picture
    except InputError:
        raise
    except Exception as error:  # decoders of image formats raise exceptions of many types
        raise InputError(
            f"{file} can't be decoded as {_FORMATS[file.suffix.lower()]}: {told(error)}; replace or remove it"
        ) from error
