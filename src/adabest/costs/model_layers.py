"""The call ``adabest.layers``: which layers of a model go which way on a GPU and on a CPU, and why.

The trainers of a run are made for the model, and say how they compute each layer; the plan says why. Nothing is
trained, and no published data set is read.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Unpack

from adabest.costs.layer_watch import Operation, planned_operations
from adabest.data.catalog import OFFICIAL
from adabest.data.official import stand_in
from adabest.engine.cpu.trainer import CpuTrainer
from adabest.engine.gpu.trainer import GpuTrainer, fitting_precision
from adabest.engine.layer_plan import Layer, Plan, plan_model
from adabest.engine.trainer import Unbatchable
from adabest.errors import InputError
from adabest.registry import naming
from adabest.report.frame import as_frame
from adabest.report.numbers import MISSING, percentage, with_commas
from adabest.report.table import Table
from adabest.runs.build import cut_partition, make_cpu_trainer, make_engine, make_task, training_precision
from adabest.runs.keywords import LayerSettings
from adabest.runs.model_source import take_model
from adabest.runs.settings.algorithm_specification import refuse_unknown
from adabest.runs.settings.config import LAYER_SETTINGS, Config
from adabest.runs.settings.object_names import named_in
from adabest.runs.settings.placeholders import OBJECT
from adabest.runs.settings.resolution import Components, resolve
from adabest.tasks.classification import ClassificationTask

_SAMPLES = 2  # of the data set; the model gets as many at a time
_FEDERATION: Mapping[str, Any] = {"clients": 1, "validation_clients": 0, "partition": "iid"}


@dataclass(frozen=True)
class LayerWay:
    """A layer of a model.

    Attributes:
        layer: What it is, with what is fused into it.
        parameters: How many trained parameters it has; shared ones count where they come first.
        output: The shape of one output; None if it gives no tensor.
        flops: Multiplications and additions of its matrix products and convolutions, forward, for one sample.
        gpu: How a GPU computes it.
        cpu: How a CPU computes it.
        obstacle: Why it has no kernels; empty if it has.
        change: What would let it have kernels; empty if no change of the layer would.
    """

    layer: str
    parameters: int
    output: tuple[int, ...] | None
    flops: int
    gpu: str
    cpu: str
    obstacle: str = ""
    change: str = ""


@dataclass(frozen=True, repr=False)
class ModelLayers:
    """Which layers of a model go which way.

    Attributes:
        model: The model's name.
        rows: Its layers, in order.
        notes: How the FLOPs are shared, why layers have no kernels, and what would be faster, in sentences.
    """

    model: str
    rows: list[LayerWay]
    notes: list[str]

    def __repr__(self) -> str:
        gpu, cpu = (
            _shares(self.rows, ways) for ways in ([row.gpu for row in self.rows], [row.cpu for row in self.rows])
        )
        count = "1 layer" if len(self.rows) == 1 else f"{len(self.rows)} layers"
        return f"ModelLayers({self.model}, {count}; GPU: {gpu}; CPU: {cpu})"

    def _repr_html_(self) -> str:
        """For notebooks: the table."""
        return self.table.html()

    @property
    def flops(self) -> int:
        """The FLOPs of all layers, forward, for one sample."""
        return sum(row.flops for row in self.rows)

    @property
    def table(self) -> Table:
        """A row for each layer, with its share of the FLOPs."""
        total = self.flops
        rows = tuple(
            (
                row.layer,
                with_commas(row.parameters),
                MISSING if row.output is None else "×".join(map(str, row.output)) or "1",
                with_commas(row.flops),
                percentage(row.flops / total) if total else MISSING,
                row.gpu,
                row.cpu,
            )
            for row in self.rows
        )
        head = ("layer", "parameters", "output", "FLOPs", "share %", "on a GPU", "on a CPU")
        parameters = with_commas(sum(row.parameters for row in self.rows))
        title = f"{self.model}: {parameters} parameters, {with_commas(total)} FLOPs a sample, forward"
        return Table(head, rows, title)

    def to_pandas(self) -> Any:
        """The layers as a ``pandas.DataFrame``, one row per layer, a column for each of their attributes.

        Raises:
            InputError: If pandas isn't installed.
        """
        names = [one.name for one in dataclasses.fields(LayerWay)]
        return as_frame({name: [getattr(row, name) for row in self.rows] for name in names})


def layers(**settings: Unpack[LayerSettings]) -> ModelLayers:
    """Shows which layers of a model go which way on a GPU and on a CPU, and what would be faster.

    No GPU is needed, and a published data set isn't read: its shape is known.

    Args:
        **settings: The settings on which it depends, such as ``model``, ``dataset`` and ``precision``.

    Raises:
        InputError: If something can't be used.
    """
    refuse_unknown(settings, LAYER_SETTINGS)
    with naming(named_in(settings)):
        name = settings.get("dataset", Config.dataset)
        spec = OFFICIAL.get(name) if isinstance(name, str) else None
        loaded = None if spec is None else stand_in(spec, _SAMPLES)
        config, components = resolve({**settings, **_FEDERATION}, loaded)
        module = take_model(config, components)
        few = _few_samples(components)
        task = make_task(config, few, cut_partition(config, few), module)
    plan = plan_model(task.model.module, task.example())
    gpu = _on_gpu(task, settings.get("precision"), config)
    cpu = _on_cpu(task, config)
    rows = [_row(one, plan, gpu, cpu) for one in planned_operations(plan, task.example())]
    return ModelLayers(str(config.model).removeprefix(OBJECT), rows, [*_notes(rows, plan, gpu, cpu)])


def _few_samples(components: Components) -> Components:
    """The components with a few samples of the data set, which tell the shapes."""
    dataset = components.dataset
    few = dataclasses.replace(
        dataset,
        x_train=dataset.x_train[:_SAMPLES],
        y_train=dataset.y_train[:_SAMPLES],
        x_test=dataset.x_test[:_SAMPLES],
        y_test=dataset.y_test[:_SAMPLES],
        clients=None,
    )
    return dataclasses.replace(components, dataset=few)


class _Device(NamedTuple):
    """A kind of device: how it would compute the model.

    Attributes:
        kind: As sentences name it.
        device_type: As torch names it.
        precision: The precision of training.
        trainer: What trains there; None if nothing does, or the reference engine.
        refused: What happens without a trainer, and why there is none; empty if there is one.
        way: How all layers are computed where there is no trainer.
    """

    kind: str
    device_type: str
    precision: str
    trainer: CpuTrainer | GpuTrainer | None
    refused: str = ""
    way: str = MISSING

    def way_of(self, layer: Layer) -> str:
        """How a layer is computed there."""
        if self.trainer is None:
            return self.way
        return self.trainer.way if isinstance(self.trainer, CpuTrainer) else self.trainer.way(layer, self.device_type)


def _on_gpu(task: ClassificationTask, precision: str | None, config: Config) -> _Device:
    """What a GPU would do, found out on this CPU."""
    name = precision or dataclasses.replace(config, device="cuda", precision=None).usual_precision()
    fitting = fitting_precision(task, training_precision(name))
    try:
        return _Device("GPU", "cuda", name, GpuTrainer(task, fitting))
    except Unbatchable as error:
        return _Device("GPU", "cuda", name, None, _turns(error), error.way)


def _on_cpu(task: ClassificationTask, config: Config) -> _Device:
    name = str(config.precision)
    try:
        make_engine(config)  # refuses a precision that isn't there
        return _Device("CPU", "cpu", name, make_cpu_trainer(task, fitting_precision(task, training_precision(name))))
    except InputError as error:
        return _Device("CPU", "cpu", name, None, str(error))
    except Unbatchable as error:
        return _Device("CPU", "cpu", name, None, _turns(error), error.way)


def _turns(error: Unbatchable) -> str:
    """That clients take turns, and why."""
    return f"{error.way}, since many can't be computed at once ({str(error).rstrip('.')})"


def _row(one: Operation, plan: Plan, gpu: _Device, cpu: _Device) -> LayerWay:
    """The row of an operation."""
    assert one.part.layer is not None
    layer = plan.layers[one.part.layer]
    why, change = one.part.obstacle or ("", "")
    return LayerWay(one.words, one.parameters, one.output, one.flops, gpu.way_of(layer), cpu.way_of(layer), why, change)


def _notes(rows: list[LayerWay], plan: Plan, gpu: _Device, cpu: _Device) -> Iterator[str]:
    """How to read the table, in sentences."""
    for device, ways in ((gpu, [row.gpu for row in rows]), (cpu, [row.cpu for row in rows])):
        yield f"On a {device.kind} ({device.precision}): {device.refused or _shares(rows, ways)}."
    yield "FLOPs are those of convolutions and matrix products; what else is computed takes time, too."
    if plan.whole is not None:
        then = _then("its layers are planned one by one", plan.whole.change)
        yield f"The plan takes the model as a whole: {plan.whole.why}.{then}"
    else:
        yield from _told_obstacles(rows)
    if isinstance(gpu.trainer, GpuTrainer):
        if gpu.trainer.own_parts:
            yield f"On a GPU, torch.func computes {' and '.join(gpu.trainer.own_parts)}, too."
        if gpu.trainer.why_no_full_gradients is not None:
            yield (
                "Full gradients, which some algorithms need, are computed for one client after another on a GPU: "
                f"{gpu.trainer.why_no_full_gradients}."
            )
    if isinstance(cpu.trainer, CpuTrainer):
        if cpu.trainer.why_not_by_hand is not None:
            why, change = cpu.trainer.why_not_by_hand
            yield f"On a CPU, no scripted chain computes it: {why}.{_then('one does', change)}"
        if cpu.trainer.why_not_pool_first is not None:
            why, change = cpu.trainer.why_not_pool_first
            then = _then("it comes after", change)
            yield f"On a CPU, a relu is computed before the max-pooling behind it: {why}.{then}"
        if cpu.trainer.why_not_channels_last is not None:
            yield f"On a CPU, images don't lie channels last: {cpu.trainer.why_not_channels_last.rstrip('.')}."


def _told_obstacles(rows: list[LayerWay]) -> Iterator[str]:
    """Why layers have no kernels, once for all layers with the same reason."""
    alike: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.obstacle:
            alike.setdefault((row.obstacle, row.change), []).append(row.layer)
    for (why, change), names in alike.items():
        counts = Counter(names)
        told = ", ".join(name if count == 1 else f"{name} ({count} times)" for name, count in counts.items())
        yield f"No kernels for {told}: {why}.{_then('the plan can fuse it', change)}"


def _then(so_that: str, change: str) -> str:
    return f" So that {so_that}: {change}." if change else ""


def _shares(rows: list[LayerWay], ways: list[str]) -> str:
    """The ways with their shares of the FLOPs, the largest first."""
    sums: Counter[str] = Counter()
    for row, way in zip(rows, ways, strict=True):
        sums[way] += row.flops
    total = sum(sums.values())
    if not total:
        return "; ".join(sums)
    of = " of the FLOPs"
    told = []
    for way, flops in sums.most_common():
        told.append(f"{percentage(flops / total)} %{of} by {way}")
        of = ""
    return "; ".join(told)
