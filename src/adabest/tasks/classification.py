"""The task of learning from samples: a model, an objective, a data set, and the partition of it among clients."""

import contextlib
import functools
import hashlib
import math
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from adabest import random
from adabest.data.augmentation import Augmentation, flip_crop, none
from adabest.data.dataset import Dataset
from adabest.data.inputs import Inputs
from adabest.data.synthetic import SyntheticInputs
from adabest.errors import InputError
from adabest.federation.batches import MISSING, Batching, batch_table, batches_per_epoch
from adabest.federation.partition import Partition
from adabest.model_part import Part
from adabest.models.keyed import set_dropout_key
from adabest.models.vector import VectorModel, parameters_of
from adabest.random import Purpose
from adabest.registry import Registry, shown
from adabest.tasks.base import Heartbeat, LocalPass, Scores, ValidationScores, no_heartbeat
from adabest.tasks.objectives.base import Objective
from adabest.tasks.objectives.catalog import CLASSIFICATION, try_objective
from adabest.tasks.objectives.metric import Metric
from adabest.tasks.own_metrics import OwnMetric, try_own_metrics

Loss = Callable[[Tensor, Tensor], Tensor]

LOSSES: Registry[Loss] = Registry(
    kind="loss",
    group="adabest.losses",
    builtin={"cross-entropy": functional.cross_entropy},
)

_EVALUATION_BATCH = 2000
_EVALUATED_NUMBERS = 2**24  # outputs at a time, of models that give more than a row of them for a sample
# The most bytes of synthetic samples that are stored on a GPU, which may be one in so many of those that are free.
_MOST_STORED, _MEMORY_PER_STORED = 4 * 2**30, 8


@dataclass(frozen=True)
class DeviceData:
    """A data set's tensors on a device; the attributes are those of ``Dataset``."""

    dataset: Dataset
    x_train: Tensor | Inputs
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor


_ON_DEVICES: weakref.WeakValueDictionary[tuple[int, torch.device], DeviceData] = weakref.WeakValueDictionary()


def on_device(dataset: Dataset, device: torch.device) -> DeviceData:
    """A data set on a device, as one copy that all tasks share which use it at the same time."""
    found = _ON_DEVICES.get((id(dataset), device))
    if found is None:
        others = (tensor.to(device) for tensor in (dataset.y_train, dataset.x_test, dataset.y_test))
        found = DeviceData(dataset, _inputs_on(dataset.x_train, device), *others)
        _ON_DEVICES[id(dataset), device] = found
    return found


def _inputs_on(inputs: Tensor | Inputs, device: torch.device) -> Tensor | Inputs:
    """Inputs on a device; synthetic ones become a tensor there if there is memory to spare for it.

    Kernels read tensors, and on a GPU making the samples of a step takes as long as the step itself.
    """
    placed = inputs.to(device)
    if isinstance(placed, SyntheticInputs) and placed.stored_bytes <= _bytes_to_spare(device):
        return placed.made()
    return placed


