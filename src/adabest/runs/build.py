"""Building of runs: from a configuration to a federation that is ready for its first round."""

import dataclasses
import functools
import hashlib
import importlib.metadata
import math
import os
import platform
import shlex
import sys
import warnings
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from adabest.data.augmentation import AUGMENTATIONS
from adabest.engine.batched import BatchedEngine
from adabest.engine.client_side import LocalClients
from adabest.engine.cpu.trainer import CpuTrainer, clients_at_once
from adabest.engine.device_clock import DeviceClock
from adabest.engine.distributed.run_share import RunParts
from adabest.engine.evaluation import Evaluator
from adabest.engine.gate_rules import Gate, NormLimit
from adabest.engine.gpu.evaluation import make_gpu_evaluator
from adabest.engine.gpu.kernels.compiler import load_in_background
from adabest.engine.gpu.trainer import GpuTrainer, Precision, fitting_precision
from adabest.engine.interface import Engine
from adabest.engine.local_step import LocalTraining, parse_optimizer
from adabest.engine.local_test import LocalTests, local_tests_here
from adabest.engine.memory_tiers import Memory, parse_size
from adabest.engine.reference import ReferenceEngine
from adabest.engine.simulation import Rules, Simulation
from adabest.engine.step_numbers import UniformSteps, most_steps
from adabest.engine.trainer import Trainer, Unbatchable
from adabest.errors import InputError
from adabest.federation.partition import NATURAL, Partition, Scheme, check_scheme, cut
from adabest.federation.partitioners import PARTITIONERS
from adabest.federation.roster import Attendance
from adabest.runs.job import current_job
from adabest.runs.model_source import take_model
from adabest.runs.provenance import commit
from adabest.runs.settings.config import Config
from adabest.runs.settings.demand import Demand
from adabest.runs.settings.resolution import Components
from adabest.tasks.base import Heartbeat, no_heartbeat
from adabest.tasks.classification import ClassificationTask
from adabest.tasks.objectives.metric import ACCURACY


@dataclass(frozen=True)
class Federation:
    """The parts of a run.

    Attributes:
        simulation: The simulation before its first round.
        task: The model, its objective and its data.
        partition: The samples of each client.
        identity: Fingerprints and statistics of what was drawn, to be stored and compared.
        local_tests: What judges models client by client; None where clients hold nothing out.
    """

    simulation: Simulation
    task: ClassificationTask
    partition: Partition
    identity: dict[str, Any]
    local_tests: LocalTests | None


def build_federation(
    config: Config, components: Components, heartbeat: Heartbeat = no_heartbeat, scratch: Path | None = None
) -> Federation:
    """Draws the partition and the initial model, and puts the engine together.

    Args:
        config: The complete configuration.
        components: The objects that the configuration names.
        heartbeat: Called between local steps.
        scratch: The folder for clients' state that doesn't fit in memory. By default the one for temporary files.

    Raises:
        InputError: If anything in the configuration can't be used.
    """
    attendance = Attendance(
        participation=config.participation,
        sampler=config.sampler,
        churn=config.churn,
        schedule=config.schedule,
        seed=config.seed,
    )
    gate = Gate(config.bad_replies, NormLimit.parse(config.reply_limit), config.state_commit)
    rules = Rules(config.server_rate, config.scored_clients, _first_averaged_round(config), gate, config.score)
    job = current_job()
    built = build_parts(config, components, scratch, None if job is None else job.partition())
    partition, (algorithm, task, training, memory) = built.partition, built.parts
    simulation = Simulation(
        algorithm,
        task,
        partition.training,
        samples=partition.samples[partition.training],
        training=training,
        attendance=attendance,
        rules=rules,
        engine=make_engine(config),
        memory=memory,
        client_side=LocalClients if job is None or not job.has_group else job.share_out(config, built),
        heartbeat=heartbeat,
    )
    judge = (
        local_tests_here(built.task, simulation, config.score)
        if job is None
        else (job.local_tests(built, simulation, config.score))
    )
    return Federation(simulation, built.task, partition, built.identity, judge)


