"""The memory of this machine, sizes in words, and the refusal of work that doesn't fit."""

import os
from collections.abc import Mapping
from pathlib import Path

from adabest.errors import InputError

_CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_UNKNOWN_MEMORY = 8 * 2**30  # bytes that are assumed where the system doesn't tell
_STEPS = "kMGTPE"


def total_memory() -> int:
    """The memory limit of this process in bytes: the machine's memory, or its container's limit if that is lower."""
    found = []
    if hasattr(os, "sysconf"):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in map(Path, _CONTAINER_LIMITS):
        limit = path.read_text(encoding="ascii").strip() if path.is_file() else ""
        if limit.isdecimal():
            found.append(int(limit))
    return min(found, default=_UNKNOWN_MEMORY)


def size_in_words(size: int) -> str:
    """A number of bytes in words, as in ``6.4 MB``."""
    if size < 1000:
        return f"{size} B"
    if size >= 10**24:  # beyond any machine, and soon beyond what a float can hold
        return "over 1,000,000 EB"
    power = 1
    while size / 1000**power >= 999.5 and power < len(_STEPS):
        power += 1
    return f"{size / 1000**power:.3g} {_STEPS[power - 1]}B"


def refuse_beyond_memory(owner: str, parts: Mapping[str, int], advice: str) -> None:
    """Refuses work whose parts together take more memory than there is, before any of it is allocated.

    Args:
        owner: What needs the memory, as the subject of the message.
        parts: Estimated bytes, by what needs them.
        advice: What would be right, as the end of the message.

    Raises:
        InputError: With the estimate of each part above 5 %, and the machine's memory.
    """
    needed, there = sum(parts.values()), total_memory()
    if needed <= there:
        return
    largest = sorted(parts, key=lambda part: -parts[part])
    words = ", ".join(f"{size_in_words(parts[part])} for {part}" for part in largest if parts[part] > needed // 20)
    raise InputError(
        f"{owner} would need about {size_in_words(needed)} of memory ({words}), but this machine has "
        f"{size_in_words(there)}; {advice}"
    )
