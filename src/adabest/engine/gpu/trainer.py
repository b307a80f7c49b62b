"""The trainer for GPUs: as many clients as fit into memory in one program."""

import contextlib
import copy
import itertools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from adabest.data.augmentation import flip_crop, none
from adabest.engine.arrival import Arrival
from adabest.engine.cohort_table import CohortTable
from adabest.engine.device_clock import DeviceClock
from adabest.engine.gpu.kernels.buffers import Rates
from adabest.engine.gpu.kernels.operator_choice import operators, why_no_kernels
from adabest.engine.gpu.packing import packing
from adabest.engine.gpu.program import ADDING_UP, Cohort, Program, ProgramSetting, StepKind
from adabest.engine.interface import TrainingScores
from adabest.engine.layer_plan import FunctionalLayer, Layer, Plan, first_line, plan_model
from adabest.engine.sample_table import all_samples
from adabest.engine.threads import one_thread
from adabest.engine.trainer import ClientWork, TrainingJob, TrainingResult, Unbatchable
from adabest.errors import AdabestError, InputError
from adabest.federation.batches import MISSING, batches_per_epoch
from adabest.models.keyed import set_dropout_key
from adabest.tasks.base import Heartbeat
from adabest.tasks.classification import ClassificationTask, DeviceData
from adabest.tasks.objectives.catalog import CLASSIFICATION

# Of a GPU's memory. A quarter is for what clients keep (see engine.memory_tiers), the rest for what isn't counted: what
# functional layers allocate in a step, and the server.
_SHARE_OF_MEMORY = 0.5
_VECTORS = 6  # of a client outside of the program in a round: its state before and after, offset, model and reply
_GIBIBYTE = 2**30
_SAMPLES_AT_A_TIME = 4096  # whose numbers are looked at


@dataclass(frozen=True)
class Precision:
    """The number formats of training; parameters are always kept, and sums made, in the model's own type.

    Attributes:
        half: Whether activations and products are in bfloat16.
        tf32: Whether float32 products may be made by a GPU's matrix units.
    """

    half: bool = False
    tf32: bool = False


def fitting_precision(task: ClassificationTask, precision: Precision) -> Precision:
    """A precision in which no input changes its meaning: where bfloat16 would make another id of an id, float32.

    Users who give ids as floating-point numbers have their model look them up, and bfloat16 holds whole numbers only up
    to 256.
    """
    if not (precision.half and _holds_long_whole_numbers(task.data)):
        return precision
    warnings.warn(
        f"data set {task.data.dataset.name} holds whole numbers as floating-point inputs that bfloat16 would change "
        "(above 256 it rounds them); training is in float32 instead. If they are ids, give them as int64; else scale "
        "them, or choose --precision float32",
        stacklevel=2,
    )
    return Precision(half=False, tf32=precision.tf32)


def _holds_long_whole_numbers(data: DeviceData) -> bool:
    """Whether some place of all inputs holds nothing but whole numbers, and one among them that bfloat16 changes."""
    x = data.x_train
    normalised = bool((data.dataset.mean != 0).any()) or bool((data.dataset.std != 1).any())
    if normalised or not isinstance(x, Tensor) or not x.is_floating_point():
        return False
    whole = torch.ones(x.shape[1:], dtype=torch.bool, device=x.device)
    changed = torch.zeros_like(whole)
    for part in torch.split(x, _SAMPLES_AT_A_TIME):
        whole &= (part == part.round()).all(dim=0)
        changed |= (part.to(torch.bfloat16).to(part.dtype) != part).any(dim=0)
        if not bool(whole.any()):
            return False
    return bool((whole & changed).any())