@dataclass(frozen=True)
class BuiltParts:
    """The parts of a run that are the same wherever its clients are trained.

    Attributes:
        parts: The algorithm, the task, the settings of local training, and the memory for what clients keep.
        task: The model, its objective and its data.
        partition: The samples of each client.
        identity: Fingerprints and statistics of what was drawn, to be stored and compared.
    """

    parts: RunParts
    task: ClassificationTask
    partition: Partition
    identity: dict[str, Any]


def build_parts(
    config: Config, components: Components, scratch: Path | None = None, partition: Partition | None = None
) -> BuiltParts:
    """Draws the partition and the initial model.

    Args:
        config: The complete configuration.
        components: The objects that the configuration names.
        scratch: The folder for clients' state that doesn't fit in memory. By default the one for temporary files.
        partition: Who has how many samples, where samples aren't here; by default they are dealt as settings say.

    Raises:
        InputError: If anything in the configuration can't be used.
    """
    training = make_training(config)
    device = _device(config.device)
    if device.type == "cuda":
        load_in_background()
    dataset = components.dataset
    fingerprint = _begin(dataset.fingerprint)
    partition = partition or cut_partition(config, components)
    module = take_model(config, components)
    _demand(config, components, partition, module).refuse_absurd()
    task = make_task(config, components, partition, module)
    memory = Memory(
        device,
        on_device=_size(config, "client_device_memory"),
        on_host=_size(config, "client_memory"),
        on_disk=_size(config, "client_disk"),
        folder=scratch,
    )
    initial = task.initial_model()
    identity = {
        "dataset": fingerprint.result(),
        "classes": components.outputs,
        "mean": dataset.mean.tolist(),
        "std": dataset.std.tolist(),
        "input_shape": list(dataset.input_shape),
        **({} if dataset.id_range is None else {"ids": list(dataset.id_range)}),
        "initial_model": hashlib.sha256(initial.cpu().numpy().tobytes()).hexdigest(),
        "parameters": initial.numel(),
        "partition": partition_statistics(partition),
        **({} if task.metrics == (ACCURACY,) else {"metrics": [dataclasses.asdict(own) for own in task.metrics]}),
    }
    return BuiltParts(RunParts(components.algorithm, task, training, memory), task, partition, identity)


def make_task(config: Config, components: Components, partition: Partition, module: nn.Module) -> ClassificationTask:
    """The task of a configuration, on its device."""
    return ClassificationTask(
        components.dataset,
        partition,
        module,
        objective=components.task,
        loss=components.loss,
        own_metrics=components.metrics,
        augmentation=AUGMENTATIONS.find(_known(config.augmentation)),
        epochs=config.epochs,
        batch_size=_known(config.batch_size),
        batching=config.batching,
        local_steps="mean" if config.local_steps == "mean" else "own",
        seed=config.seed,
        device=_device(config.device),
        dtype=config.dtype,
        kind=(components.model if isinstance(components.model, str) else id(components.model), config.batch_norm),
    )


def make_training(config: Config) -> LocalTraining:
    """The settings of local training."""
    return LocalTraining(
        learning_rate=config.learning_rate,
        learning_rate_decay=config.learning_rate_decay,
        weight_decay=_known(config.weight_decay),
        clip=config.clip,
        optimizer=parse_optimizer(config.local_optimizer),
        steps=UniformSteps.parse(config.local_steps),
    )


def _begin(work: Callable[[], str]) -> Future[str]:
    """Begins some work in a thread: a digest of large data takes as long as a partition, on a core of its own."""
    thread = ThreadPoolExecutor(max_workers=1)
    begun = thread.submit(work)
    thread.shutdown(wait=False)
    return begun


