"""The evaluator for GPUs: the models of many runs are judged side by side, by the kernels that clients train with.

Models take the places of clients, and parts of the data the places of local steps: in step s every model classifies its
s-th ``samples_at_once`` samples. Nothing waits for the GPU until all scores are copied at the end.
"""

import contextlib
import functools
import itertools
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from adabest.engine.device_clock import DeviceClock
from adabest.engine.evaluation import EvaluationRequest, EvaluationResult
from adabest.engine.gpu.kernels import twins
from adabest.engine.gpu.kernels.buffers import Pace, Source
from adabest.engine.gpu.layers import (
    Allocator,
    ConvolutionForward,
    Forward,
    LinearForward,
    NormForward,
    PoolForward,
    SumForward,
    in_torch_layout,
    output_border,
    outputs_of_all,
)
from adabest.engine.gpu.program import ProgramSetting, input_shape, stored_scores
from adabest.engine.gpu.trainer import Precision, setting, sum_by_halves
from adabest.engine.layer_plan import ConvolutionLayer, FunctionalLayer, NormLayer, PoolLayer, SumLayer
from adabest.engine.trainer import Unbatchable
from adabest.federation.partition import Partition
from adabest.tasks.base import Heartbeat, Scores, ValidationScores
from adabest.tasks.classification import ClassificationTask, summarised, sums_by_client, validation_samples
from adabest.tasks.objectives.metric import ACCURACY

_BYTES = 2**29  # of the buffers, which are there only during an evaluation
_MODELS = 8  # for which the buffers should suffice: fewer models at a time leave a large GPU idle
_FEWEST_SAMPLES, _MOST_SAMPLES = 64, 500


def make_gpu_evaluator(
    task: ClassificationTask, precision: Precision, device_clock: DeviceClock | None = None
) -> "GpuEvaluator | None":
    """The evaluator for all tasks of a task's kind; None if their models are to be judged one by one.

    Runs in bfloat16 or TF32 are judged in float16: it has as many significant bits as TF32, rounds instead of cutting
    off, and takes half as long. All others are judged one by one: in float32, or where libraries choose the order of
    sums, which may depend on the number of models, or where metrics of the user's own want to see outputs.

    Args:
        task: One of the tasks.
        precision: The number formats of training.
        device_clock: Measures how long a GPU works.
    """
    own = task.model.vector.is_cuda and task.model.vector.dtype == torch.float32
    if not own or not (precision.half or precision.tf32) or task.own_metrics:
        return None
    try:
        evaluator = GpuEvaluator(task, torch.float16, device_clock)
    except Unbatchable:
        return None
    return evaluator if evaluator.sums_by_model else None


