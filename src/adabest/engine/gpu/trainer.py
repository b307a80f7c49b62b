"""Where clients of one kind train: the setting they share, and room for as many of them as fit into memory."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from adabest.algorithms.base import Correction
from adabest.data.augmentation import flip_crop, none
from adabest.engine import sample_table
from adabest.engine.gpu.kernels.buffers import Rates
from adabest.engine.gpu.kernels.choice import operators
from adabest.engine.gpu.packing import packing
from adabest.engine.gpu.program import Cohort, Program, Setting
from adabest.engine.layer_plan import plan
from adabest.engine.local_step import LocalTraining
from adabest.engine.sample_table import Member
from adabest.engine.threads import one_thread
from adabest.errors import AdabestError, InputError
from adabest.tasks.base import Heartbeat
from adabest.tasks.classification import ClassificationTask

# A quarter is for what clients keep (see engine.memory), the rest for what isn't counted: what functional layers need
# on their way, and the server.
_SHARE_OF_MEMORY = 0.5
_VECTORS = 6  # that a client has outside of the program in a round: its state before and after, offset, model and reply
_GIBIBYTE = 2**30


@dataclass(frozen=True)
class Precision:
    """In what numbers clients train; parameters are always kept, and sums made, in the model's own type.

    Attributes:
        half: Whether activations and products are in bfloat16.
        tf32: Whether float32 products may be made by a GPU's matrix units.
    """

    half: bool = False
    tf32: bool = False


class Unbatchable(Exception):
    """A model, loss or augmentation does something that can't be done for many clients at once. Carries what."""


class Group(NamedTuple):
    """Clients of one run, and how they train."""

    members: list[Member]
    correction: Correction
    eta: Any
    training: LocalTraining


class Trained(NamedTuple):
    """Clients after their local training.

    Attributes:
        models: ``[clients, P]``.
        losses: Mean over each client's steps.
        accuracies: Likewise.
        bad_steps: The first step whose loss isn't finite, −1 where all are.
        bad_losses: What it is.
    """

    models: Tensor
    losses: list[float]
    accuracies: list[float]
    bad_steps: list[int]
    bad_losses: list[float]


class Bench:
    """Trains clients that share a model's structure, a data set and a batch size."""

    def __init__(self, task: ClassificationTask, precision: Precision, most: int | None) -> None:
        self._device = task.model.vector.device
        self._setting = setting(task, precision)
        self._try_out()
        self._moves = task.augmentation is flip_crop
        self._steps = task.most_steps
        self._most = most
        self._program: Program | None = None

    @property
    def mixes_runs(self) -> bool:
        """Whether clients of several runs may train at a time, and last bits still be those of each run alone."""
        return self._setting.sums_by_client

    def capacity(self, wanted: int) -> int:
        """How many clients can train at a time, if so many want to.

        Raises:
            InputError: If there isn't enough memory for a single one.
        """
        most = min(wanted, self._most or wanted)
        if self._device.type != "cuda" or (self._program is not None and self._program.clients >= most):
            return most
        held = 0 if self._program is None else self._program.bytes
        free = torch.cuda.mem_get_info(self._device)[0] + torch.cuda.memory_reserved(self._device)
        free += held - torch.cuda.memory_allocated(self._device)
        each = self._size()
        fits = int(free * _SHARE_OF_MEMORY) // each
        if fits < 1:
            raise InputError(
                f"one client's training takes {each / _GIBIBYTE:.2f} GiB of memory on {self._device}, and of the "
                f"{free / _GIBIBYTE:.2f} GiB that are free no more than {_SHARE_OF_MEMORY:.0%} are used; use a smaller "
                "model or batch size, fewer lanes, or --device cpu"
            )
        return min(most, fits)

    def take_fewer_than(self, clients: int) -> None:
        """Lowers the number of clients that train at a time: with so many, memory ran out.

        Raises:
            InputError: If that was a single one.
        """
        self._program = None
        if clients == 1:
            raise InputError(
                f"memory on {self._device} ran out with a single client ({self._size() / _GIBIBYTE:.2f} GiB and what "
                "its layers need on their way); use a smaller model or batch size, fewer lanes, or --device cpu"
            )
        self._most = clients // 2

    def train(self, groups: Sequence[Group], heartbeat: Heartbeat) -> list[Trained]:
        """The local training of clients of several runs at once."""
        members = [member for group in groups for member in group.members]
        cohort = self._cohort(groups, members)
        self._steps = max(self._steps, *(group.members[0].task.most_steps for group in groups))
        program = self._room(len(members))
        try:
            with one_thread() if self._device.type == "cpu" else contextlib.nullcontext():
                packed = program.train(cohort, heartbeat)
        except Exception as error:
            if not isinstance(error, AdabestError):
                error.add_note(f"in round {members[0].round}, with {len(members)} clients side by side")
            raise
        models = self._setting.packing.unpack(packed[: len(members)])
        summary = _summary(program, cohort.steps)
        trained, at = [], 0
        for group in groups:
            own = slice(at, at + len(group.members))
            trained.append(Trained(models[own], *(column[own] for column in summary)))
            at = own.stop
        return trained

    def _try_out(self) -> None:
        """Finds out whether what the user wrote can be computed for many clients at once.

        Raises:
            Unbatchable: If it can't.
        """
        try:
            Program(self._setting, 2, 1, self._device).try_out()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            raise Unbatchable(str(error).strip().partition("\n")[0]) from error

    def _size(self) -> int:
        """The memory of one client."""
        vector = self._setting.packing.size * self._setting.master.itemsize
        return Program(self._setting, 1, self._steps, torch.device("meta")).bytes + _VECTORS * vector

    def _room(self, clients: int) -> Program:
        """A program with room for so many clients; only our kernels leave those alone that aren't there, at no cost."""
        there = 0 if self._program is None else self._program.clients
        fits = clients <= there if self._setting.sums_by_client else clients == there
        if self._program is None or not fits or self._program.steps < self._steps:
            self._program = None  # its memory first
            self._program = Program(self._setting, clients, self._steps, self._device)
        return self._program

    def _cohort(self, groups: Sequence[Group], members: Sequence[Member]) -> Cohort:
        pack, like = self._setting.packing.pack, groups[0].correction.start
        counts = [len(group.members) for group in groups]
        steps = torch.tensor([member.task.steps(member.client) for member in members], dtype=torch.int32)
        named = sample_table.names(members, self._device)

        def vectors(values: Sequence[Tensor]) -> Tensor:
            """Each group's vector or vectors, packed, one row a client."""
            packed = pack(torch.cat([value.reshape(-1, value.shape[-1]) for value in values]))
            rows, at = list[int](), 0
            for value, count in zip(values, counts, strict=True):
                rows += [at] * count if value.ndim == 1 else range(at, at + count)
                at += 1 if value.ndim == 1 else count
            return packed if len(rows) == at else packed[torch.tensor(rows, device=packed.device)]

        def numbers(values: Sequence[Any]) -> Tensor:
            columns = [
                torch.as_tensor(value, dtype=like.dtype, device=like.device).reshape(-1).expand(count)
                for value, count in zip(values, counts, strict=True)
            ]
            return torch.cat(columns)

        corrections = [group.correction for group in groups]
        offset = None
        if any(correction.offset is not None for correction in corrections):
            nothing = like.new_zeros(like.shape[-1])
            offset = vectors([nothing if c.offset is None else c.offset for c in corrections])
        return Cohort(
            start=vectors([correction.start for correction in corrections]),
            offset=offset,
            scale=numbers([correction.scale for correction in corrections]),
            rho=numbers([correction.rho for correction in corrections]),
            rates=Rates(
                eta=numbers([group.eta for group in groups]),
                clip=numbers([group.training.clip or torch.inf for group in groups]),
                decay=numbers([group.training.weight_decay + group.correction.rho_prime for group in groups]),
            ),
            steps=steps,
            names=tuple(named),
            chosen=sample_table.chosen_samples(members, named, steps),
            moves=sample_table.moves(named, int(steps.max()), self._setting.batch) if self._moves else None,
        )