class GpuTrainer:
    """Trains clients that share a model's structure, a data set and a batch size (a ``Trainer``).

    It works on a CPU as well, in plain torch.

    Attributes:
        cuts_runs_as_alone: False: whatever fits trains at the same time.
        why_no_full_gradients: Why only the task computes full gradients, one client after another; None if this can.
    """

    cuts_runs_as_alone = False

    def __init__(
        self,
        task: ClassificationTask,
        precision: Precision | None = None,
        clients_in_parallel: int | None = None,
        device_clock: DeviceClock | None = None,
    ) -> None:
        """Finds out whether the task can be batched.

        Args:
            task: One of the tasks whose clients are trained.
            precision: The number formats of training; by default the model's own.
            clients_in_parallel: The most clients that train at a time; by default as many as fit.
            device_clock: Measures how long a GPU works.

        Raises:
            Unbatchable: If the model, the loss or the augmentation can't be computed for many clients at once.
        """
        self._device = task.model.vector.device
        self._setting = setting(task, precision or Precision())
        self._batching = task.batching
        self._flip_crops = task.augmentation is flip_crop
        # Whether a batch may lack samples, in whose places others stand that nothing must see.
        self.why_no_full_gradients = self._why_none_stands_in(task)
        why_not_short = self.why_no_full_gradients
        if why_not_short is None and self._setting.augment is not None:
            why_not_short = "the augmentation may look at the whole batch"
        if self._batching == "short" and why_not_short is not None:
            raise Unbatchable(
                "a batch that is shorter than others can only be computed by itself there, since "
                f"{why_not_short}; batches that are topped up have no such limit"
            )
        self._try_out()
        self._steps = task.most_steps
        self._most = clients_in_parallel
        self._clock = device_clock or DeviceClock()
        self._program: Program | None = None
        self._extra_bytes = 0  # that a client has taken so far for what only some kinds of steps have

    def way(self, layer: Layer, device_type: str) -> str:
        """How a layer of these tasks is computed on a kind of device, in a few words."""
        stacked = "one client at a time" if self._most == 1 else "clients stacked"
        if isinstance(layer, FunctionalLayer):
            return f"torch.func, {stacked}"
        if why_no_kernels(device_type, self._setting.operand) is not None:
            return f"plain torch, {stacked}"
        return "kernels"

    @property
    def own_parts(self) -> list[str]:
        """What users wrote beside the model, which ``torch.func`` computes as well."""
        parts = {"the loss": self._setting.loss, "the augmentation": self._setting.augment}
        return [name for name, part in parts.items() if part is not None]

    @property
    def mixes_runs(self) -> bool:
        """Whether clients of several runs may train at the same time with the last bits of each run alone."""
        return self._setting.sums_by_client

    def capacity(self, wanted: int) -> int:
        """How many of the clients that want to train can do so at the same time.

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
        """Lowers the capacity after memory has run out with a number of clients.

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

    def train(self, jobs: Sequence[TrainingJob], heartbeat: Heartbeat) -> list[TrainingResult]:
        """Trains the clients of several runs at the same time; on a GPU, doesn't wait until that has happened.

        Runs whose steps have other parts train one after another: a step has no part that its clients don't need, and
        no client's bits depend on what others need.
        """
        self._enlarge(int(jobs[0].table.host_steps.max()), *(job.task.most_steps for job in jobs))
        alike: dict[StepKind, list[int]] = {}
        for place, job in enumerate(jobs):
            alike.setdefault(self._kind(job), []).append(place)
        results: dict[int, TrainingResult] = {}
        for places in alike.values():
            own = list(jobs) if len(alike) == 1 else _with_own_table([jobs[place] for place in places])
            results.update(zip(places, self._train_alike(own, heartbeat), strict=True))
        return [results[place] for place in range(len(jobs))]

    def _train_alike(self, jobs: Sequence[TrainingJob], heartbeat: Heartbeat) -> list[TrainingResult]:
        """Trains the clients of several runs whose steps have the same parts."""
        program = self._program_for(sum(len(job.clients) for job in jobs))
        has_offset = any(job.correction.offset is not None for job in jobs)
        kind = self._kind(jobs[0])._replace(has_offset=has_offset)
        program.compile(kind, beside=lambda: self._tables(jobs[0].table))
        cohort = self._cohort(jobs)
        models = self._run(program, cohort, jobs, heartbeat)
        self._extra_bytes = max(self._extra_bytes, program.extra_bytes // program.clients)
        numbers, velocities = Arrival(_summary(program, cohort)), None
        if kind.has_momentum:
            velocities = self._setting.packing.unpack(program.velocities()[: len(models)])
        return [
            TrainingResult(
                _rows(job, models),
                TrainingScores(job.clients, numbers, job.first),
                None if velocities is None else _rows(job, velocities),
            )
            for job in jobs
        ]

    def _enlarge(self, drawn: int, *most: int) -> None:
        """Raises the number of steps of a program.

        Args:
            drawn: The most steps that clients make in this round.
            most: The most steps that clients of each job make in any round, unless steps are drawn.
        """
        self._steps = max(self._steps, *most)
        if drawn > self._steps:  # by powers of two: a new program is captured anew
            self._steps = 1 << (drawn - 1).bit_length()

    @property
    def full_gradients(self) -> ClientWork | None:
        """Computes the gradients of clients over all their samples; None if only the task can."""
        return self._full_gradients if self.why_no_full_gradients is None else None

    def _full_gradients(self, jobs: Sequence[TrainingJob], heartbeat: Heartbeat) -> list[TrainingResult]:
        """The gradients of several runs' clients at the same time: a step for each batch, whose gradients are added."""
        self._steps = max(self._steps, *(job.task.most_batches for job in jobs))
        program = self._program_for(sum(len(job.clients) for job in jobs))
        program.compile(ADDING_UP, beside=lambda: None)
        gradients = self._run(program, self._cohort_at_start(jobs), jobs, heartbeat)
        return [TrainingResult(_rows(job, gradients), None) for job in jobs]

    def _run(self, program: Program, cohort: Cohort, jobs: Sequence[TrainingJob], heartbeat: Heartbeat) -> Tensor:
        """The vectors that a program comes to for the clients of all jobs, ``[clients, P]``."""
        clients = sum(len(job.clients) for job in jobs)
        try:
            with one_thread() if self._device.type == "cpu" else self._clock.working(self._device):
                packed = program.train(cohort, heartbeat)
        except Exception as error:
            if not isinstance(error, AdabestError):
                error.add_note(f"in round {jobs[0].round}, with {clients} clients side by side")
            raise
        return self._setting.packing.unpack(packed[:clients])

    def _kind(self, job: TrainingJob | None = None) -> StepKind:
        """What steps of training are compiled for, beside offsets; affine ones by plain descent without a job."""
        plain = StepKind(has_codes=self._flip_crops, has_offset=False, has_missing=self._batching == "short")
        if job is None:
            return plain
        own = job.correction
        return plain._replace(
            has_diagonal=own.has_diagonal,
            has_shift=own.shift is not None,
            has_radius=own.has_radius,
            has_anchor=own.has_anchor,
            has_previous=own.previous,
            has_momentum=own.has_momentum,
            has_adam=job.request.training.optimizer is not None,
        )

    def _why_none_stands_in(self, task: ClassificationTask) -> str | None:
        """Why no sample may stand in the place of one that a batch lacks; None if one may."""
        if self._setting.loss is not None:
            return "the loss isn't cross-entropy of classes, and may look at the whole batch"
        if not keeps_samples_apart(task, self._setting.layers):
            return "the model's outputs for a sample depend on the others of its batch"
        return None

    def _try_out(self) -> None:
        """Runs one dry step of what the user wrote, for two clients.

        Raises:
            Unbatchable: If it can't be computed for many clients at once.
        """
        try:
            Program(self._setting, 2, 1, self._device).run_dry_step(self._kind())
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            raise Unbatchable(first_line(error)) from error

    def _size(self) -> int:
        """The bytes that the training of one client takes."""
        vector = self._setting.packing.size * self._setting.master.itemsize
        return (
            Program(self._setting, 1, self._steps, torch.device("meta")).bytes + _VECTORS * vector + self._extra_bytes
        )

    def _program_for(self, clients: int) -> Program:
        """A program for a number of clients.

        One for more clients is reused only with our own kernels: they skip the places without a client at no cost.
        """
        there = 0 if self._program is None else self._program.clients
        fits = clients <= there if self._setting.sums_by_client else clients == there
        if self._program is None or not fits or self._program.steps < self._steps:
            self._program = None  # frees its memory before the next one takes some
            self._program = Program(self._setting, clients, self._steps, self._device)
        return self._program

    def _cohort(self, jobs: Sequence[TrainingJob]) -> Cohort:
        """The clients of all jobs as packed tensors. Nothing here waits for a GPU."""
        like, table = jobs[0].correction.start, jobs[0].table
        counts = [len(job.clients) for job in jobs]
        corrections = [job.correction for job in jobs]
        training = [job.request.training for job in jobs]

        def numbers(values: Sequence[Any]) -> Tensor:
            """Each job's number or numbers, one a client."""
            if not any(isinstance(value, Tensor) for value in values) and len(set(values)) == 1:
                return like.new_full((sum(counts),), values[0])
            columns = [
                value.to(like.dtype).reshape(-1).expand(count)
                if isinstance(value, Tensor)
                else like.new_full((count,), value)
                for value, count in zip(values, counts, strict=True)
            ]
            return torch.cat(columns)

        offset = None
        if any(correction.offset is not None for correction in corrections):
            nothing = like.new_zeros(like.shape[-1])
            offset = self._packed(jobs, [nothing if c.offset is None else c.offset for c in corrections])
        decay = [own.weight_decay + c.rho_prime for own, c in zip(training, corrections, strict=True)]
        chosen, codes = self._tables(table)
        return Cohort(
            start=self._packed(jobs, [correction.start for correction in corrections]),
            offset=offset,
            scale=numbers([1.0 if c.has_diagonal else c.scale for c in corrections]),
            rho=numbers([correction.rho for correction in corrections]),
            rates=Rates(
                eta=numbers([job.eta for job in jobs]),
                clip=numbers([own.clip or torch.inf for own in training]),
                decay=numbers(decay),
            ),
            steps=table.steps.to(torch.int32),
            keys=table.keys,
            chosen=chosen,
            flip_crop_codes=codes,
            counts=(chosen != MISSING).sum(dim=2, dtype=torch.int32) if self._batching == "short" else None,
            extras=self._extras(jobs, numbers),
            has_previous=corrections[0].previous,
        )

    def _extras(self, jobs: Sequence[TrainingJob], numbers: Callable[[Sequence[Any]], Tensor]) -> dict[str, Tensor]:
        """What steps have beside the affine correction; see ``Cohort.extras``. All jobs have the same."""
        kind, corrections = self._kind(jobs[0]), [job.correction for job in jobs]
        found: dict[str, Tensor] = {}

        def pack(name: str, vectors: Sequence[Any]) -> None:
            found[name] = self._packed(jobs, vectors)

        if kind.has_diagonal:
            pack("diagonal", [own.scale for own in corrections])
        if kind.has_shift:
            pack("shift", [own.shift for own in corrections])
        if kind.has_radius:
            found["radius"] = numbers([own.radius for own in corrections])
        if kind.has_anchor:
            pack("anchor", [own.start if own.anchor is None else own.anchor for own in corrections])
        if kind.has_momentum:
            start = corrections[0].start
            nothing = start.new_zeros(start.shape[-1])
            found["momentum"] = numbers([own.momentum for own in corrections])
            pack("velocity", [nothing if own.velocity is None else own.velocity for own in corrections])
        if kind.has_adam:
            optimisers = [job.request.training.optimizer for job in jobs]
            for name in ("beta1", "beta2", "eps"):
                found[name] = numbers([getattr(one, name) for one in optimisers])
        return found

    def _cohort_at_start(self, jobs: Sequence[TrainingJob]) -> Cohort:
        """The clients of all jobs, whose gradients at their starts are to be added up."""
        table, batch = jobs[0].table, self._setting.batch
        start = self._packed(jobs, [job.correction.start for job in jobs])
        chosen = all_samples(table, batch)
        nothing, one = start.new_zeros(len(start)), start.new_ones(len(start))
        return Cohort(
            start=start,
            offset=None,
            scale=one,
            rho=nothing,
            rates=Rates(eta=-one, clip=torch.full_like(one, torch.inf), decay=nothing),
            steps=batches_per_epoch(table.samples, batch).to(torch.int32),
            keys=table.keys,
            chosen=chosen,
            flip_crop_codes=None,
            counts=table.samples.to(torch.int32).expand(len(chosen), -1),  # so the sum over batches is the mean
            adds_up=True,
        )

    def _packed(self, jobs: Sequence[TrainingJob], values: Sequence[Tensor]) -> Tensor:
        """Each job's vector or vectors, packed, one row a client."""
        counts = [len(job.clients) for job in jobs]
        rows = self._setting.packing.pack(torch.cat([value.reshape(-1, value.shape[-1]) for value in values]))
        if all(value.ndim > 1 for value in values):
            return rows
        own = torch.split(rows, [1 if value.ndim == 1 else count for value, count in zip(values, counts, strict=True)])
        return torch.cat([row.expand(count, -1) for row, count in zip(own, counts, strict=True)])

    def _tables(self, table: CohortTable) -> tuple[Tensor, Tensor | None]:
        """The samples of each step, and how images are flipped and cropped, if they are."""
        operators, batch = self._setting.operators, self._setting.batch
        chosen = operators.chosen_samples(table, batch, self._batching)
        codes = operators.flip_crop_codes(table.keys, len(chosen), batch) if self._flip_crops else None
        return chosen, codes


def _with_own_table(jobs: Sequence[TrainingJob]) -> list[TrainingJob]:
    """Jobs out of a larger table, with a table of their own clients alone."""
    table = jobs[0].table.rows([slice(job.first, job.first + len(job.clients)) for job in jobs])
    firsts = itertools.accumulate((len(job.clients) for job in jobs), initial=0)
    return [job._replace(table=table, first=first) for job, first in zip(jobs, firsts, strict=False)]


def _rows(job: TrainingJob, of_all: Tensor) -> Tensor:
    """The rows of a job's clients."""
    return of_all[job.first : job.first + len(job.clients)]


def keeps_samples_apart(task: ClassificationTask, layers: Sequence[Layer]) -> bool:
    """Whether a model gives a sample the same class scores whatever is behind it in its batch.

    Layers with operators do. All else is tried out, with parameters among which none is zero.
    """
    if not any(isinstance(layer, FunctionalLayer) for layer in layers):
        return True
    module = task.model.module
    parameters = {
        name: parameter + 0.1 * torch.arange(1, parameter.numel() + 1).to(parameter).cos().view(parameter.shape)
        for name, parameter in module.named_parameters()
    }

    def scores(x: Tensor) -> Tensor:
        set_dropout_key(module, 0, 0, 0, 0)
        result: Tensor = functional_call(module, parameters, (x,))
        return result

    two = task.inputs(torch.arange(2, device=task.model.vector.device) % len(task.data.y_train))
    if task.holds_ids:
        two[1] = two[1].flatten().flip(0).view(two[1].shape)  # another input, of ids that the model knows
    else:
        two[1] += 1
    try:
        with torch.no_grad():
            alone, beside = scores(two[:1]), scores(torch.cat([two, two[1:]]))[:1]
    except Exception:  # a model may do anything to a single sample
        return False
    return torch.allclose(alone, beside, rtol=1e-3, atol=1e-3 * float(beside.abs().max()))


def setting(task: ClassificationTask, precision: Precision) -> ProgramSetting:
    """The setting of all tasks of a task's kind."""
    device, master = task.model.vector.device, task.model.vector.dtype
    operand = torch.bfloat16 if precision.half else master
    data = task.data
    sample = tuple(data.x_train.shape[1:])
    chosen = operators(device, operand, tf32=precision.tf32)
    plan = _plan(task.model.module, task.example())
    channels = sample[0] if len(sample) == 3 else 1

    def by_channel(value: Tensor) -> Tensor:
        return value.to(device, master).reshape(-1).expand(channels).contiguous()

    return ProgramSetting(
        layers=plan.layers,
        sources=plan.sources,
        packing=packing(plan.layers, task.model.shapes, chosen, device),
        shapes=task.model.shapes,
        operators=chosen,
        inputs=data.x_train.contiguous() if isinstance(data.x_train, Tensor) else data.x_train,  # as kernels read it
        labels=data.y_train.contiguous(),
        mean=by_channel(data.dataset.mean),
        deviation=by_channel(data.dataset.std),
        augment=None if task.augmentation in (none, flip_crop) else task.augmentation,
        loss=None if task.classifies else task.loss,
        batch_value=None if task.objective is CLASSIFICATION else task.objective.batch_value,
        batch=task.batch_size,
        output=_output(task),
        operand=operand,
        master=master,
    )


def _output(task: ClassificationTask) -> tuple[int, ...]:
    """The shape of one output."""
    if task.objective is CLASSIFICATION:
        return (task.data.dataset.classes,)
    with torch.no_grad():
        outputs: Tensor = task.model.module(task.example())
    return tuple(outputs.shape[1:])


def _plan(module: nn.Module, example: Tensor) -> Plan:
    """The plan of a model on a device.

    A copy on the CPU is tried first. Where all layers have operators of ours, libraries of the device aren't needed,
    and needn't be loaded, which takes a third of a second.
    """
    if example.is_cuda:
        with contextlib.suppress(Exception):  # a model may be made for GPUs alone
            plan = plan_model(copy.deepcopy(module).cpu(), example.cpu())
            if not any(isinstance(layer, FunctionalLayer) for layer in plan.layers):
                return plan
    return plan_model(module, example)


def _summary(program: Program, cohort: Cohort) -> Tensor:
    """The numbers of ``TrainingScores``, on the device."""
    most, clients, batch = cohort.chosen.shape
    losses = sum_by_halves(program.losses[:most, :clients].to(torch.float64).movedim(-1, 0))
    losses = losses / (batch if cohort.counts is None else cohort.counts)
    made = torch.arange(most, device=losses.device)[:, None] < cohort.steps
    bad = made & ~torch.isfinite(losses)
    first = bad.to(torch.int8).argmax(dim=0)
    worst = losses.gather(0, first[None])[0]
    where = torch.where(bad.any(dim=0), first, -1)
    loss = sum_by_halves(torch.where(made, losses, 0.0)) / cohort.steps
    if program.values is not None:
        values = program.values[:most, :clients]
        known = made & ~values.isnan()  # a batch may lack what its metric is about, such as labels or tokens
        value = sum_by_halves(torch.where(known, values, 0.0)) / known.sum(dim=0)
        return torch.stack([loss, value, where.to(torch.float64), worst])
    right = program.right[:most, :clients].sum(dim=-1, dtype=torch.int64)
    if cohort.counts is None:
        accuracy = torch.where(made, right, 0).sum(dim=0).to(torch.float64) / (batch * cohort.steps)
    else:
        accuracy = sum_by_halves(torch.where(made, right.to(torch.float64) / cohort.counts, 0.0)) / cohort.steps
    return torch.stack([loss, accuracy, where.to(torch.float64), worst])


def sum_by_halves(values: Tensor) -> Tensor:
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
