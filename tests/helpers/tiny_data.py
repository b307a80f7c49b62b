"""Small files in the official formats, made by hand, and specifications of data sets that are as small."""

import dataclasses
import gzip
import hashlib
import io
import struct
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io

from adabest.data.catalog import CIFAR10, CIFAR100, EMNIST_LETTERS, MNIST
from adabest.data.spec import Archive, Spec, Split

Files = dict[str, bytes]
SPLITS: tuple[Split, Split] = ("train", "test")


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def shrink(spec: Spec, train: int, test: int, files: Mapping[str, bytes] | None = None, **changes: Any) -> Spec:
    """A specification of a smaller data set, which knows the md5 sums of its files, if it is given them."""
    sums = {name: md5(content) for name, content in (files or {}).items()}
    layouts = tuple(
        dataclasses.replace(layout, sums={name: sums[name] for name in layout.files if name in sums})
        for layout in spec.layouts
    )
    sizes: dict[Split, int] = {"train": train, "test": test}
    return dataclasses.replace(spec, **{"records": sizes, "samples": sizes, "layouts": layouts, **changes})


def with_archive(spec: Spec, content: bytes) -> Spec:
    """The same, but the archive of the data set's first layout has this content."""
    first, *others = spec.layouts
    assert first.archive is not None
    archive = Archive(first.archive.name, first.archive.folder, md5(content))
    return dataclasses.replace(spec, layouts=(dataclasses.replace(first, archive=archive), *others))


def write(folder: Path, files: Mapping[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def gzipped(files: Files) -> Files:
    return {f"{name}.gz": gzip.compress(content) for name, content in files.items()}


def zip_archive(folder: str, files: Files) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(f"{folder}/{name}", content)
    return buffer.getvalue()


def tar_archive(folder: str, files: Files) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def pixels(records: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(records).integers(256, size=(records, *shape), dtype=np.uint8)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


# MNIST: 6 images to train, 4 to test.
MNIST_IMAGES = {"train": pixels(6, 28, 28), "test": pixels(4, 28, 28)}
MNIST_LABELS = {"train": np.array([0, 1, 2, 9, 1, 0], "u1"), "test": np.array([3, 0, 9, 1], "u1")}
MNIST_FILES: Files = {
    "train-images-idx3-ubyte": idx(MNIST_IMAGES["train"]),
    "train-labels-idx1-ubyte": idx(MNIST_LABELS["train"]),
    "t10k-images-idx3-ubyte": idx(MNIST_IMAGES["test"]),
    "t10k-labels-idx1-ubyte": idx(MNIST_LABELS["test"]),
}
TINY_MNIST = shrink(MNIST, 6, 4, MNIST_FILES)

# EMNIST: every letter once to train and once to test; the image of a letter is an L that grows with it.
LETTERS = np.arange(1, 27, dtype="u1")


def upright_letters() -> np.ndarray:
    """Pictures whose long stroke is vertical, on the left, and whose short one lies below."""
    images = np.zeros((26, 28, 28), np.uint8)
    images[:, 2:26, 4] = 200
    for letter, image in zip(LETTERS, images, strict=True):
        image[25, 4 : 6 + letter // 2] = 100 + letter
    return images


def column_by_column(images: np.ndarray) -> np.ndarray:
    """What Matlab's ``image(:)'`` gives for each image, which is how NIST wrote them."""
    return np.stack([image.flatten(order="F") for image in images])


_WRITTEN = column_by_column(upright_letters())
EMNIST_FILES: Files = {
    f"emnist-letters-{split}-{kind}": idx(array)
    for split in SPLITS
    for kind, array in (("images-idx3-ubyte", _WRITTEN.reshape(26, 28, 28)), ("labels-idx1-ubyte", LETTERS))
}


def matlab(images: np.ndarray = _WRITTEN, labels: np.ndarray = LETTERS[:, None], **changes: Any) -> bytes:
    """NIST's file: a struct of structs."""
    part = {"images": images, "labels": labels, "writers": np.zeros((len(labels), 1), "u2")}
    buffer = io.BytesIO()
    content = {"dataset": {"train": part, "test": part, "mapping": np.zeros((26, 3), "u1")}}
    scipy.io.savemat(buffer, content | changes, do_compression=True)
    return buffer.getvalue()


TINY_LETTERS = shrink(EMNIST_LETTERS, 26, 26)
TINY_EMNIST_L = dataclasses.replace(TINY_LETTERS, name="emnist-l", classes=10, samples={"train": 10, "test": 10})

# CIFAR: 10 images to train, in 5 files for CIFAR-10, and 3 to test.
CIFAR_IMAGES = {"train": pixels(10, 3, 32, 32), "test": pixels(3, 3, 32, 32)}
FINE = {"train": np.array([0, 3, 9, 9, 1, 2, 5, 7, 8, 4], "u1"), "test": np.array([6, 0, 9], "u1")}
COARSE = {split: labels % 4 for split, labels in FINE.items()}


def records(images: np.ndarray, *labels: np.ndarray) -> bytes:
    return np.concatenate([*(column[:, None] for column in labels), images.reshape(len(images), -1)], 1).tobytes()


def _parts() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """CIFAR-10's batches by name."""
    training = {
        f"data_batch_{k + 1}": (CIFAR_IMAGES["train"][2 * k : 2 * k + 2], FINE["train"][2 * k : 2 * k + 2])
        for k in range(5)
    }
    return {**training, "test_batch": (CIFAR_IMAGES["test"], FINE["test"])}


def python2_pickle(images: np.ndarray, **labels: np.ndarray) -> bytes:
    """A batch as Python 2 pickled it, protocol 2: a dictionary of an array and lists of numbers."""

    def text(content: bytes) -> bytes:
        return b"T" + struct.pack("<I", len(content)) + content

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    flat = images.reshape(len(images), -1)
    kind = b"cnumpy\ndtype\n" + text(b"u1") + number(0) + number(1) + b"\x87R"
    kind += b"(" + number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + number(0) + b"\x85" + text(b"b") + b"\x87R"
    shape = number(len(flat)) + number(flat.shape[1]) + b"\x86"
    array += b"(" + number(1) + shape + kind + b"\x89" + text(flat.tobytes()) + b"tb"
    items = [text(b"data") + array]
    for key, values in labels.items():
        items.append(text(key.encode()) + b"](" + b"".join(number(int(value)) for value in values) + b"e")
    return b"\x80\x02}(" + b"".join(items) + b"u."


CIFAR10_BINARY: Files = {f"{name}.bin": records(images, labels) for name, (images, labels) in _parts().items()}
CIFAR10_PICKLED: Files = {name: python2_pickle(images, labels=labels) for name, (images, labels) in _parts().items()}
CIFAR100_BINARY: Files = {f"{split}.bin": records(CIFAR_IMAGES[split], COARSE[split], FINE[split]) for split in SPLITS}
CIFAR100_PICKLED: Files = {
    split: python2_pickle(CIFAR_IMAGES[split], coarse_labels=COARSE[split], fine_labels=FINE[split]) for split in SPLITS
}
TINY_CIFAR10 = shrink(CIFAR10, 10, 3, CIFAR10_BINARY | CIFAR10_PICKLED)
TINY_CIFAR100 = shrink(CIFAR100, 10, 3, CIFAR100_BINARY | CIFAR100_PICKLED)