def setting(task: ClassificationTask, precision: Precision) -> Setting:
    """What all clients of tasks of one kind have in common."""
    device, master = task.model.vector.device, task.model.vector.dtype
    operand = torch.bfloat16 if precision.half else master
    data = task.data
    sample = tuple(data.x_train.shape[1:])
    chosen = operators(device, operand, tf32=precision.tf32)
    example = torch.zeros((2, *sample), dtype=master, device=device)
    layers = plan(task.model.module, example)
    channels = sample[0] if len(sample) == 3 else 1

    def by_channel(value: Tensor) -> Tensor:
        return value.to(device, master).reshape(-1).expand(channels).contiguous()

    return Setting(
        layers=layers,
        packing=packing(layers, task.model.shapes, chosen, device),
        shapes=task.model.shapes,
        operators=chosen,
        inputs=data.x_train.contiguous() if isinstance(data.x_train, Tensor) else data.x_train,  # as kernels read it
        labels=data.y_train.contiguous(),
        mean=by_channel(data.dataset.mean),
        deviation=by_channel(data.dataset.std),
        augment=None if task.augmentation in (none, flip_crop) else task.augmentation,
        loss=None if task.loss is functional.cross_entropy else task.loss,
        batch=task.batch_size,
        classes=data.dataset.classes,
        operand=operand,
        master=master,
    )


def _summary(program: Program, steps: Tensor) -> list[list[Any]]:
    """Losses and accuracies of clients over their steps, and the first loss that isn't finite; one transfer."""
    most, clients = int(steps.max()), len(steps)
    batch, counts = program.losses.shape[-1], steps.to(program.losses.device)
    losses = _sum_by_halves(program.losses[:most, :clients].to(torch.float64).movedim(-1, 0)) / batch
    right = program.right[:most, :clients].sum(dim=-1, dtype=torch.int64)
    made = torch.arange(most, device=losses.device)[:, None] < counts
    bad = made & ~torch.isfinite(losses)
    first = bad.to(torch.int8).argmax(dim=0)
    worst = losses.gather(0, first[None])[0]
    where = torch.where(bad.any(dim=0), first, -1)
    loss = _sum_by_halves(torch.where(made, losses, 0.0)) / counts
    accuracy = torch.where(made, right, 0).sum(dim=0).to(torch.float64) / (batch * counts)
    rows = torch.stack([loss, accuracy, where.to(torch.float64), worst]).tolist()
    return [rows[0], rows[1], [int(step) for step in rows[2]], rows[3]]


def _sum_by_halves(values: Tensor) -> Tensor:
    """The sum along the first dimension, one half added to the other until one is left.

    Torch's own sum has an order that depends on the other dimensions, and so on how many clients there are. This one
    depends neither on them nor on zeros behind the last value, which a client has where another one makes more steps.
    """
    total, length = values + 0.0, len(values)
    while length > 1:
        half = 1 << (length - 1).bit_length() - 1
        total[: length - half] += total[half:length]
        length = half
    return total[0]