def _demand(config: Config, components: Components, partition: Partition, module: nn.Module) -> Demand:
    """The memory and the steps that a round needs."""
    dataset, samples = components.dataset, partition.samples
    cohort = max(1, round(config.participation * len(partition.training)))
    at_once = clients_at_once(max(sum(p.numel() for p in module.parameters()) * config.dtype.itemsize, 1))
    inputs = math.prod(dataset.input_shape)
    return Demand(
        epochs=config.epochs,
        batch_size=_known(config.batch_size),
        largest=int(samples.max()),
        drawn_steps=most_steps(config.local_steps),
        # The reference engine trains one client at a time, and the GPU engine itself finds out how many fit.
        clients=min(cohort, config.clients_in_parallel or at_once) if _on_cores(config) else 1,
        inputs=inputs,
        held_out=int(samples[partition.validation].sum()) * inputs * dataset.x_train.dtype.itemsize,
    )


def _on_cores(config: Config) -> bool:
    return config.engine == "batched" and config.device == "cpu"


def make_engine(config: Config) -> Callable[[Heartbeat], Engine]:
    """A maker of the engine that executes the rounds of a configuration, and of lanes trained together with it.

    Raises:
        InputError: If the engine or the device doesn't have the precision.
    """
    precision = config.precision
    if precision == "tf32" and not config.device.startswith("cuda"):
        raise InputError("precision tf32: only GPUs have it; use --precision float32, or --device cuda")
    if config.engine == "reference":
        if precision == "bf16":
            raise InputError("precision bf16: the reference engine doesn't have it; use --engine batched, or float32")
        return ReferenceEngine
    return functools.partial(
        make_batched_engine,
        precision=training_precision(precision),
        clients_in_parallel=config.clients_in_parallel,
        threads=config.threads,
    )


def training_precision(name: str | None) -> Precision:
    """The number formats of training that a precision stands for."""
    return Precision(half=name == "bf16", tf32=name == "tf32")


def make_cpu_trainer(
    task: ClassificationTask, precision: Precision, clients_in_parallel: int | None = None, threads: int | None = None
) -> CpuTrainer | GpuTrainer:
    """The trainer of a task whose model is on a CPU."""
    if not precision.half:
        return CpuTrainer(task, clients_in_parallel, threads)
    # One client at a time: batched matrix products of a CPU may sum in an order that depends on the batch size.
    return GpuTrainer(task, precision, 1)


def make_batched_engine(
    heartbeat: Heartbeat,
    *,
    precision: Precision | None = None,
    clients_in_parallel: int | None = None,
    threads: int | None = None,
) -> BatchedEngine:
    """A batched engine that trains where the task's model is: on CPU cores or on a GPU.

    Args:
        heartbeat: Called between local steps; may raise.
        precision: The number formats of training; by default the model's own.
        clients_in_parallel: The most clients that train at a time; by default as many as fit.
        threads: How many clients train side by side on a CPU; by default one on each core.

    Raises:
        InputError: If ``clients_in_parallel`` is below 1.
    """
    if clients_in_parallel is not None and clients_in_parallel < 1:
        raise InputError(f"clients_in_parallel = {clients_in_parallel}: at least one client must train at a time")

    device_clock = DeviceClock()

    def make_trainer(task: ClassificationTask) -> Trainer:
        fitting = fitting_precision(task, precision or Precision())
        try:
            if task.model.vector.device.type == "cpu":
                return make_cpu_trainer(task, fitting, clients_in_parallel, threads)
            return GpuTrainer(task, fitting, clients_in_parallel, device_clock)
        except Unbatchable as error:
            if not fitting.half:
                raise
            raise Unbatchable(f"{error}; precision bf16 has no effect on their training then") from error

    def make_evaluator(task: ClassificationTask) -> Evaluator | None:
        with warnings.catch_warnings(action="ignore"):  # the trainer has said it
            fitting = fitting_precision(task, precision or Precision())
        return make_gpu_evaluator(task, fitting, device_clock)

    return BatchedEngine(heartbeat, make_trainer, make_evaluator, device_clock)


