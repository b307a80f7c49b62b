"""What is known of a published data set before a byte of it is read."""

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
        md5: Its published md5 sum; None if there is none.
    """

    name: str
    folder: str
    md5: str | None = None


@dataclass(frozen=True)
class Layout:
    """One of the forms in which a data set is published.

    Attributes:
        name: What to call it.
        train: The files with training samples. Files may lie there gzipped.
        test: The files with test samples.
        read: Makes images ``[records, channels, height, width]`` and labels ``[records]`` of the files of one split.
        folders: Where the files lie, seen from one of the data set's homes.
        archive: The archive with the files, if they are published in one.
        sums: The published md5 sums of the files, unpacked, where there are any.
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
        """All files, each with its md5 sum, if it has one."""
        return {name: self.sums.get(name) for name in (*self.train, *self.test)}


@dataclass(frozen=True)
class Remote:
    """A file that can be downloaded.

    Attributes:
        path: Where it is put, seen from the data folder.
        urls: Where it is to be had; the first that works is used.
        md5: Its published md5 sum.
    """

    path: str
    urls: tuple[str, ...]
    md5: str


@dataclass(frozen=True)
class Spec:
    """A published data set.

    Attributes:
        name: What it is called.
        shape: The shape of an image: channels, height, width.
        labels: The labels that the files use.
        classes: How many of the labels are kept, from the first on.
        records: How many images the files hold.
        samples: How many are left when only the classes are kept.
        mean: The mean of each channel, of values from 0 to 1; None to take that of all training pixels.
        std: Their standard deviation, likewise.
        defaults: The settings that suit it.
        homes: The folders below the data folder where its files may lie.
        layouts: The forms in which it is published, the most liked first.
        remotes: What is downloaded when it isn't there.
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
    """The labels as they are, if all are among those that the files use.

    Raises:
        InputError: If one isn't.
    """
    wrong = np.flatnonzero((labels < spec.labels.start) | (labels >= spec.labels.stop))
    if len(wrong):
        known = f"{spec.labels.start} to {spec.labels.stop - 1}"
        raise damaged(file.where, f"has the label {labels[wrong[0]]} in record {wrong[0]}", f"one of {known} was")
    return labels
