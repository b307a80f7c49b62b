"""The device of a rank: which GPU of its machine is whose, and how vectors travel between them."""

from typing import Literal

import torch

from adabest.engine.distributed.ranks import Ranks
from adabest.errors import InputError


def choose_device(ranks: Ranks, name: str, backend: Literal["gloo", "nccl"] | None) -> None:
    """Chooses this rank's GPU, and how its vectors travel. All ranks call it.

    Args:
        ranks: The ranks.
        name: ``cpu``; ``cuda`` for the GPU of the rank's number on its machine; or ``cuda:N``.
        backend: How vectors travel; by default by NCCL between GPUs.

    Raises:
        InputError: If there is no such GPU, or the backend has none.
    """
    if not name.startswith("cuda"):
        if backend == "nccl":
            raise InputError("backend nccl sends vectors between GPUs; use --device cuda, or --backend gloo")
        return
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    index = torch.device(name).index
    wanted = ranks.local_rank if index is None else index
    if wanted >= count:
        raise InputError(
            f"device {name!r}: rank {ranks.rank} needs GPU {wanted} of its machine, which has {count}; start as many "
            "ranks as there are GPUs, or use --device cpu"
        )
    device = torch.device("cuda", wanted)
    torch.cuda.set_device(device)
    ranks.use_device(device, backend or "nccl")
