"""Local training of many clients as one tensor program.

All clients make their local steps at the same time: parameters are ``[clients, packed parameters]``, activations
``[clients, batch, ...]``. Everything that a step reads is in tensors that stay where they are, the number of the step
included, so on a GPU a step is captured once as a CUDA graph and replayed, without the host in between.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from adabest import random
from adabest.engine.cohort_table import DrawKeys
from adabest.engine.gpu.kernels import twins
from adabest.engine.gpu.kernels.buffers import Direction, Moments, Pace, Rates, Source
from adabest.engine.gpu.layers import (
    Allocator,
    ConvolutionWork,
    FunctionalWork,
    LinearWork,
    NormWork,
    PoolWork,
    SumWork,
    Work,
    as_output_gradient,
    in_torch_layout,
    output_border,
    outputs_of_all,
)
from adabest.engine.gpu.packing import Packing
from adabest.engine.layer_plan import (
    ConvolutionLayer,
    FunctionalLayer,
    Layer,
    LinearLayer,
    NormLayer,
    PoolLayer,
    SumLayer,
)
from adabest.engine.shapes import InputShape, channels_last, flat, padded, unfolded_or_not
from adabest.random import Purpose
from adabest.tasks.base import Heartbeat

_WARM_UP = 2


@dataclass(frozen=True)
class ProgramSetting:
    """The model, the data and the number formats that all clients of a program share.

    Attributes:
        layers: The model.
        sources: What each layer reads (see ``Plan``).
        packing: Where its parameters lie.
        shapes: The shape of each parameter, by name.
        operators: The kernels, or their twins.
        inputs: All training inputs.
        labels: Their targets.
        mean: What is subtracted from an input, one value a channel.
        deviation: What it is divided by, one value a channel.
        augment: Own augmentation of the user, a function of normalised images and random bits; None for none, or for
            the one that ``gather`` knows.
        loss: The loss, of outputs and targets; None for classification by cross-entropy.
        batch_value: The first metric of a batch, of outputs and targets; None for accuracy.
        batch: Samples in a batch.
        output: The shape of one output; of classification, how many classes there are.
        operand: The type of activations and products.
        master: The type of parameters and their gradients.
    """

    layers: tuple[Layer, ...]
    sources: tuple[tuple[int, ...], ...]
    packing: Packing
    shapes: dict[str, tuple[int, ...]]
    operators: Any
    inputs: Any
    labels: Tensor
    mean: Tensor
    deviation: Tensor
    augment: Any
    loss: Any
    batch_value: Any
    batch: int
    output: tuple[int, ...]
    operand: torch.dtype
    master: torch.dtype

    @property
    def sums_by_client(self) -> bool:
        """Whether all sums are made by kernels of ours, which give each client blocks of its own.

        Libraries may choose the order of their sums by how many clients there are.
        """
        own = not any(isinstance(layer, FunctionalLayer) for layer in self.layers)
        return own and self.operators is not twins and self.loss is None and self.augment is None


class StepKind(NamedTuple):
    """What the kernels of a step are compiled for.

    Attributes:
        has_codes: Whether images are flipped and cropped.
        has_offset: Whether a client has an offset.
        has_missing: Whether batches may lack samples.
        adds_up: Whether gradients are added up, without dropout and augmentation, while parameters stay as they are.
        has_diagonal: Whether s is a diagonal.
        has_shift: Whether gradients are taken at a fixed shift from the parameters.
        has_radius: Whether they are taken at a distance along themselves.
        has_anchor: Whether the gradient at another point is subtracted.
        has_previous: Whether that is the point before the last step.
        has_momentum: Whether directions are summed up from step to step.
        has_adam: Whether the optimiser is Adam.
    """

    has_codes: bool
    has_offset: bool
    has_missing: bool = False
    adds_up: bool = False
    has_diagonal: bool = False
    has_shift: bool = False
    has_radius: bool = False
    has_anchor: bool = False
    has_previous: bool = False
    has_momentum: bool = False
    has_adam: bool = False


ADDING_UP = StepKind(has_codes=False, has_offset=False, has_missing=True, adds_up=True)


@dataclass
class Cohort:
    """The clients of one training, or of one sum of gradients, as packed tensors, ``[clients, ...]``.

    Attributes:
        start: Where each begins, packed; training works in a copy.
        offset: o, packed; None if no client has one.
        scale: s.
        rho: ρ.
        rates: η, the clip and the decay.
        steps: K_i, int32.
        keys: What names each client's draws: seed, round and client.
        chosen: The samples of each step, int32 ``[steps, clients, batch]``.
        flip_crop_codes: How images are flipped and cropped, int32 ``[steps, clients, batch]``; None if they aren't.
        counts: The number of samples over which the gradients of each step are a mean, int32 ``[steps, clients]``;
            None if no batch lacks any.
        adds_up: Whether gradients are added up; then η is −1, and there is no offset, clip or decay.
        extras: What steps have beside the affine correction, by the names in ``StepKind``: vectors packed, numbers
            ``[clients]``. ``diagonal``, ``shift``, ``radius``, ``anchor`` (the first one, where it is the point before
            the last step), ``momentum`` and ``velocity``, ``beta1``, ``beta2`` and ``eps``.
        has_previous: Whether the anchor is the point before the last step.
    """

    start: Tensor
    offset: Tensor | None
    scale: Tensor
    rho: Tensor
    rates: Rates
    steps: Tensor
    keys: DrawKeys
    chosen: Tensor
    flip_crop_codes: Tensor | None
    counts: Tensor | None = None
    adds_up: bool = False
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    has_previous: bool = False

    @property
    def kind(self) -> StepKind:
        """What the steps of these clients are compiled for."""
        return StepKind(
            has_codes=self.flip_crop_codes is not None,
            has_offset=self.offset is not None,
            has_missing=self.counts is not None,
            adds_up=self.adds_up,
            has_diagonal="diagonal" in self.extras,
            has_shift="shift" in self.extras,
            has_radius="radius" in self.extras,
            has_anchor="anchor" in self.extras,
            has_previous=self.has_previous,
            has_momentum="momentum" in self.extras,
            has_adam="beta1" in self.extras,
        )


class Program:
    """The buffers and operators with which a number of clients train side by side.

    Attributes:
        clients: The number of clients.
        steps: The most local steps that they make.
        losses: The loss of each sample of each step, ``[steps, clients, batch]``.
        right: Whether it was classified rightly, ``[steps, clients, batch]``.
        values: The first metric of each step, float64 ``[steps, clients]``; None where it is accuracy.
    """

    def __init__(self, setting: ProgramSetting, clients: int, steps: int, device: torch.device) -> None:
        self.clients, self.steps = clients, steps
        self._setting, self._device = setting, device
        self._operators = setting.operators
        self._input_shape = input_shape(setting)
        master, operand, batch, size = setting.master, setting.operand, setting.batch, setting.packing.size
        self._allocator = allocate = Allocator(clients, master, device)
        self._step = torch.zeros(1, dtype=torch.int32, device=device)
        self._pace = Pace(self._step, allocate(kind=torch.int32))
        self._w, self._offset = allocate(size), allocate(size)
        self._half = self._w if operand == master else allocate(size, kind=operand)
        self._direction = Direction(
            d=allocate(size),
            w=self._w,
            offset=self._offset,
            scale=allocate(),
            rho=allocate(),
            squares=allocate(setting.packing.slots),
        )
        self._one, self._nothing = allocate().fill_(1.0), allocate()
        self._rates = Rates(allocate(), allocate(), allocate())
        self._keys = (allocate(kind=torch.int64), allocate(kind=torch.int64), allocate(kind=torch.int64))
        self._source = Source(
            inputs=setting.inputs,
            labels=setting.labels,
            mean=setting.mean,
            deviation=setting.deviation,
            chosen=allocate(batch, kind=torch.int32, first=(steps,)),
            flip_crop_codes=allocate(batch, kind=torch.int32, first=(steps,)),
            counts=allocate(kind=torch.int32, first=(steps,)),
        )
        self.losses = allocate(batch, first=(steps,))
        self.right = allocate(batch, kind=torch.uint8, first=(steps,))
        self.values = None if setting.batch_value is None else allocate(kind=torch.float64, first=(steps,))
        inputs = operand if setting.inputs.dtype != torch.int64 else torch.int64  # ids stay what they are
        self._x = allocate(batch, *self._input_shape.stored, kind=inputs)
        self._of_scores = allocate(batch, *stored_scores(setting), kind=operand)
        self._extras: dict[str, Tensor] = {}  # buffers that only some kinds of steps need
        self._works = self._build()
        self._graphs: dict[StepKind, torch.cuda.CUDAGraph] = {}
        # Gradients of weights need nothing from each other, and some wait for memory where others compute.
        self._side_stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @property
    def bytes(self) -> int:
        """The bytes of its buffers; what functional layers allocate in a step isn't counted."""
        return self._allocator.bytes

    @property
    def extra_bytes(self) -> int:
        """The bytes of the buffers that only some kinds of steps need."""
        return sum(buffer.nbytes for buffer in self._extras.values())

    def run_dry_step(self, kind: StepKind) -> None:
        """Runs one dry step, which raises what torch can't do for many clients at once, or can't capture.

        Args:
            kind: What training will need, so that only its kernels are compiled.
        """
        own = self._setting.loss is not None or self._setting.augment is not None
        if own or any(isinstance(layer, FunctionalLayer) for layer in self._setting.layers):
            with _torch_quiet():
                if self._device.type == "cuda":
                    self._capture(kind)
                else:
                    self._work(kind)

    def compile(self, kind: StepKind, *, beside: Callable[[], object]) -> None:
        """Compiles the kernels of a step that wasn't made before, and those of other work, at the same time.

        Args:
            kind: What the step needs.
            beside: The other work, which is called without running its kernels.
        """
        if self._device.type != "cuda" or kind in self._graphs:
            return

        def everything() -> None:
            beside()
            self._work(kind)

        self._step.zero_()  # after a training it is beyond the last step, of which there are no samples
        with _torch_quiet():
            self._operators.compile_together(everything)
        self._step.zero_()

    def train(self, cohort: Cohort, heartbeat: Heartbeat) -> Tensor:
        """Trains all clients from their starts, or adds up their gradients there.

        Returns:
            Their models, or the sums, packed, in memory that the next call reuses.
        """
        self._load(cohort)
        kind = cohort.kind
        with _torch_quiet():
            for _ in range(int(cohort.chosen.shape[0])):
                heartbeat()
                self._one_step(kind)
        return self._moved(kind)

    def _load(self, cohort: Cohort) -> None:
        """Copies a cohort into the program's buffers; places without a client make no step."""
        steps, clients = cohort.chosen.shape[:2]
        self._step.zero_()
        self._pace.steps.zero_()
        given = [
            (self._w, cohort.start),
            (self._pace.steps, cohort.steps),
            (self._direction.scale, cohort.scale),
            (self._direction.rho, cohort.rho),
            *zip(vars(self._rates).values(), vars(cohort.rates).values(), strict=True),
            *zip(self._keys, cohort.keys, strict=True),
            (self._source.chosen[:steps].transpose(0, 1), cohort.chosen.transpose(0, 1)),
        ]
        if self._half is not self._w:
            given.append((self._half, cohort.start))
        if cohort.counts is not None and self._source.counts is not None:
            given.append((self._source.counts[:steps].transpose(0, 1), cohort.counts.transpose(0, 1)))
        if cohort.adds_up:
            self._moved(cohort.kind).zero_()
        if cohort.offset is not None:
            given.append((self._offset, cohort.offset))
        if cohort.flip_crop_codes is not None and self._source.flip_crop_codes is not None:
            given.append((self._source.flip_crop_codes[:steps].transpose(0, 1), cohort.flip_crop_codes.transpose(0, 1)))
        given += [(self._extra(name), value) for name, value in cohort.extras.items()]
        for own, value in given:
            own[:clients].copy_(value)
        if cohort.kind.has_adam:
            for name in ("first", "second"):
                self._extra(name).zero_()
            self._extra("powers").fill_(1.0)

    def velocities(self) -> Tensor:
        """The last m of each client, packed, after a training with momentum; in memory that the next call reuses."""
        return self._extras["velocity"]

    def _extra(self, name: str) -> Tensor:
        """A buffer that only some kinds of steps need, made when it is first asked for."""
        if name not in self._extras:
            size, allocate = self._setting.packing.size, self._allocator
            match name:
                case "powers":  # β₁ᵏ and β₂ᵏ, exact enough to be subtracted from 1
                    made = allocate(kind=torch.float64, first=(2,))
                case "radius" | "momentum" | "beta1" | "beta2" | "eps" | "unbiased1" | "unbiased2":
                    made = allocate()
                case "anchor" | "point":
                    made = allocate(size, kind=self._setting.operand)
                case _:
                    made = allocate(size)
            self._extras[name] = made
        return self._extras[name]

    def _carried(self, kind: StepKind) -> list[Tensor]:
        """The buffers that go from step to step, beside the copy of the parameters in another precision."""
        names = ["velocity"] if kind.has_momentum else []
        names += ["anchor"] if kind.has_previous else []
        names += ["first", "second", "powers"] if kind.has_adam else []
        return [self._moved(kind), *map(self._extra, names)]

    def _moved(self, kind: StepKind) -> Tensor:
        """What a step writes: the parameters, or the sum of gradients, in the buffer of offsets, which they lack."""
        return self._offset if kind.adds_up else self._w

    def _one_step(self, kind: StepKind) -> None:
        if self._device.type != "cuda":
            self._work(kind)
            return
        if kind not in self._graphs:
            self._graphs[kind] = self._capture(kind)
        self._graphs[kind].replay()

    def _capture(self, kind: StepKind) -> torch.cuda.CUDAGraph:
        """Captures a step as a CUDA graph, after its kernels are compiled and tried; what it writes is put back."""
        moved, carried = self._moved(kind), self._carried(kind)
        before = [buffer.clone() for buffer in carried]
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            self._step.zero_()
            self._operators.compile_together(lambda: self._work(kind))
            for _ in range(_WARM_UP):
                self._step.zero_()
                self._work(kind)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        self._step.zero_()
        # Of this thread alone: another one may be copying a checkpoint from the GPU.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._work(kind)
        for buffer, value in zip(carried, before, strict=True):
            buffer.copy_(value)
        if moved is self._w and self._half is not self._w:
            self._half.copy_(moved)
        self._step.zero_()
        return graph

    def _work(self, kind: StepKind) -> None:
        """One local step of all clients, or one gradient more in their sums."""
        source = self._source if kind.has_codes else _without(self._source, "flip_crop_codes")
        source = source if kind.has_missing else _without(source, "counts")
        direction = self._direction if kind.has_offset else _without(self._direction, "offset")
        self._gather(source, None if kind.adds_up else self._setting.augment)
        with self._dropout_off() if kind.adds_up else contextlib.nullcontext():
            if kind.has_anchor:
                self._pass(source, self._extra("anchor"), self._plain_direction(self._extra("minus")))
            self._pass(source, self._point(kind, source), self._whole_direction(kind, direction))
        if kind.adds_up:
            # A step of the sum instead of the parameters, with η = −1 and neither clip nor decay.
            total = self._moved(kind)
            self._operators.update(replace(direction, w=total), self._pace, self._rates, total)
        else:
            self._update(kind, self._whole_direction(kind, direction))
        self._step.add_(1)

    def _point(self, kind: StepKind, source: Source) -> Tensor:
        """The point where the gradient of a step is taken, in the precision of the operands."""
        if not (kind.has_shift or kind.has_radius):
            return self._half
        point, operators = self._extra("point"), self._operators
        shift = self._extra("shift") if kind.has_shift else None
        plain = self._plain_direction(self._direction.d)
        if kind.has_shift:
            operators.displace(plain, self._pace, shift, None, point)
        if kind.has_radius:
            self._pass(source, point if kind.has_shift else self._half, plain)
            operators.displace(plain, self._pace, shift, self._extra("radius"), point)
        return point

    def _plain_direction(self, d: Tensor) -> Direction:
        """The direction for a gradient as it is."""
        own = self._direction
        return Direction(d, own.w, None, self._one, self._nothing, own.squares)

    def _whole_direction(self, kind: StepKind, affine: Direction) -> Direction:
        """The direction of a kind of step."""
        return replace(
            affine,
            diagonal=self._extra("diagonal") if kind.has_diagonal else None,
            minus=self._extra("minus") if kind.has_anchor else None,
            momentum=self._extra("momentum") if kind.has_momentum else None,
            velocity=self._extra("velocity") if kind.has_momentum else None,
        )

    def _update(self, kind: StepKind, direction: Direction) -> None:
        """The step along a direction."""
        if not (kind.has_momentum or kind.has_previous or kind.has_adam):
            self._operators.update(direction, self._pace, self._rates, self._half)
            return
        moments = None
        if kind.has_adam:
            extra, powers = self._extra, self._extra("powers")
            for place, name in enumerate(("1", "2")):
                powers[place].mul_(extra(f"beta{name}"))
                extra(f"unbiased{name}").copy_(1 - powers[place])
            moments = Moments(*map(extra, (one.name for one in fields(Moments))))
        previous = self._extra("anchor") if kind.has_previous else None
        self._operators.whole_update(direction, self._pace, self._rates, self._half, previous, moments)

    def _pass(self, source: Source, point: Tensor, direction: Direction) -> None:
        """Forward and backward at a point; the gradients go into a direction, and losses into their place."""
        works, sources = self._works, self._setting.sources
        outputs = outputs_of_all(works, sources, self._x, point, self._pace, keys=self._keys)
        gradients = {len(works) - 1: as_output_gradient(self._loss_gradient(source, outputs[-1]), None, works[-1])}
        for place in reversed(range(len(works))):
            work, gradient = works[place], self._backward(place, gradients, point)
            with self._on_side_stream(last=gradient is None):
                work.weight_gradient(direction, self._pace)
        if (
            self._side_stream is not None and len(self._works) > 1
        ):  # a capture can't wait for a stream that it never reached
            torch.cuda.current_stream().wait_stream(self._side_stream)

    def _backward(self, place: int, gradients: dict[int, Tensor], point: Tensor) -> Tensor | None:
        """Takes a layer's gradient, and puts those of the outputs that it reads in its place; None for the first layer.

        Layers go from last to first, and so the gradients by several that read an output are always added in the same
        order.
        """
        work, sources, dy = self._works[place], self._setting.sources[place], gradients.pop(place)
        if isinstance(work, ConvolutionWork):
            before = self._works[sources[0]] if sources[0] >= 0 else None
            images = None if before is None or isinstance(before, FunctionalWork) else gradients.pop(sources[0], None)
            gradient = work.input_gradient(dy, point, self._pace, images)
        else:
            gradient = work.input_gradient(dy, point, self._pace)
        if gradient is not None:
            for source in sources:
                own = as_output_gradient(gradient, work, self._works[source])
                gradients[source] = self._added(source, gradients.get(source), own)
        return gradient

    def _added(self, place: int, gradient: Tensor | None, own: Tensor) -> Tensor:
        """The gradient of a layer's output by one layer more that reads it."""
        if gradient is None:
            return own
        if place not in self._sums:
            return gradient + own
        total = self._sums[place]
        a, b = (one.reshape(total.shape) for one in (gradient, own))
        self._operators.add(self._pace, a, b, total)
        return total.view(own.shape)

    @contextlib.contextmanager
    def _dropout_off(self) -> Iterator[None]:
        modules = [work.layer.module for work in self._works if isinstance(work, FunctionalWork)]
        # Within vjp, torch's attention can't see that a gradient is asked for, and would take a path that has none.
        fast_path = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        for module in modules:
            module.eval()
        try:
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast_path)
            for module in modules:
                module.train()

    def _on_side_stream(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        """The stream for the gradient of a layer's weights: the side stream, unless it is the last thing to compute."""
        if self._side_stream is None or last:
            return contextlib.nullcontext()
        self._side_stream.wait_stream(torch.cuda.current_stream())
        return torch.cuda.stream(self._side_stream)

    def _gather(self, source: Source, augment: Any) -> None:
        setting = self._setting
        if augment is None and isinstance(source.inputs, Tensor) and self._x.is_floating_point():
            self._operators.gather(self._input_shape, source, self._pace, self._x)
        elif augment is None:
            twins.gather(self._input_shape, source, self._pace, self._x)
        else:
            chosen = source.chosen.index_select(0, self._step.to(torch.int64))[0].to(torch.int64)
            shape = self._input_shape
            images = setting.inputs[chosen.flatten()].reshape(-1, shape.channels, shape.height, shape.width)
            if self._x.is_floating_point():
                images = (images.to(setting.master) - setting.mean.view(-1, 1, 1)) / setting.deviation.view(-1, 1, 1)
            images = images.reshape(*chosen.shape, *setting.inputs.shape[1:])
            seed, round_number, client = (key[:, None] for key in self._keys)
            places = torch.arange(setting.batch, device=self._device)
            step = self._step.to(torch.int64)
            bits = random.bits(seed, Purpose.AUGMENTATION, round_number, client, step, places)
            images = vmap(augment)(images, bits).flatten(0, 1)
            twins.place(shape, images.reshape(-1, shape.channels, shape.height, shape.width), self._x)

    def _loss_gradient(self, source: Source, scores: Tensor) -> Tensor:
        """The gradient of the loss with respect to the scores."""
        setting, step = self._setting, self._step.to(torch.int64)
        scores = in_torch_layout(scores, self._works[-1], setting.output) if scores.ndim != 3 else scores.contiguous()
        if setting.loss is None:
            self._operators.cross_entropy(
                source, self._pace, scores, setting.output[0], self._of_scores, self.losses, self.right
            )
            return self._of_scores
        labels = source.labels[source.chosen.index_select(0, step)[0].to(torch.int64)]
        own = scores[..., : setting.output[-1]].to(setting.master)
        gradient, losses = vmap(grad_and_value(setting.loss))(own, labels)
        self.losses.index_copy_(0, step, losses[None, :, None].expand(1, *labels.shape[:2]).to(self.losses.dtype))
        if self.values is not None:
            self.values.index_copy_(0, step, vmap(setting.batch_value)(own, labels)[None])
        else:
            self.right.index_copy_(0, step, (own.argmax(dim=-1) == labels)[None].to(self.right.dtype))
        self._of_scores[..., : setting.output[-1]] = gradient
        return self._of_scores

    def _build(self) -> list[Work]:
        setting, works = self._setting, list[Work]()
        allocate = Allocator(self.clients, setting.operand, self._device)
        common: dict[str, Any] = {"batch": setting.batch, "allocate": allocate}
        for place, (layer, regions) in enumerate(zip(setting.layers, setting.packing.regions, strict=True)):
            first = place == 0
            border = output_border(place, setting.layers, setting.sources)
            work: Work
            match layer:
                case ConvolutionLayer():
                    work = ConvolutionWork(layer, regions, setting.operators, first=first, border=border, **common)
                case LinearLayer():
                    (source,) = setting.sources[place]
                    before = setting.layers[source] if source >= 0 else None
                    through = isinstance(before, LinearLayer) and before.shape.relu
                    work = LinearWork(layer, regions, setting.operators, first=first, after_relu=through, **common)
                case NormLayer():
                    work = NormWork(layer, regions, setting.operators, first=first, border=border, **common)
                case PoolLayer():
                    work = PoolWork(layer, setting.operators, border=border, **common)
                case SumLayer():
                    work = SumWork(layer, setting.operators, border=border, **common)
                case FunctionalLayer():
                    work = FunctionalWork(
                        layer, regions, setting.operators, setting.shapes, first=first, operand=setting.operand
                    )
            works.append(work)
        self._sums = {
            place: allocate(*_unbordered(work))
            for place, work in enumerate(works)
            if not isinstance(work, FunctionalWork) and _is_added_up(place, setting)
        }
        self._allocator.bytes += allocate.bytes
        return works


def _is_added_up(place: int, setting: ProgramSetting) -> bool:
    """Whether gradients of a layer's output are added by a kernel of their own; a convolution adds what it finds."""
    readers = [at for at, read in enumerate(setting.sources) for source in read if source == place]
    return not all(isinstance(setting.layers[at], ConvolutionLayer) for at in readers[:-1])


def _unbordered(work: ConvolutionWork | LinearWork | NormWork | PoolWork | SumWork) -> tuple[int, int, int, int]:
    """Samples, rows, columns and channels of a layer's output, as they are stored without a border."""
    output = work.layer.output
    rows, columns = (output[1], output[2]) if len(output) > 1 else (1, 1)
    return work.output.shape[1], rows, columns, work.output.shape[-1]


def input_shape(setting: ProgramSetting) -> InputShape:
    """The shape in which the first layer reads its inputs."""
    first, sample = setting.layers[0], tuple(setting.inputs.shape[1:])
    if isinstance(first, ConvolutionLayer):
        return unfolded_or_not(first.shape)
    if isinstance(first, NormLayer) and not first.shape.flat:
        return channels_last(first.shape.channels, first.shape.height, first.shape.width)
    channels, height, width = sample if len(sample) == 3 else (1, 1, torch.Size(sample).numel())
    return flat(channels, height, width)


def stored_scores(setting: ProgramSetting) -> tuple[int, ...]:
    """The shape of one output, padded where a layer of ours makes it out of features."""
    last = setting.layers[-1]
    is_padded = not isinstance(last, FunctionalLayer) and len(last.output) == 1
    return (padded(last.output[0]),) if is_padded else setting.output


@contextlib.contextmanager
def _torch_quiet() -> Iterator[None]:
    """Silences torch's warning that it does some operation for one client after another: a user can't change that."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")
        yield


def _without(whole: Any, name: str) -> Any:
    return replace(whole, **{name: None})
