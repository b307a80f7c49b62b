"""Tiers of memory for what clients keep: the device, the machine's memory, mapped files.

A tier is filled before the next one is begun. On a CPU the device's memory is the machine's, so there are two tiers.
Mapped files belong to the operating system's cache, not to the process: what doesn't fit the memory is on the disk.
"""

import functools
import mmap
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from adabest.errors import InputError
from adabest.machine import size_in_words, total_memory

_UNITS = {"": 1, "b": 1} | {
    f"{letter}{kind}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for kind, base in (("b", 1000), ("ib", 1024))
}
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*([A-Za-z]*)")
_SHARE = 4  # of the machine's and of the device's memory one part is for what clients keep, by default
_COPY_SHARE = 16  # one part of a memory may hold copies of runs' states, while they are written to disk


def ran_out_of_memory(error: RuntimeError) -> bool:
    """Whether an error is one of memory: that of a GPU's allocator has a type, that of a CPU's only a message."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def parse_size(name: str, text: str) -> int:
    """The bytes that a text such as ``6GiB``, ``500 MB`` or ``0`` stands for.

    Raises:
        InputError: If it stands for none; the message has ``name``.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or match[2].lower() not in _UNITS:
        raise InputError(f"{name} = {text!r}: a size looks like 6GiB, 500MB or 0")
    return int(float(match[1]) * _UNITS[match[2].lower()])


class Budget:
    """A number of bytes, of which some are taken. Several stores may share one.

    Attributes:
        capacity: The bytes that may be taken.
        taken: The bytes that are taken.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity, self.taken = capacity, 0

    @property
    def free(self) -> int:
        """The bytes that can still be taken."""
        return max(self.capacity - self.taken, 0)

    def take(self, size: int) -> None:
        """Takes bytes; the caller has checked that they are free."""
        self.taken += size

    def exhaust(self) -> None:
        """Lowers the capacity to what is taken already."""
        self.capacity = self.taken

    def give_back(self, size: int) -> None:
        """Gives bytes back."""
        self.taken -= size


@dataclass(frozen=True)
class Tier:
    """One tier of memory.

    Attributes:
        setting: The name of the setting that limits it.
        budget: The bytes of it that may be used.
        zeros: Makes a tensor of zero bytes there, given their number.
    """

    setting: str
    budget: Budget
    zeros: Callable[[int], Tensor]


class Memory:
    """The tiers that one client store may use.

    Attributes:
        device: Where models live, and where rows are read to.
        tiers: The tiers, the fastest first.
    """

    def __init__(
        self,
        device: torch.device | None = None,
        *,
        on_device: int | None = None,
        on_host: int | None = None,
        on_disk: int | None = None,
        folder: Path | None = None,
    ) -> None:
        """Sets the limits.

        Args:
            device: Where models live.
            on_device: Bytes of the device's memory; by default a quarter of it, shared by all stores of the process.
            on_host: Bytes of the machine's memory; by default a quarter of it, shared by all stores of the process.
            on_disk: Bytes of mapped files; by default what is free there.
            folder: Where those are made. They have no name, so none is ever left behind.
        """
        self.device = device or torch.device("cpu")
        host = _budget(on_host, "cpu")
        disk = Budget(_free_on_disk(folder) if on_disk is None else on_disk)
        tiers = [Tier("client_memory", host, _on_host), Tier("client_disk", disk, lambda size: _mapped(size, folder))]
        if self.device.type != "cpu":
            there = _budget(on_device, str(self.device))
            tiers.insert(0, Tier("client_device_memory", there, self._on_device))
        self.tiers = tuple(tiers)

    def refuse_too_little(self, clients: int, row: int) -> None:
        """Makes sure that what the clients of one round keep would fit.

        Args:
            clients: How many those are.
            row: The bytes that each keeps.

        Raises:
            InputError: If it wouldn't.
        """
        if sum(tier.budget.free // max(row, 1) for tier in self.tiers) < clients:
            raise InputError(
                f"the {clients} clients of one round keep {size_in_words(clients * row)} ({size_in_words(row)} each), "
                f"for which there is too little memory: {self.limits()}; allow more of one of them"
            )

    def copy_budget(self) -> Budget:
        """The bytes that copies of the states of all runs may take where models live."""
        return _copy_budget(str(self.device))

    def limits(self) -> str:
        """The tiers, how much of each may be used, and how much is taken, in words."""
        return ", ".join(
            f"{tier.setting} {size_in_words(tier.budget.capacity)} ({size_in_words(tier.budget.taken)} taken)"
            for tier in self.tiers
        )

    def _on_device(self, size: int) -> Tensor:
        return torch.zeros(size, dtype=torch.uint8, device=self.device)


_PROCESSES: ContextVar[int] = ContextVar("processes", default=1)  # that share this machine


def share_machine(processes: int) -> None:
    """Leaves a share of the machine's memory to each of several processes; before any memory is taken."""
    _PROCESSES.set(processes)


def _budget(size: int | None, device: str) -> Budget:
    return _shared_budget(device) if size is None else Budget(size)


@functools.cache
def _shared_budget(device: str) -> Budget:
    """The budget that all stores of this process without a limit of their own share."""
    return Budget(_total(device) // _SHARE)


@functools.cache
def _copy_budget(device: str) -> Budget:
    """The budget that copies of the states of all runs of this process share."""
    return Budget(_total(device) // _COPY_SHARE)


def _total(device: str) -> int:
    """The bytes of a device's memory."""
    return (
        total_memory() // _PROCESSES.get() if device == "cpu" else torch.cuda.get_device_properties(device).total_memory
    )


def free_by_default(device: str) -> int | None:
    """The bytes on a device that stores without a limit of their own may still take; None if the device isn't there."""
    if device != "cpu" and not torch.cuda.is_available():
        return None
    return _shared_budget(device).free


def _free_on_disk(folder: Path | None) -> int:
    place = (folder or Path(tempfile.gettempdir())).absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def _on_host(size: int) -> Tensor:
    """NumPy's zeros, which take no memory before they are written; torch's do."""
    return torch.from_numpy(np.zeros(size, dtype=np.uint8))


def _mapped(size: int, folder: Path | None) -> Tensor:
    """Zeros in a file that lives as long as the tensor does, and ends with the process, however that ends.

    The space is reserved before it is used: on a full disk, writing to a map would kill the process without a message.
    """
    try:
        with tempfile.TemporaryFile(dir=folder, prefix="clients-", suffix=".partial", buffering=0) as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                _fill(file.fileno(), size)
            return torch.frombuffer(mmap.mmap(file.fileno(), size), dtype=torch.uint8)
    except OSError as error:
        where = folder or Path(tempfile.gettempdir())
        raise InputError(
            f"can't reserve {size_in_words(size)} of what clients keep in a file in {where}: "
            f"{error.strerror or error}; free some of the disk, or allow more memory (client_memory)"
        ) from error


def _fill(file: int, size: int) -> None:
    """Writes zeros, for systems that know no other way to reserve space."""
    block = bytes(min(size, 2**20))
    while size > 0:
        size -= os.write(file, block[:size])
