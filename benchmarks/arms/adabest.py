"""This package: rounds of a run as ``adabest run`` makes them, without evaluation."""

import argparse
import contextlib

import torch

import adabest
from adabest.engine.simulation import Simulation
from adabest.runs.build import build_federation
from adabest.runs.process_settings import ProcessSettings
from adabest.runs.settings.resolution import resolve
from benchmarks.arms import torch_model
from benchmarks.arms.worker import serve
from benchmarks.tasks import TASKS, Task

ARITHMETIC = contextlib.ExitStack()


def settings(task: Task) -> dict[str, object]:
    """The task as settings of a run."""
    x, y = task.images(), task.labels()
    flat = x.reshape(-1, *task.input_shape)
    return {
        "dataset": adabest.from_arrays(flat, y.reshape(-1), flat[:100], y.reshape(-1)[:100]),
        "model": torch_model.build(task),
        "algorithm": "fedavg",
        "partition": "iid",
        "clients": task.population,
        "validation_clients": 0,
        "participation": task.cohort / task.population,
        "epochs": task.epochs,
        "batch_size": task.batch_size,
        "learning_rate": task.learning_rate,
        "learning_rate_decay": 1.0,
        "weight_decay": task.weight_decay,
        "clip": task.clip,
        "augmentation": "none",
    }


def prepare(arguments: argparse.Namespace) -> tuple[Task, Simulation]:
    """A federation before its first round, with the threads and the arithmetic of a run."""
    task = TASKS[arguments.task].with_cohort(arguments.clients)
    given = settings(task) | {"device": arguments.device, "engine": arguments.engine}
    if arguments.precision is not None:
        given["precision"] = arguments.precision
    config, components = resolve(given)
    federation = build_federation(config, components)
    ARITHMETIC.enter_context(ProcessSettings.of(config, components).entered())
    return task, federation.simulation


def train(state: tuple[Task, Simulation], round_number: int) -> None:
    """One round."""
    task, simulation = state
    simulation.step(cohort=task.cohort_of(round_number))
    if simulation.state.cloud.is_cuda:
        torch.cuda.synchronize()


def warm_up(state: tuple[Task, Simulation]) -> None:
    """On a GPU a whole round, which its program is made for; on a CPU two clients will do."""
    task, simulation = state
    on_gpu = simulation.state.cloud.is_cuda
    simulation.step(cohort=task.cohort_of(0)[: None if on_gpu else 2])


def options(parser: argparse.ArgumentParser) -> None:
    """Which engine, and in which numbers."""
    parser.add_argument("--engine", default="batched")
    parser.add_argument("--precision")


if __name__ == "__main__":
    on_gpu = torch.cuda.max_memory_allocated if torch.cuda.is_available() else None
    packages = ("adabest", "torch", "numpy")
    with ARITHMETIC:
        serve(prepare, train, warm_up=warm_up, packages=packages, peak_memory=on_gpu, options=options)