def fingerprints(identity: Mapping[str, Any]) -> dict[str, str]:
    """The part of an identity that must never change. Its statistics may differ in the last bits between machines."""
    return {
        "dataset": identity["dataset"],
        "initial_model": identity["initial_model"],
        "partition": identity["partition"]["fingerprint"],
    }


# Shared by lanes that differ in their algorithm alone: they have the same clients, and some partitioners take seconds.
_PARTITIONS: weakref.WeakValueDictionary[tuple[bytes, int, bool, Scheme, Any], Partition] = (
    weakref.WeakValueDictionary()
)


def cut_partition(config: Config, components: Components) -> Partition:
    """The partition of a configuration's data set."""
    scheme = Scheme(
        clients=_known(config.clients),
        validation_clients=_known(config.validation_clients),
        partitioner=_known(config.partition),
        alpha=config.alpha,
        shards=config.shards,
        unbalance=config.unbalance,
        seed=_known(config.partition_seed),
        local_test=config.local_test or 0.0,
    )
    check_scheme(scheme)  # before the cache: else a name that may not be imported would pass if another run had used it
    dataset = components.dataset
    labels, classes = dataset.strata()
    owners = None if dataset.clients is None else dataset.clients.numpy()
    digest = hashlib.sha256(labels.tobytes() + (b"" if owners is None else owners.tobytes())).digest()
    # The key has the function itself: another one may have been registered under its name since.
    partitioner = None if scheme.partitioner == NATURAL else PARTITIONERS.find(scheme.partitioner)
    key = (digest, classes, owners is None, scheme, partitioner)
    found = _PARTITIONS.get(key)
    if found is None:
        found = _PARTITIONS[key] = cut(labels, classes, scheme, owners)
    return found


def partition_statistics(partition: Partition) -> dict[str, Any]:
    """The statistics of a partition: its fingerprint, its skew if labels are known, and the clients' sizes."""
    everyone = np.concatenate([partition.training, partition.validation])
    samples = partition.samples[everyone]
    skew = {"mean_label_entropy": partition.label_entropy, "mean_total_variation": partition.total_variation}
    return {
        "fingerprint": partition.fingerprint,
        **(skew if partition.knows_labels else {}),
        "training_clients": len(partition.training),
        "validation_clients": len(partition.validation),
        "samples_used": int(samples.sum()),
        "samples_per_client": [int(samples.min()), float(samples.mean()), int(samples.max())],
        **({} if partition.held_out is None else {"samples_held_out": len(partition.held_out.indices)}),
    }


def _first_averaged_round(config: Config) -> int | None:
    """The first round whose aggregate is averaged; None if none is."""
    return None if config.average_from is None else math.floor(round(config.average_from * config.rounds, 6)) + 1


def environment(config: Config) -> dict[str, Any]:
    """The environment of a run: versions, hardware and command. The last bits of a result depend on it."""
    return {
        "adabest": importlib.metadata.version("adabest"),
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(config.device) if config.device.startswith("cuda") else "cpu",
        "command": shlex.join(sys.argv),
        "working_directory": os.getcwd(),
    }


def environment_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The changes since a run began that may change the last bits of its result, in words."""
    watched = ("torch", "numpy", "machine", "threads", "device")
    return [f"{key} was {before.get(key)}, is {now[key]}" for key in watched if before.get(key) != now[key]]


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"device {name!r} is unknown; use cpu, cuda or cuda:N") from error
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"device {name!r} isn't supported; use cpu, cuda or cuda:N")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device {name!r}: torch finds no CUDA device here; use --device cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"device {name!r}: there are only {torch.cuda.device_count()} CUDA devices")
    return device


def _size(config: Config, name: str) -> int | None:
    text = getattr(config, name)
    return None if text is None else parse_size(name, text)


def _known(value: Any) -> Any:
    assert value is not None, "a resolved configuration has no open setting"
    return value
