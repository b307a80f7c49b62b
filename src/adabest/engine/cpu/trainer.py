"""Local training on CPU cores: whole clients side by side, each on one core, in the way that suits their model."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from adabest.engine import sample_table
from adabest.engine.cpu import malloc
from adabest.engine.cpu.autograd import Replicas
from adabest.engine.cpu.client_rows import Done, Job
from adabest.engine.cpu.linear import Chain
from adabest.engine.cpu.workers import number_of_workers, side_by_side
from adabest.engine.gpu.trainer import Group, Trained
from adabest.engine.layer_plan import LinearLayer, plan
from adabest.errors import InputError
from adabest.tasks.base import Heartbeat
from adabest.tasks.classification import ClassificationTask

_AT_ONCE = 2**26  # bytes of the models of clients that are started and finished together, about
_MEBIBYTE = 2**20


def clients_at_once(model_bytes: int) -> int:
    """How many clients with models of a size are started and finished together, unless someone says how many."""
    return max(1, _AT_ONCE // model_bytes)


class Loop:
    """Trains clients that share a model's structure, a data set and a batch size.

    Linear layers in a row are computed by hand, everything else by autograd; both were measured to be the fastest (see
    the page *Speed on a CPU*).
    """

    def __init__(self, task: ClassificationTask, most: int | None, threads: int | None = None) -> None:
        model, sample = task.model, task.data.x_train.shape[1:]
        layers = plan(model.module, model.vector.new_zeros(2, *sample))
        linear = [layer for layer in layers if isinstance(layer, LinearLayer)]
        by_hand = len(linear) == len(layers) and not linear[-1].shape.relu and task.loss is functional.cross_entropy
        self._trainer: Chain | Replicas = Chain(linear, model) if by_hand else Replicas(model, tuple(sample))
        self._threads = threads
        self._bytes = model.vector.nbytes
        self._most = most or clients_at_once(self._bytes)

    def capacity(self, wanted: int) -> int:
        """How many clients should be in memory at a time, if so many want to train."""
        workers = number_of_workers(self._threads)
        return min(wanted, max(self._most // workers * workers, 1))

    def take_fewer_than(self, clients: int) -> None:
        """Lowers the number of clients in memory at a time: with so many, it ran out.

        Raises:
            InputError: If that was a single one.
        """
        if clients == 1:
            raise InputError(
                f"memory ran out with a single client, whose model takes {self._bytes / _MEBIBYTE:.1f} MiB and its "
                "training several times that; use a smaller model or batch size, or fewer lanes"
            )
        self._most = clients // 2

    def train(self, groups: Sequence[Group], heartbeat: Heartbeat) -> list[Trained]:
        """The local training of clients of several runs."""
        jobs = [job for group in groups for job in _jobs(group)]
        size = self._trainer.at_a_time
        pieces: list[Callable[[Heartbeat], list[Done]]] = [
            partial(self._trainer.train, jobs[first : first + size]) for first in range(0, len(jobs), size)
        ]
        with malloc.kept():
            done = (
                client
                for piece in side_by_side(pieces, heartbeat, number_of_workers(self._threads))
                for client in piece
            )
        return [_together([next(done) for _ in group.members]) for group in groups]


def _jobs(group: Group) -> Iterator[Job]:
    members = group.members
    steps = torch.tensor([member.task.steps(member.client) for member in members])
    chosen = sample_table.chosen_samples(members, sample_table.names(members, torch.device("cpu")), steps)
    chosen = chosen.transpose(0, 1).to(torch.int64, memory_format=torch.contiguous_format)
    labels = members[0].task.data.y_train[chosen]
    correction, training = group.correction, group.training
    for place, member in enumerate(members):
        yield Job(
            task=member.task,
            client=member.client,
            round=member.round,
            chosen=chosen[place, : int(steps[place])],
            labels=labels[place, : int(steps[place])],
            start=_vector(correction.start, place),
            offset=None if correction.offset is None else _vector(correction.offset, place),
            scale=_number(correction.scale, place),
            rho=_number(correction.rho, place),
            eta=_number(group.eta, place),
            clip=training.clip,
            decay=training.weight_decay + _number(correction.rho_prime, place),
        )


def _vector(value: Tensor, place: int) -> Tensor:
    """One client's vector; what has no dimension for the clients is the same for all of them."""
    return value if value.ndim == 1 else value[place]


def _number(value: Any, place: int) -> float:
    """One client's number, likewise."""
    if not isinstance(value, Tensor):
        return float(value)
    return float(value.reshape(-1)[place if value.numel() > 1 else 0])


def _together(done: Sequence[Done]) -> Trained:
    bad = [torch.nonzero(~torch.isfinite(client.losses)).flatten().tolist()[:1] for client in done]
    return Trained(
        models=torch.stack([client.model for client in done]),
        losses=[float(client.losses.mean()) for client in done],
        accuracies=[float(client.accuracies.mean()) for client in done],
        bad_steps=[steps[0] if steps else -1 for steps in bad],
        bad_losses=[float(client.losses[steps[0]]) if steps else 0.0 for client, steps in zip(done, bad, strict=True)],
    )
