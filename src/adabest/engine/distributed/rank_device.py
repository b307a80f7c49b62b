"""The device of a rank: which GPU of its machine is whose, and how vectors travel between them."""

from collections.abc import Sequence
from typing import Literal

import torch

from adabest.engine.distributed.ranks import Ranks
from adabest.errors import InputError

Backend = Literal["gloo", "nccl"] | None
"""How vectors travel between GPUs; None for NCCL."""


def choose_device(ranks: Ranks, name: str, backend: Backend) -> int | None:
    """Chooses this rank's GPU; None if it needs none.

    Args:
        ranks: The ranks.
        name: ``cpu``; ``cuda`` for the GPU of the rank's number on its machine; or ``cuda:N``.
        backend: How vectors travel.

    Raises:
        InputError: If there is no such GPU, or the backend has none.
    """
    if not name.startswith("cuda"):
        if backend == "nccl":
            raise InputError("backend nccl sends vectors between GPUs; use --device cuda, or --backend gloo")
        return None
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    index = torch.device(name).index
    wanted = ranks.local_rank if index is None else index
    if wanted >= count:
        raise InputError(
            f"device {name!r}: rank {ranks.rank} needs GPU {wanted} of its machine, which has {count}; start as many "
            "ranks as there are GPUs, or use --device cpu"
        )
    torch.cuda.set_device(wanted)
    return wanted


def refuse_shared_device(hosts: Sequence[str], devices: Sequence[int | None], backend: Backend) -> None:
    """Refuses a GPU of several ranks where NCCL, which can't serve it, is to send vectors.

    Args:
        hosts: The host of each rank.
        devices: The GPU of each rank.
        backend: How vectors travel.

    Raises:
        InputError: If two ranks have the same GPU.
    """
    if backend == "gloo":
        return
    places = list(zip(hosts, devices, strict=True))
    for rank, (host, device) in enumerate(places):
        other = places.index((host, device))
        if device is not None and other < rank:
            raise InputError(
                f"ranks {other} and {rank} share GPU {device} of {host}, which NCCL can't serve; use --device cuda, "
                "which gives each rank a GPU of its own, or --backend gloo"
            )


def connect_devices(ranks: Ranks, name: str, backend: Backend) -> None:
    """Connects the GPUs of all ranks, once all of them have chosen theirs: NCCL waits until they are there."""
    if name.startswith("cuda"):
        ranks.use_device(torch.device("cuda", torch.cuda.current_device()), backend or "nccl")
