"""Arrays in ``.npz`` files, which may come from anyone: each header is checked before its array is read.

``np.load`` would trust the header, and inflate any amount of data behind it.
"""

import io
import math
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np

from adabest.data.limits import read_entry, refuse_growth
from adabest.errors import InputError

_ENDING = ".npy"
_VERSIONS = [(1, 0), (2, 0), (3, 0)]  # the third differs from the second only in the encoding of field names
_RIGHT = "np.savez and np.savez_compressed write such files"


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays in a file by name.

    Raises:
        InputError: If it can't be read as ``.npz``, or would grow beyond the limit for files of its size.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            refuse_growth(path, path.stat().st_size, sum(entry.file_size for entry in entries))
            return {
                entry.filename.removesuffix(_ENDING): _array(path, entry.filename, read_entry(archive, entry))
                for entry in entries
                if entry.filename.endswith(_ENDING)
            }
    except InputError:
        raise
    except Exception as error:  # zipfile raises exceptions of many types for a damaged archive
        raise InputError(f"data set file {path} can't be read as .npz: {error or repr(error)}; {_RIGHT}") from error


def _array(path: Path, name: str, content: bytes) -> np.ndarray:
    """The array of one file in the archive."""
    file = io.BytesIO(content)
    try:
        with warnings.catch_warnings(
            action="ignore"
        ):  # of headers that Python 2 wrote, and of odd escapes in damaged ones
            shape, by_column, dtype = _header(file)
    except Exception as error:  # NumPy gives the header to Python's parser, which raises exceptions of many types
        raise InputError(
            f"data set file {path}: {name} has a damaged header: {error or repr(error)}; {_RIGHT}"
        ) from error
    if dtype.hasobject:
        raise InputError(
            f"data set file {path}: {name} holds Python objects (pickles), which could run code and aren't read; "
            "save an array of numbers or texts"
        )
    if dtype.kind not in "biufcSU" or any(size < 0 for size in shape):
        raise InputError(
            f"data set file {path}: {name} has the type {dtype} and the shape {shape}, not numbers or texts"
        )
    data = memoryview(content)[file.tell() :]
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise InputError(
            f"data set file {path}: {name} holds {len(data):,} bytes of data, but its header says {dtype} of shape "
            f"{shape}, which are {math.prod(shape) * dtype.itemsize:,}; {_RIGHT}"
        )
    if dtype.kind == "U" and len(data):
        _refuse_odd_letters(path, name, np.frombuffer(data, np.dtype(np.uint32).newbyteorder(dtype.byteorder)))
    if not len(data):
        return np.empty(shape, dtype)
    return np.frombuffer(data, dtype).reshape(shape, order="F" if by_column else "C")


def _refuse_odd_letters(path: Path, name: str, letters: np.ndarray) -> None:
    """Python can't make a text of numbers that are no letter's."""
    if letters.size and int(letters.max()) > sys.maxunicode:
        raise InputError(
            f"data set file {path}: {name} holds texts with a letter {int(letters.max())}, which there isn't; {_RIGHT}"
        )


def _header(file: io.BytesIO) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    if version not in _VERSIONS:
        raise ValueError(f"it has version {version} of the format, and only {_VERSIONS} are known")
    return np.lib.format.read_array_header_1_0(file) if version == (1, 0) else np.lib.format.read_array_header_2_0(file)
