"""Settings of the C library's allocator.

Convolutions allocate and free blocks of many megabytes in every step. By default glibc hands such blocks back to the
system and asks for them again, page by page, which takes a fifth of the time.
"""

import contextlib
import ctypes
import functools
import platform
from collections.abc import Iterator

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # the names M_TRIM_THRESHOLD and M_MMAP_THRESHOLD in malloc.h
_KEEP_ALL = 2**31 - 1
# What glibc's own adjustment of the two ends at, in a process that has freed a large block.
_USUAL = {_MMAP_THRESHOLD: 2**25, _TRIM_THRESHOLD: 2**26}


@contextlib.contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Within, freed memory stays with the process. Does nothing where the C library isn't glibc."""
    if not _has_glibc():
        yield
        return
    library = ctypes.CDLL(None)
    for setting in _USUAL:
        library.mallopt(setting, _KEEP_ALL)
    try:
        yield
    finally:
        for setting, value in _USUAL.items():
            library.mallopt(setting, value)


@functools.cache
def _has_glibc() -> bool:
    return platform.libc_ver()[0] == "glibc"
