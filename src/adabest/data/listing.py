"""The list of named data sets, and which of them are on this disk."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from adabest.data.catalog import OFFICIAL
from adabest.data.digits import digits
from adabest.data.download import fetch as download
from adabest.data.loading import DATASETS
from adabest.data.location import data_folder, find, incomplete
from adabest.data.spec import Spec
from adabest.errors import InputError, nearest


@dataclass(frozen=True)
class Listing:
    """A data set that has a name.

    Attributes:
        name: Its name.
        here: Whether it can be used without a download; None if that depends on its options.
        shape: The shape of an input; like the next three, None if that depends on its options.
        classes: The number of classes.
        train: The number of training samples.
        test: The number of test samples.
        where: The folder or archive that holds it, if it is on this disk.
        layout: The published form that it has there.
        bytes_on_disk: The size of its files.
        lacks: In words, the folders that hold only some of its files, and which ones are missing.
    """

    name: str
    here: bool | None = None
    shape: tuple[int, ...] | None = None
    classes: int | None = None
    train: int | None = None
    test: int | None = None
    where: Path | None = None
    layout: str | None = None
    bytes_on_disk: int | None = None
    lacks: tuple[str, ...] = ()


def datasets(data_dir: str | None = None, *, fetch: Sequence[str] = ()) -> list[Listing]:
    """All named data sets: what they are, and whether and where they are on this disk.

    Their files are only looked for, not read.

    Args:
        data_dir: Folder of the official data files. By default $ADABEST_DATA, or the platform's cache folder.
        fetch: Data sets that are downloaded first, if they aren't on this disk. By default none.

    Raises:
        InputError: If the folder doesn't exist, or a data set can't be downloaded.
    """
    folder = data_folder(data_dir)
    for name in fetch:
        if name not in OFFICIAL:
            raise InputError(f"there is no data set {name!r} to be downloaded; {nearest(name, OFFICIAL)}")
    for name in fetch:
        download(OFFICIAL[name], folder)
    listings = {"digits": _digits(), **{name: _official(spec, folder) for name, spec in OFFICIAL.items()}}
    return [*listings.values(), *(Listing(name) for name in DATASETS.names() if name not in listings)]


def _digits() -> Listing:
    dataset = digits()
    return Listing(
        name="digits",
        here=True,
        shape=dataset.input_shape,
        classes=dataset.classes,
        train=len(dataset.y_train),
        test=len(dataset.y_test),
    )


def _official(spec: Spec, folder: Path) -> Listing:
    found = find(spec, folder)
    return Listing(
        name=spec.name,
        here=found is not None,
        shape=spec.shape,
        classes=spec.classes,
        train=spec.samples["train"],
        test=spec.samples["test"],
        where=found.path if found else None,
        layout=found.layout.name if found else None,
        bytes_on_disk=found.bytes_on_disk() if found else None,
        lacks=() if found else tuple(incomplete(spec, folder)),
    )
