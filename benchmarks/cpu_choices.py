"""What each choice of the engine on a CPU gains, for the paper's MLP and CNN; prints a table.

Whole rounds of AdaBest with batches of 50, the arms one after another in every repeat. Minima over the repeats of the
time on the clock and of the time that the process computed, both for one local step of one client.

python benchmarks/cpu_choices.py [--repeats 5] [--threads 2]
"""

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch

from adabest.algorithms.adabest import AdaBest
from adabest.data.dataset import from_arrays
from adabest.engine.cpu import autograd, malloc
from adabest.engine.cpu.linear import Chain
from adabest.engine.cpu.trainer import CpuTrainer
from adabest.engine.gpu.trainer import GpuTrainer
from adabest.engine.local_step import LocalTraining
from adabest.engine.reference import ReferenceEngine
from adabest.engine.simulation import Simulation
from adabest.federation.partition import Scheme, cut
from adabest.federation.roster import Attendance
from adabest.models.factory import build_model
from adabest.report.table import Table
from adabest.runs.build import make_batched_engine
from adabest.tasks.classification import ClassificationTask

BATCH = 50
_TRAINER = "adabest.runs.build.CpuTrainer"


class Work(NamedTuple):
    """A model and how much of it one measurement trains."""

    model: str
    shape: tuple[int, ...]
    clients: int
    steps: int


WORKS = {"MLP": Work("mlp", (1, 28, 28), 10, 10), "CNN": Work("cnn", (3, 32, 32), 4, 2)}


class Arm(NamedTuple):
    """One way to do the work."""

    work: str
    how: str
    threads: int
    engine: Any = make_batched_engine
    changed: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext


def stacked() -> contextlib.AbstractContextManager[Any]:
    """All clients in one program, as on a GPU."""
    return patch(_TRAINER, lambda task, most, threads: GpuTrainer(task, clients_in_parallel=most))


def clients_at_a_time(count: int) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """Linear layers by hand, with so many clients stacked."""

    def make_trainer(task: ClassificationTask, most: int | None, threads: int | None) -> CpuTrainer:
        made = CpuTrainer(task, most, threads)
        assert isinstance(made._method, Chain)
        made._method.clients_at_a_time = count
        return made

    return lambda: patch(_TRAINER, make_trainer)


@contextlib.contextmanager
def without(*names: str) -> Iterator[None]:
    """Autograd without some of what makes it fast."""
    with contextlib.ExitStack() as stack:
        if "kept memory" in names:
            stack.enter_context(patch.object(malloc, "freed_memory_kept", contextlib.nullcontext))
        if "pooling first" in names:
            stack.enter_context(patch.object(autograd, "_pool_first", lambda module: module))
        if "channels last" in names:
            stack.enter_context(patch.object(autograd, "_layout", lambda *_: torch.contiguous_format))
        yield


def arms(threads: int) -> list[Arm]:
    """What is measured, in the order of the table."""
    everything = ("kept memory", "pooling first", "channels last")
    both: list[Arm] = []
    for work in WORKS:
        both += [
            Arm(work, "reference engine", 1, ReferenceEngine),
            Arm(work, f"reference engine, {threads} threads in each operation", threads, ReferenceEngine),
            Arm(work, "all clients in one program", 1, changed=stacked),
        ]
        if work == "MLP":
            both += [
                Arm(work, "by hand, 10 clients stacked", 1, changed=clients_at_a_time(10)),
                Arm(work, "by hand, one client after another", 1, changed=clients_at_a_time(1)),
            ]
        else:
            both += [
                Arm(work, "autograd, as plain torch has it", 1, changed=lambda: without(*everything)),
                Arm(work, "... with channels last", 1, changed=lambda: without(*everything[:2])),
                Arm(work, "... and pooling before relu", 1, changed=lambda: without(*everything[:1])),
                Arm(work, "... and freed memory kept", 1),
            ]
        both.append(Arm(work, f"the engine: that, {threads} clients side by side", threads))
    return both


def simulation(arm: Arm) -> Simulation:
    """A federation of random images, whose rounds are the work."""
    work = WORKS[arm.work]
    generator = np.random.default_rng(0)
    count = work.clients * work.steps * BATCH
    images = generator.integers(0, 256, size=(count, *work.shape), dtype=np.uint8)
    labels = np.arange(count) % 10
    dataset = from_arrays(images, labels, images[:10], labels[:10], name="random")
    partition = cut(labels, 10, Scheme(work.clients, 0, "iid", alpha=1.0, unbalance=0.0, seed=0))
    module = build_model(work.model, torch.zeros(2, *work.shape), 10, seed=0)
    task = ClassificationTask(dataset, partition, module, epochs=1, batch_size=BATCH)
    training = LocalTraining(weight_decay=1e-3)
    everyone = Attendance(participation=1.0)
    engine = arm.engine if arm.engine is ReferenceEngine else partial(arm.engine, threads=arm.threads)
    return Simulation(AdaBest(), task, partition.training, training=training, attendance=everyone, engine=engine)


def milliseconds(arm: Arm, federation: Simulation) -> tuple[float, float]:
    """What a client's step takes on the clock, and of computing time."""
    steps = WORKS[arm.work].clients * WORKS[arm.work].steps
    torch.set_num_threads(arm.threads if arm.engine is ReferenceEngine else 1)
    with arm.changed():
        clock, computing = time.perf_counter(), time.process_time()
        federation.step()
        return (time.perf_counter() - clock) / steps * 1e3, (time.process_time() - computing) / steps * 1e3


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="rounds of each arm, after one that doesn't count")
    parser.add_argument("--threads", type=int, default=2, help="cores to use where several are used")
    options = parser.parse_args()
    measured = [(arm, simulation(arm), list[tuple[float, float]]()) for arm in arms(options.threads)]
    for repeat in range(options.repeats + 1):
        for arm, federation, times in measured:
            found = milliseconds(arm, federation)
            if repeat > 0:
                times.append(found)
    rows = []
    for arm, _, times in measured:
        clock, computing = (min(column) for column in zip(*times, strict=True))
        rows.append((arm.work, arm.how, f"{clock:.2f}", f"{computing:.2f}"))
    print(Table(("model", "how", "ms per client-step", "of computing"), tuple(rows)).markdown())


if __name__ == "__main__":
    main()