class GpuEvaluator:
    """Judges models of tasks of one kind (an ``Evaluator``).

    It works on a CPU as well, in plain torch.

    Attributes:
        samples_at_once: How many samples each model classifies at a time. It depends on the model's shape alone, and so
            do the kernels that are compiled for it.
        sums_by_model: Whether all sums are made by kernels of ours, so that scores don't depend on the other models.
    """

    def __init__(
        self, task: ClassificationTask, operand: torch.dtype | None = None, device_clock: DeviceClock | None = None
    ) -> None:
        """Finds out whether the task's models can be judged side by side.

        Args:
            task: One of the tasks whose models are judged.
            operand: The type of activations and products; by default the model's own. Float32 products are made in
                TF32 by a GPU's matrix units. Float16 has as many significant bits as TF32 but not its range: runs in
                which a number grows too large for it are judged again in the model's own type.
            device_clock: Measures how long a GPU works.

        Raises:
            Unbatchable: If a layer has no operator of ours, it isn't classification by cross-entropy, the data aren't
                tensors, or none of them are for tests.
        """
        own = setting(task, Precision(tf32=True))
        if any(isinstance(layer, FunctionalLayer) for layer in own.layers):
            raise Unbatchable("torch.func computes some of the model's layers")
        if own.loss is not None:
            raise Unbatchable("it isn't classification by cross-entropy")
        if not (isinstance(own.inputs, Tensor) and isinstance(task.data.x_test, Tensor)):
            raise Unbatchable("the data aren't tensors")
        if len(task.data.y_test) == 0:
            raise Unbatchable("there are no test samples")
        self._task = task
        self._setting = replace(own, operand=operand or own.master)
        self._device = task.model.vector.device
        self._clock = device_clock or DeviceClock()
        self._test = task.data.x_test.contiguous(), task.data.y_test.contiguous()
        each = _Pass(self._setting, 1, 1, torch.device("meta")).bytes
        self.samples_at_once = min(_MOST_SAMPLES, max(_FEWEST_SAMPLES, _BYTES // (_MODELS * each)))
        self.sums_by_model = own.operators is not twins
        self._models_at_once = max(1, _BYTES // (self.samples_at_once * each))
        self._compiled = self._device.type != "cuda"
        self._tables: dict[int, _Table] = {}
        self._test_table = self._table(np.arange(len(self._test[1])))

    def evaluate(self, requests: Sequence[EvaluationRequest], heartbeat: Heartbeat) -> list[EvaluationResult]:
        """Judges the models of several runs, as many as fit at a time; one result per request."""
        current = torch.cuda.device(self._device) if self._device.type == "cuda" else contextlib.nullcontext()
        with current, torch.no_grad(), self._clock.working(self._device):
            while True:
                try:
                    return self._evaluate(requests, heartbeat)
                except torch.OutOfMemoryError:
                    if self._models_at_once == 1:
                        raise
                self._models_at_once //= 2

    def _evaluate(self, requests: Sequence[EvaluationRequest], heartbeat: Heartbeat) -> list[EvaluationResult]:
        # In some algorithms the cloud model is the aggregate model: it is judged once.
        models = {id(model): model for request in requests for model in request.models.values()}
        validated = {
            n: request
            for n, request in enumerate(requests)
            if request.validated is not None and len(_partition(request).validation) > 0
        }
        tables = [self._validation_table(_partition(request)) for request in validated.values()]
        test = self._judge(list(models.values()), [self._test_table] * len(models), heartbeat, test=True)
        judged = [request.validated for request in validated.values() if request.validated is not None]
        validation = self._judge(judged, tables, heartbeat, test=False)
        samples = self._test_table.samples
        copied = _copied(test, validation, samples)
        # Divided here: a GPU would multiply by the inverse, which may change a last bit.
        pairs = zip((copied.losses / samples).tolist(), (copied.right / samples).tolist(), strict=True)
        scores = {key: Scores(loss, {"accuracy": right}) for key, (loss, right) in zip(models, pairs, strict=True)}
        validations = {
            number: _validation(_partition(request), row[: table.samples])
            for (number, request), table, row in zip(validated.items(), tables, copied.validation, strict=True)
        }
        results = [
            EvaluationResult({name: scores[id(model)] for name, model in own.models.items()}, validations.get(number))
            for number, own in enumerate(requests)
        ]
        if self._setting.operand == torch.float16:
            overflowed = {key for key, number in zip(models, copied.overflows, strict=True) if number}
            invalid = {n for n, number in zip(validated, copied.validation_overflows, strict=True) if number}
            again = {n: _only(own, overflowed, is_invalid=n in invalid) for n, own in enumerate(requests)}
            again = {n: own for n, own in again.items() if own.models or own.validated is not None}
            precise = self._in_own_type.evaluate(list(again.values()), heartbeat) if again else []
            for number, result in zip(again, precise, strict=True):
                before = results[number]
                results[number] = EvaluationResult(
                    {**before.tests, **result.tests}, result.validation or before.validation
                )
        return results

    @functools.cached_property
    def _in_own_type(self) -> "GpuEvaluator":
        return GpuEvaluator(self._task)

    def _judge(
        self, models: Sequence[Tensor], tables: "Sequence[_Table]", heartbeat: Heartbeat, *, test: bool
    ) -> "_Judgement":
        """The losses of all models on the samples of their tables, as many models at a time as fit."""
        own, device = self._setting, self._device
        steps = max((len(table.chosen) for table in tables), default=0)
        inputs, labels = self._test if test else (own.inputs, own.labels)
        shape = (len(models), steps * self.samples_at_once)
        found = _Judgement(
            torch.empty(shape, dtype=own.master, device=device),
            torch.empty(shape, dtype=torch.uint8, device=device),
            torch.empty(len(models), dtype=own.operand, device=device),
        )
        parts = -(-len(models) // self._models_at_once)
        bounds = [len(models) * part // parts for part in range(parts + 1)] if parts else [0]
        forward: _Pass | None = None
        for first, last in itertools.pairwise(bounds):
            if forward is None or forward.models != last - first:
                forward = None  # frees its memory before the next one takes some
                forward = _Pass(own, last - first, self.samples_at_once, device)
            packed = own.packing.pack(torch.stack(list(models[first:last]))).to(own.operand)
            chosen = torch.stack([table.padded(steps) for table in tables[first:last]], dim=1)
            paces = torch.cat([table.steps for table in tables[first:last]])
            source = Source(inputs, labels, own.mean, own.deviation, chosen, None)
            part = forward.run(packed, source, paces, heartbeat, compiles=not self._compiled)
            self._compiled = True
            for whole, own_part in zip(found, part, strict=True):
                whole[first:last] = own_part
        return found

    def _table(self, samples: np.ndarray) -> "_Table":
        """The table of samples, each step's in a row; what the last row lacks is filled up with the first sample."""
        steps = -(-len(samples) // self.samples_at_once)
        rows = np.full((steps, self.samples_at_once), samples[0], dtype=np.int32)
        rows.reshape(-1)[: len(samples)] = samples
        return _Table(
            torch.from_numpy(rows).to(self._device),
            torch.tensor([steps], dtype=torch.int32, device=self._device),
            len(samples),
            None,
        )

    def _validation_table(self, partition: Partition) -> "_Table":
        """The table of a partition's validation samples, copied to the device once."""
        if id(partition) not in self._tables:
            table = self._table(validation_samples(partition))
            self._tables[id(partition)] = table._replace(owner=partition)
        return self._tables[id(partition)]


class _Table(NamedTuple):
    """The samples on which a model is judged.

    Attributes:
        chosen: The samples of each step, int32 ``[steps, samples at once]``.
        steps: How many steps there are, int32 ``[1]``.
        samples: How many samples there are.
        owner: Keeps the partition alive, by whose ``id()`` the table is found.
    """

    chosen: Tensor
    steps: Tensor
    samples: int
    owner: Partition | None

    def padded(self, steps: int) -> Tensor:
        """The samples with rows for more steps, which aren't made: any sample does."""
        if steps == len(self.chosen):
            return self.chosen
        return self.chosen[torch.arange(steps, device=self.chosen.device).clamp(max=len(self.chosen) - 1)]


class _Judgement(NamedTuple):
    """What models make of their samples.

    Where a model has fewer samples than another, the rest of its row is arbitrary.

    Attributes:
        losses: The loss of each sample, ``[models, samples]``.
        right: Whether it is classified rightly, of the same shape.
        peaks: The largest activation between layers, ``[models]``; 0 where the operands have float32's range. One that
            is too large for float16 is infinite, and a relu after it may hide that from the loss.
    """

    losses: Tensor
    right: Tensor
    peaks: Tensor

    @property
    def overflows(self) -> Tensor:
        """Whether an activation or a loss isn't finite, ``[models]``."""
        return ~(torch.isfinite(self.losses).all(dim=1) & torch.isfinite(self.peaks))


class _Copied(NamedTuple):
    """All that is copied from the device.

    Attributes:
        losses: Each model's sum of losses over the test set.
        right: How many test samples it classifies rightly.
        overflows: 1 where a number wasn't finite on the test set.
        validation_overflows: 1 where one wasn't on the validation clients, ``[validated models]``.
        validation: Whether each of their samples is classified rightly, ``[validated models, samples]``.
    """

    losses: np.ndarray
    right: np.ndarray
    overflows: np.ndarray
    validation_overflows: np.ndarray
    validation: np.ndarray


def _copied(test: _Judgement, validation: _Judgement, samples: int) -> _Copied:
    """Sums the test up, in an order that depends on the samples' numbers alone, and copies everything at once."""
    by_sample = test.losses[:, :samples].to(torch.float64).T.contiguous()
    columns = [
        sum_by_halves(by_sample) if by_sample.numel() else by_sample.new_zeros(0),
        test.right[:, :samples].sum(dim=1, dtype=torch.int64),
        test.overflows,
        validation.overflows,
    ]
    numbers = torch.cat([column.to(torch.float64) for column in columns]).view(torch.uint8)
    everything = torch.cat([numbers, validation.right.flatten()]).cpu().numpy()
    ends = np.cumsum([len(column) for column in columns])
    losses, right, overflows, in_validation = np.split(everything[: len(numbers)].view(np.float64), ends[:-1])
    rows = everything[len(numbers) :].reshape(validation.right.shape)
    return _Copied(losses, right, overflows, in_validation, rows)


class _Pass:
    """The buffers and layers with which a number of models classify samples side by side.

    Attributes:
        models: The number of models.
        bytes: The bytes of its buffers.
    """

    def __init__(self, own: ProgramSetting, models: int, samples: int, device: torch.device) -> None:
        self.models = models
        self._setting, self._samples, self._device = own, samples, device
        self._input_shape = input_shape(own)
        allocate = Allocator(models, own.operand, device)
        self._x = allocate(samples, *self._input_shape.stored)
        self._unused_gradient = allocate(samples, *stored_scores(own))
        common: dict[str, Any] = {"batch": samples, "allocate": allocate}
        self._layers = list[Forward]()
        for place, (layer, regions) in enumerate(zip(own.layers, own.packing.regions, strict=True)):
            assert not isinstance(layer, FunctionalLayer)
            border = output_border(place, own.layers, own.sources)
            # Scores keep their sums' type: rounded ones would be equal more often, and the first of them wins.
            kind = own.master if place + 1 == len(own.layers) else None
            match layer:
                case ConvolutionLayer():
                    self._layers.append(ConvolutionForward(layer, regions, own.operators, border=border, **common))
                case NormLayer():
                    self._layers.append(NormForward(layer, regions, own.operators, border=border, kind=kind, **common))
                case PoolLayer():
                    self._layers.append(PoolForward(layer, own.operators, border=border, kind=kind, **common))
                case SumLayer():
                    self._layers.append(SumForward(layer, own.operators, border=border, kind=kind, **common))
                case _:
                    self._layers.append(LinearForward(layer, regions, own.operators, kind=kind, **common))
        self.bytes = allocate.bytes

    def run(self, packed: Tensor, source: Source, steps: Tensor, heartbeat: Heartbeat, *, compiles: bool) -> _Judgement:
        """Judges models on their samples.

        Args:
            packed: The models.
            source: The data, and each model's samples.
            steps: How many steps each model makes.
            heartbeat: Called before each step; may raise.
            compiles: Whether to compile all kernels at the same time before.
        """
        own, table = self._setting, tuple(source.chosen.shape)
        found = _Judgement(
            torch.zeros(table, dtype=own.master, device=self._device),
            torch.zeros(table, dtype=torch.uint8, device=self._device),
            torch.zeros(self.models, dtype=own.operand, device=self._device),
        )
        pace = Pace(torch.zeros(1, dtype=torch.int32, device=self._device), steps)
        if compiles:
            own.operators.compile_together(lambda: self._step(packed, source, pace, found))
        for _ in range(table[0]):
            heartbeat()
            self._step(packed, source, pace, found)
            pace.step.add_(1)
        losses, right = (each.transpose(0, 1).flatten(1) for each in (found.losses, found.right))
        return _Judgement(losses, right, found.peaks)

    def _step(self, packed: Tensor, source: Source, pace: Pace, found: _Judgement) -> None:
        """Writes down what models make of one step's samples; losses and rightness are ``[steps, models, samples]``."""
        own = self._setting
        own.operators.gather(self._input_shape, source, pace, self._x)
        *between, value = outputs_of_all(self._layers, own.sources, self._x, packed, pace)
        if own.operand == torch.float16:
            for activations in between:
                torch.maximum(found.peaks, _peaks(activations), out=found.peaks)
        if value.ndim != 3:
            value = in_torch_layout(value, self._layers[-1], (own.output[0],))
        of_scores = self._unused_gradient
        own.operators.cross_entropy(source, pace, value, own.output[0], of_scores, found.losses, found.right)


def _peaks(activations: Tensor) -> Tensor:
    """The largest absolute value of each model's activations; NaN where one is."""
    lowest, highest = torch.aminmax(activations.flatten(1), dim=1)
    return torch.maximum(highest, -lowest)


def _only(request: EvaluationRequest, overflowed: Collection[int], *, is_invalid: bool) -> EvaluationRequest:
    """The part of a request that is judged again: the models that overflowed, in the test or on validation clients."""
    models = {name: model for name, model in request.models.items() if id(model) in overflowed}
    return EvaluationRequest(request.task, models, request.validated if is_invalid else None)


def _validation(partition: Partition, right: np.ndarray) -> ValidationScores:
    """The accuracy on validation clients, by whether each of their samples is classified rightly."""
    counts = partition.samples[partition.validation]
    found = sums_by_client(right[:, None].astype(np.float64), counts)[:, 0]
    return summarised(found / counts, ACCURACY)


def _partition(request: EvaluationRequest) -> Partition:
    assert isinstance(request.task, ClassificationTask)
    return request.task.partition