def _bytes_to_spare(device: torch.device) -> int:
    """The most bytes of synthetic samples that are stored; on a CPU none, as large populations are promised."""
    if device.type != "cuda":
        return 0
    # Of all memory, not of what is free: numbers must not depend on who else uses the GPU.
    return min(_MOST_STORED, torch.cuda.get_device_properties(device).total_memory // _MEMORY_PER_STORED)


class _Judged(NamedTuple):
    """What a model makes of some samples.

    Attributes:
        loss: The mean loss.
        sums: What each sample adds to the sums that metrics are made of, ``[samples, sums]`` on the CPU.
        outputs: The outputs, on the CPU; empty if nobody wants to see them.
    """

    loss: float
    sums: Tensor
    outputs: Tensor


class JudgedClients(NamedTuple):
    """What a model makes of the samples of some clients.

    Attributes:
        values: The metrics of each client, ``[clients, metrics]``; NaN where undefined.
        loss: The mean loss over all samples.
        weight: What the samples weigh in it.
        sums: What they add to the sums that the task's own metrics are made of.
    """

    values: np.ndarray
    loss: float
    weight: float
    sums: Tensor


# One task of each kind that has been tried out; others of that kind needn't be.
_TRIED_OUT: "weakref.WeakValueDictionary[Hashable, ClassificationTask]" = weakref.WeakValueDictionary()


class ClassificationTask:
    """Mini-batch training of a model on partitioned data.

    Batches, augmentation and dropout are drawn by (seed, round, client, step), so they are the same whatever the order.

    Attributes:
        data: The data set on the device.
        partition: Which client has which samples.
        model: The model.
        objective: What it is trained for, and judged by.
        loss: Of (outputs, targets).
        own_metrics: What models are judged by beside the objective's metrics.
        augmentation: Of training inputs.
        batch_size: Samples in a batch.
        batching: How an epoch's batches are made; see ``federation.batches``.
        seed: The run's.
        holds_ids: Whether inputs are ids, which the model gets as they are.
        kind: Equal for tasks that can be trained together: their models, data and batches have the same shapes, and
            what isn't trained in their models is the same. Valid as long as a task of that kind exists, since it
            contains ``id``s.
    """

    def __init__(
        self,
        dataset: Dataset,
        partition: Partition,
        module: nn.Module,
        *,
        objective: Objective = CLASSIFICATION,
        loss: Loss | None = None,
        own_metrics: Sequence[OwnMetric] = (),
        augmentation: Augmentation = none,
        epochs: int = 5,
        batch_size: int = 45,
        batching: Batching = "top-up",
        local_steps: Literal["own", "mean"] | int = "own",
        seed: int = 0,
        device: torch.device | None = None,
        dtype: torch.dtype = torch.float32,
        kind: Hashable | None = None,
    ) -> None:
        if epochs < 1:
            raise InputError(f"epochs = {epochs}: clients need at least one pass over their samples")
        if batch_size < 1:
            raise InputError(f"batch_size = {batch_size}: a batch needs at least one sample")
        if batching not in get_args(Batching):
            raise InputError(f"batching = {batching!r}: it is one of {', '.join(get_args(Batching))}")
        if isinstance(local_steps, int) and local_steps < 1:
            raise InputError(f"steps = {local_steps}: clients make at least one step")
        device = device or torch.device("cpu")
        self.partition = partition
        self.model = VectorModel(module, device, dtype)
        self.data = on_device(dataset, device)
        self.objective, self.loss, self.augmentation = objective, loss or objective.loss, augmentation
        self.own_metrics = tuple(own_metrics)
        self.batch_size, self.batching, self.seed = batch_size, batching, seed
        structure = id(self.model) if kind is None else kind
        fixed = _fingerprint_of_fixed(self.model.module)
        # Ids, since an object of the user's may have no hash.
        judges = tuple((own.metric, id(own.function)) for own in self.own_metrics)
        functions = (id(objective), None if self.has_own_loss else id(loss), id(augmentation), judges)
        self.kind = (structure, fixed, id(self.data), batch_size, batching, functions, dtype, device)
        self._initial = self.model.vector.clone()
        self._epochs = epochs
        self._same_steps = local_steps if isinstance(local_steps, int) else None
        if local_steps == "mean":
            self._same_steps = epochs * int(np.ceil(partition.training_samples.mean() / batch_size))
        self.holds_ids = dataset.holds_ids
        self._mean, self._std = dataset.mean.to(device, dtype), dataset.std.to(device, dtype)
        self._dtype, self._device = dtype, device
        self._batches: tuple[tuple[int, int], Tensor] | None = None
        if self.kind not in _TRIED_OUT:
            self._try_out()
            _TRIED_OUT[self.kind] = self

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What models are judged by."""
        return (*self.objective.metrics, *(own.metric for own in self.own_metrics))

    @property
    def has_own_loss(self) -> bool:
        """Whether the loss is the objective's own, and not another in its place."""
        return self.loss == self.objective.loss

    @property
    def classifies(self) -> bool:
        """Whether this is classification by cross-entropy, which engines have code of their own for."""
        return self.objective is CLASSIFICATION and self.loss is functional.cross_entropy

    def initial_model(self) -> Tensor:
        """θ_0."""
        return self._initial.clone()

    def mask_of(self, part: Part) -> Tensor:
        """Which numbers of a model belong to a part of it."""
        return part.mask(parameters_of(self.model.module)).to(self._device)

    def samples(self, client: int) -> int:
        """n_i."""
        return len(self.partition.of(client))

    def steps(self, client: int) -> int:
        """K_i: the client's own number of batches, or everyone's mean or given number if so configured."""
        own = self.samples(client)  # asked first, so that a client which isn't there is refused in any case
        return self._same_steps or self._epochs * int(batches_per_epoch(own, self.batch_size))

    @functools.cached_property
    def most_steps(self) -> int:
        """The largest K_i; cached, since it takes a pass over the whole population."""
        if self._same_steps is not None:
            return self._same_steps
        return self._epochs * self.most_batches

    @functools.cached_property
    def most_batches(self) -> int:
        """The most batches that the samples of a client are cut into, in any round."""
        return int(batches_per_epoch(int(self.partition.training_samples.max()), self.batch_size))

    @functools.cached_property
    def indices(self) -> Tensor:
        """The samples of all clients on the device, those of client 0 first."""
        return torch.from_numpy(self.partition.indices).to(self._device)

    def local_pass(self, w: Tensor, client: int, round_number: int, step: int) -> LocalPass:
        """Forward and backward on one batch."""
        chosen = self._batches_of(client, round_number, step)[step]
        if self.batching == "short":
            chosen = chosen[chosen != MISSING]
        x = self.inputs(chosen)
        if self.augmentation is not none:
            places = torch.arange(len(chosen), device=self._device)
            keys = random.bits(self.seed, Purpose.AUGMENTATION, round_number, client, step, places)
            x = self.augmentation(x, keys)
        set_dropout_key(self.model.module, self.seed, round_number, client, step)
        return self._pass(self.model, w, x, self.data.y_train[chosen])

    def full_gradient(self, w: Tensor, client: int, model: VectorModel | None = None) -> Tensor:
        """The gradient over all samples of a client, without augmentation or dropout.

        Args:
            w: Where.
            client: Whose.
            model: A copy of the task's model to compute with, so that several threads can; by default the model itself.
        """
        model = model or self.model
        chosen = torch.from_numpy(self.partition.of(client)).to(self._device)
        everything = max(self.objective.weight(self.data.y_train[chosen]), 1)
        total = torch.zeros_like(w)
        with _evaluating(model):
            for part in torch.split(chosen, self.evaluation_batch):
                x, y = self._normalise(self.data.x_train[part]), self.data.y_train[part]
                total += self._pass(model, w, x, y).gradient * (self.objective.weight(y) / everything)
        return total

    def test(self, w: Tensor, heartbeat: Heartbeat = no_heartbeat) -> Scores:
        """Loss and metrics on the test set.

        Raises:
            InputError: If there is none.
        """
        if len(self.data.y_test) == 0:
            raise InputError(f"data set {self.data.dataset.name} has no test samples; give x_test and y_test")
        judged = self._evaluate(w, self.data.x_test, self.data.y_test, heartbeat)
        values = self.objective.values(judged.sums.sum(dim=0)).tolist()
        values += [own.value(judged.outputs, self.data.y_test.cpu()) for own in self.own_metrics]
        return Scores(judged.loss, {metric.name: value for metric, value in zip(self.metrics, values, strict=True)})

    def validate(self, w: Tensor, heartbeat: Heartbeat = no_heartbeat) -> ValidationScores | None:
        """The first metric on each validation client, summarised."""
        if len(self.partition.validation) == 0:
            return None
        held_out = self.partition.validation
        values = self.values_by_client(
            w, validation_samples(self.partition), self.partition.samples[held_out], heartbeat
        )
        found = summarised(values[:, 0], self.metrics[0])
        others = values[:, len(self.objective.metrics) :]
        means = {own.metric.name: _mean(column) for own, column in zip(self.own_metrics, others.T, strict=True)}
        return found._replace(others=means) if means else found

    def values_by_client(
        self, w: Tensor, samples: np.ndarray, counts: np.ndarray, heartbeat: Heartbeat = no_heartbeat
    ) -> np.ndarray:
        """The metrics of a model on the samples of each of some clients, ``[clients, metrics]``; NaN where undefined.

        The arguments are those of ``judge_by_client``.
        """
        return self.judge_by_client(w, samples, counts, heartbeat).values

    def judge_by_client(
        self, w: Tensor, samples: np.ndarray, counts: np.ndarray, heartbeat: Heartbeat = no_heartbeat
    ) -> "JudgedClients":
        """Judges a model on the samples of each of some clients.

        Args:
            w: The model.
            samples: Training samples, those of the first client first.
            counts: How many each client has.
            heartbeat: Called now and then; may raise.
        """
        chosen = torch.from_numpy(samples).to(self._device)
        judged = self._evaluate(w, self.data.x_train[chosen], self.data.y_train[chosen], heartbeat)
        values = self.objective.values(torch.from_numpy(sums_by_client(judged.sums.numpy(), counts))).numpy()
        if self.own_metrics:
            targets = self.data.y_train[chosen].cpu()
            parts = zip(*(torch.split(part, counts.tolist()) for part in (judged.outputs, targets)), strict=True)
            own = [[metric.value_or_nan(out, true) for metric in self.own_metrics] for out, true in parts]
            values = np.concatenate([values, np.array(own).reshape(len(counts), -1)], axis=1)
        return JudgedClients(values, judged.loss, self.objective.weight(self.data.y_train[chosen]), judged.sums.sum(0))

    def _batches_of(self, client: int, round_number: int, step: int) -> Tensor:
        """The sample indices of a client's first steps in a round, a row for each, this step's among them.

        They are kept until others are asked for. ``MISSING`` stands for what short batches don't have.
        """
        is_kept = self._batches is not None and self._batches[0] == (client, round_number)
        if self._batches is None or not is_kept or step >= len(self._batches[1]):
            own = self.samples(client)
            per_epoch = int(batches_per_epoch(own, self.batch_size))
            steps = max(self.steps(client), 2 * step)  # a round may have more steps than the client's own number
            epochs = -(-steps // per_epoch)
            table = batch_table(
                self.seed,
                round_number,
                np.array([client]),
                np.array([own]),
                epochs=epochs,
                batch_size=self.batch_size,
                batching=self.batching,
            )
            places = table.reshape(-1, self.batch_size)
            indices = np.where(places == MISSING, MISSING, self.partition.of(client)[places])
            self._batches = ((client, round_number), torch.from_numpy(indices).to(self._device))
        return self._batches[1]

    def inputs(self, chosen: Tensor, buffer: Tensor | None = None) -> Tensor:
        """Training inputs as the model gets them; in the buffer if there is one, else in memory of their own."""
        x: Any = self.data.x_train
        return self._normalise(x.index_select(0, chosen) if isinstance(x, Tensor) else x[chosen], buffer)

    def example(self) -> Tensor:
        """Two inputs as the model gets them, for whoever wants to know its shapes: ids of samples, or zeros."""
        if self.holds_ids:
            return self.inputs(torch.arange(2, device=self._device) % len(self.data.y_train))
        return self.model.vector.new_zeros(2, *self.data.x_train.shape[1:])

    def _normalise(self, x: Tensor, buffer: Tensor | None = None) -> Tensor:
        if self.holds_ids:
            return x.clone() if buffer is None else buffer.copy_(x)
        copied = x.to(self._dtype, copy=True) if buffer is None else buffer.copy_(x)
        return copied.sub_(self._mean).div_(self._std)

    def _pass(self, model: VectorModel, w: Tensor, x: Tensor, y: Tensor) -> LocalPass:
        model.load(w)
        model.gradient.zero_()
        outputs = model.module(x)
        loss = self.loss(outputs, y)
        torch.autograd.backward(loss)
        return LocalPass(model.gradient, loss.detach(), self.objective.batch_value(outputs.detach(), y))

    def _evaluate(self, w: Tensor, x: Tensor, y: Tensor, heartbeat: Heartbeat) -> "_Judged":
        self.model.load(w)
        loss, weights, sums, kept = 0.0, 0, [], []
        size = self.evaluation_batch
        with _evaluating(self.model), torch.no_grad():
            for part_x, part_y in zip(torch.split(x, size), torch.split(y, size), strict=True):
                heartbeat()
                outputs, weight = self.model.module(self._normalise(part_x)), self.objective.weight(part_y)
                loss += float(self.loss(outputs, part_y)) * weight
                weights += weight
                sums.append(self.objective.sums(outputs, part_y).to("cpu", torch.float64))
                kept.append(outputs.cpu() if self.own_metrics else outputs.new_empty(0, device="cpu"))
        return _Judged(loss / max(weights, 1), torch.cat(sums), torch.cat(kept))

    @functools.cached_property
    def evaluation_batch(self) -> int:
        """How many samples are judged at a time: it depends on shapes alone, since the order of sums depends on it."""
        if self.objective is CLASSIFICATION:
            return _EVALUATION_BATCH
        with _evaluating(self.model), torch.no_grad():
            outputs: Tensor = self.model.module(self.example())
        return max(1, min(_EVALUATION_BATCH, _EVALUATED_NUMBERS * len(outputs) // max(outputs.numel(), 1)))

    def _name_of_loss(self) -> str:
        """The loss as messages name it: the task's own by its class, another by its name."""
        if self.classifies:
            return "the loss"
        if self.has_own_loss:
            return f"the loss of task {type(self.objective).__name__}"
        return f"the loss {getattr(self.loss, '__name__', type(self.loss).__name__)}"

    def _try_out(self) -> None:
        """Applies augmentation and loss to two samples, so that what doesn't fit is refused before any long work.

        Raises:
            InputError: If one of them can't be used.
        """
        # A single sample is taken twice: full batches have several, and some layers need more than one.
        two: Any = slice(2) if len(self.data.y_train) > 1 else torch.zeros(2, dtype=torch.int64, device=self._device)
        x, y = self._normalise(self.data.x_train[two]), self.data.y_train[two]
        of_ours = self.augmentation in (none, flip_crop)
        tried = x.cpu() if of_ours else x  # on a GPU every first operation takes long: its code has to be loaded
        try:
            augmented: Any = self.augmentation(tried, torch.arange(len(x), device=tried.device))
        except Exception as error:
            shape = tuple(x.shape[1:])
            raise InputError(f"the augmentation can't be used on inputs of shape {shape}: {error}") from error
        fits = isinstance(augmented, Tensor) and augmented.shape == x.shape and augmented.dtype == x.dtype
        if not fits:
            is_tensor = isinstance(augmented, Tensor)
            gave = f"{augmented.dtype} of shape {tuple(augmented.shape)}" if is_tensor else type(augmented).__name__
            raise InputError(
                f"the augmentation should return inputs as it got them, {x.dtype} of shape {tuple(x.shape)}, not {gave}"
            )
        if self.classifies and x.is_cuda and not self.own_metrics:
            return  # it takes the scores of any accepted model; trying it loads libraries that training can do without
        try:
            outputs = self.model.module(x)
            value = self.loss(outputs, y)
        except Exception as error:
            of = "class scores and labels" if self.objective is CLASSIFICATION else "the model's outputs and targets"
            raise InputError(f"{self._name_of_loss()} can't be computed from {of}: {error}") from error
        if not (isinstance(value, Tensor) and value.ndim == 0 and value.requires_grad):
            raise InputError(
                f"{self._name_of_loss()} should be a function of (outputs, targets) that returns the batch's mean, a "
                f"scalar tensor with a gradient, not {_words_of_loss(value)}"
            )
        self._refuse_spread_out(outputs.detach(), y)
        if self.objective is not CLASSIFICATION:
            try_objective(self.objective, outputs.detach(), y, self.data.dataset)
        if self.own_metrics and len(self.data.y_test):
            try_own_metrics(self.own_metrics, outputs.detach(), self.data.y_test)

    def _refuse_spread_out(self, outputs: Tensor, y: Tensor) -> None:
        """Refuses a loss that compares each output with each target, as torch does with ``[batch, 1]`` and ``[batch]``.

        Raises:
            InputError: If its value is another one where outputs have the shape of targets.
        """
        if not y.is_floating_point() or outputs.shape == y.shape or outputs.numel() != y.numel():
            return
        outputs, y = (torch.stack([two[0], two[1] + torch.equal(two[0], two[1])]) for two in (outputs, y))
        # Targets that are met, too: an absolute error is the same in both ways where all outputs are too low.
        pairs = [(outputs, y), (outputs, outputs.reshape(y.shape))]
        try:
            alike = torch.stack([self.loss(given.reshape(y.shape), targets) for given, targets in pairs])
            told = torch.stack([self.loss(given, targets) for given, targets in pairs])
        except Exception:  # it counts on the shape that the model gives
            return
        if not torch.allclose(told, alike, rtol=1e-4, equal_nan=True):
            raise InputError(
                f"{self._name_of_loss()} compares each output with each target, since outputs have the shape "
                f"{tuple(outputs.shape)} and targets {tuple(y.shape)} in a batch of two; it should begin with "
                "outputs = outputs.reshape(targets.shape)"
            )


@contextlib.contextmanager
def _evaluating(model: VectorModel) -> Iterator[None]:
    """Within, dropout is off. Afterwards it is on again, even if the user interrupts."""
    model.module.eval()
    try:
        yield
    finally:
        model.module.train()


def _words_of_loss(value: Any) -> str:
    """What a loss gave instead of a mean with a gradient, and what would mend it."""
    if not isinstance(value, Tensor):
        return f"{shown(value)}, a {type(value).__name__}; leave .item(), float() and NumPy out"
    if value.ndim:
        return f"a tensor of shape {tuple(value.shape)}; take its mean"
    return "one without a gradient; compute it from outputs by torch alone, without detach() or no_grad()"


def validation_samples(partition: Partition) -> np.ndarray:
    """The samples of the validation clients, those of the first one first."""
    return np.concatenate([partition.of(client) for client in partition.validation])


def sums_by_client(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The sums over the samples of each client, ``[clients, sums]``.

    Args:
        sums: What each sample adds, those of the first client first.
        counts: How many samples each client has.
    """
    owner = np.repeat(np.arange(len(counts)), counts)
    columns = [np.bincount(owner, weights=column, minlength=len(counts)) for column in sums.T]
    return np.stack(columns, axis=1)


def summarised(values: np.ndarray, metric: Metric) -> ValidationScores:
    """A metric of each of some clients, summarised; clients for which it isn't defined are left out."""
    values = values[~np.isnan(values)]
    if not len(values):
        return ValidationScores(math.nan, math.nan, math.nan)
    from_worst = np.sort(values) if metric.higher_is_better else -np.sort(-values)
    worst = from_worst[: -(-len(values) // 10)]
    with np.errstate(over="ignore", invalid="ignore"):  # of values that are too large, such as perplexities
        return ValidationScores(float(values.mean()), float(values.std()), float(worst.mean()))


def _mean(values: np.ndarray) -> float:
    """The mean of what is defined."""
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else math.nan


def _fingerprint_of_fixed(module: nn.Module) -> str:
    """A hash of everything in a model that isn't trained: frozen parameters and buffers."""
    digest = hashlib.sha256()
    frozen = ((name, parameter) for name, parameter in module.named_parameters() if not parameter.requires_grad)
    for name, tensor in (*frozen, *module.named_buffers()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
