"""The place of this process in a torchrun job, as torchrun's environment variables tell it."""

from collections.abc import Mapping
from dataclasses import dataclass

from adabest.errors import InputError

_NUMBERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT")
_NEEDED = (*_NUMBERS, "MASTER_ADDR")
# A stray MASTER_ADDR or MASTER_PORT makes no job: users export them in their shells.
_TELLING = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
_RIGHT = "Start the job with: torchrun --nproc-per-node=2 -m adabest run ..."


def in_torchrun(environment: Mapping[str, str]) -> bool:
    """Whether a process with these environment variables is one of a torchrun job, even if some variables lack."""
    return any(name in environment for name in _TELLING)


@dataclass(frozen=True)
class Place:
    """The place of one process in a torchrun job.

    Attributes:
        rank: The number of this process, from 0.
        size: The number of processes of the job.
        local_rank: The number of this process among those of its node.
        local_size: The number of processes of its node.
        address: The host of the job's store.
        port: The port of the job's store.
        agent_store: Whether torchrun itself holds the store. Else rank 0 does.
        restart: How often torchrun has restarted the job.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    address: str
    port: int
    agent_store: bool
    restart: int

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Place":
        """The place that torchrun's variables tell; raises ``InputError`` if they lack or contradict each other."""
        missing = [name for name in _NEEDED if not environment.get(name)]
        if missing:
            raise InputError(
                f"this looks like a process of a torchrun job, but the environment lacks {', '.join(missing)}. {_RIGHT}"
            )
        numbers = {name: _whole(name, environment[name]) for name in _NUMBERS}
        for number, count in (("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE")):
            if numbers[number] >= numbers[count]:
                raise InputError(
                    f"{number}={numbers[number]} must be less than {count}={numbers[count]}: ranks count from 0. "
                    f"{_RIGHT}"
                )
        if not 0 < numbers["MASTER_PORT"] < 2**16:
            raise InputError(f"MASTER_PORT={numbers['MASTER_PORT']} must be a port: 1 to 65535. {_RIGHT}")
        return cls(
            rank=numbers["RANK"],
            size=numbers["WORLD_SIZE"],
            local_rank=numbers["LOCAL_RANK"],
            local_size=numbers["LOCAL_WORLD_SIZE"],
            address=environment["MASTER_ADDR"],
            port=numbers["MASTER_PORT"],
            agent_store=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
            restart=_whole("TORCHELASTIC_RESTART_COUNT", environment.get("TORCHELASTIC_RESTART_COUNT") or "0"),
        )

    @property
    def store_holder(self) -> str:
        """The store's address, and who holds it."""
        holder = "torchrun's agent" if self.agent_store else "rank 0"
        return f"{self.address}:{self.port}, held by {holder}"


def _whole(name: str, text: str) -> int:
    """The number from 0 that a variable must hold."""
    if not (text.isascii() and text.isdigit()):
        raise InputError(f"{name}={text!r} must be a whole number from 0. {_RIGHT}")
    return int(text)
