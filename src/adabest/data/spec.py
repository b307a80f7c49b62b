"""Specifications of published data sets: shapes, files, checksums and addresses."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from adabest.data.dataset import Defaults
from adabest.data.files import File, damaged

Split = Literal["train", "test"]


@dataclass(frozen=True)
class Archive:
    """The archive that a layout is published in.

    Attributes:
        name: The archive's file name.
        folder: The folder of the files in it.
        md5: Its published md5 checksum; None if there is none.
    """

    name: str
    folder: str
    md5: str | None = None


@dataclass(frozen=True)
class Layout:
    """One of the forms in which a data set is published.

    Attributes:
        name: Its name.
        train: The files with training samples. On disk, a file may be gzipped.
        test: The files with test samples.
        read: Reads images ``[records, channels, height, width]`` and labels ``[records]`` from the files of a split.
        folders: The folders of the files, relative to one of the data set's homes.
        archive: The archive with the files, if they are published in one.
        sums: The published md5 checksums of the unpacked files, by name; some files may have none.
    """

    name: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    read: "Reader"
    folders: tuple[str, ...]
    archive: Archive | None
    sums: Mapping[str, str]

    @property
    def files(self) -> dict[str, str | None]:
        """The md5 checksum of every file, by name; None if it has none."""
        return {name: self.sums.get(name) for name in (*self.train, *self.test)}


@dataclass(frozen=True)
class Remote:
    """A file that can be downloaded.

    Attributes:
        path: The path that it is stored at, relative to the data folder.
        urls: Its addresses; the first that works is used.
        md5: Its published md5 checksum.
    """

    path: str
    urls: tuple[str, ...]
    md5: str


@dataclass(frozen=True)
class Spec:
    """A published data set.

    Attributes:
        name: Its name.
        shape: The shape of an image: channels, height, width.
        labels: The labels that the files use.
        classes: How many of the labels are kept, from the first on.
        records: The number of images in the files, by split.
        samples: The number of images of the kept classes, by split.
        mean: The mean of each channel, of values from 0 to 1; None to take that of all training pixels.
        std: The standard deviation of each channel, of values from 0 to 1; None to take that of all training pixels.
        defaults: The default settings of runs on it.
        homes: The folders below the data folder that may hold its files.
        layouts: The forms in which it is published, the preferred one first.
        remotes: The files that are downloaded if it isn't on this disk.
        page: The page that publishes it.
    """

    name: str
    shape: tuple[int, int, int]
    labels: range
    classes: int
    records: Mapping[Split, int]
    samples: Mapping[Split, int]
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    defaults: Defaults
    homes: tuple[str, ...]
    layouts: tuple[Layout, ...]
    remotes: tuple[Remote, ...]
    page: str


Arrays = tuple[np.ndarray, np.ndarray]
Reader = Callable[[Sequence[File], Spec, Split], Arrays]


def check_labels(file: File, labels: np.ndarray, spec: Spec) -> np.ndarray:
    """The labels, unchanged, if all are among those that the specification has.

    Raises:
        InputError: If one isn't.
    """
    wrong = np.flatnonzero((labels < spec.labels.start) | (labels >= spec.labels.stop))
    if len(wrong):
        known = f"{spec.labels.start} to {spec.labels.stop - 1}"
        raise damaged(file.where, f"has the label {labels[wrong[0]]} in record {wrong[0]}", f"one of {known} was")
    return labels
