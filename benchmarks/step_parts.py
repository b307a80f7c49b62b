"""What each part of the local step costs, beside a step without any; prints a table.

Whole rounds of the paper's MLP and CNN, the arms in turn in every repeat. The time of an arm is the smallest over the
repeats, for one local step of one client; the ratio is that to the step without parts. On a GPU the steps alone are
timed, as CUDA graphs, by `python -m benchmarks.step_parts cuda`. The arithmetic beside it is what the bytes that a part
moves take at the speed of an H200's memory; the second pass of a part that has one isn't in it.

python -m benchmarks.step_parts cpu|cuda [--repeats 5] [--models MLP CNN] [--clients 100]
"""

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from adabest.algorithms.base import ClientContext, Correction
from adabest.algorithms.fedavg import FedAvg
from adabest.data.dataset import from_arrays
from adabest.engine.local_step import Adam, LocalTraining
from adabest.engine.simulation import Simulation
from adabest.federation.partition import Scheme, cut
from adabest.federation.roster import Attendance
from adabest.models.factory import build_model
from adabest.report.table import Table
from adabest.runs.build import make_batched_engine
from adabest.tasks.classification import ClassificationTask
from benchmarks import kernels

BATCH = 50


class Work(NamedTuple):
    """A model and how much of it one measurement on a CPU trains."""

    model: str
    shape: tuple[int, ...]
    clients: int
    steps: int


WORKS = {"MLP": Work("mlp", (1, 28, 28), 10, 10), "CNN": Work("cnn", (3, 32, 32), 4, 2)}


class Arm(NamedTuple):
    """A step.

    Attributes:
        parts: The fields of the correction that it has beside the start.
        adam: Whether the optimiser is Adam.
    """

    parts: tuple[str, ...] = ()
    adam: bool = False


ARMS: dict[str, Arm] = {
    "nothing": Arm(),
    "offset": Arm(("offset",)),
    "diagonal": Arm(("scale",)),
    "shift": Arm(("shift",)),
    "momentum": Arm(("momentum",)),
    "Adam": Arm(adam=True),
    "radius (two passes)": Arm(("radius",)),
    "anchor (two passes)": Arm(("anchor",)),
    "SARAH (two passes)": Arm(("previous", "velocity")),
}


MEMORY = 4.8e12
"""The bytes that an H200's memory moves in a second, as its maker says."""

PARAMETERS = {"MLP": 89_610, "CNN": 797_962}
_VECTOR, _OPERAND = 4, 2  # bytes: vectors are float32, points of gradients bfloat16
_MOVED = {
    "offset": _VECTOR,  # read
    "scale": _VECTOR,  # read; each client has its own
    "shift": 2 * _VECTOR + _OPERAND,  # w and e read, w + e written
    "momentum": 2 * _VECTOR,  # m read and written
    "radius": 2 * _VECTOR + _OPERAND,  # w and ∇L(w) read, w + e written
    "anchor": _VECTOR,  # ∇L(anchor) read
    "previous": _VECTOR + _OPERAND,  # the same, and w written for the next step
    "velocity": 3 * _VECTOR,  # where b = 1, m is read once more, for the norm of what is clipped
}
_ADAM = 4 * _VECTOR  # both moments read and written


def moved_bytes(arm: Arm) -> int:
    """The bytes for each parameter that a step on a GPU moves beside those of a step without parts."""
    return sum(_MOVED[part] for part in arm.parts) + (_ADAM if arm.adam else 0)


def arithmetic(name: str, arm: Arm) -> float:
    """The microseconds for a client-step that these bytes take on an H200."""
    return moved_bytes(arm) * PARAMETERS[name] / MEMORY * 1e6


@dataclass(frozen=True)
class Parts(FedAvg):
    """FedAvg with parts of the local step.

    Attributes:
        parts: Their names.
    """

    parts: tuple[str, ...] = ()

    def client_start(self, client: Any, message: Any, context: ClientContext) -> Correction:
        """The cloud model, with the parts that are asked for."""
        cloud = message.cloud
        values: Mapping[str, Any] = {
            "offset": 1e-3 * cloud,
            "scale": 1 + 0.1 * cloud,
            "shift": 1e-3 * cloud,
            "momentum": 0.9,
            "radius": 0.05,
            "anchor": 0.99 * cloud,
            "previous": True,
            "velocity": 0.1 * cloud,
        }
        chosen = {name: values[name] for name in self.parts}
        if "velocity" in chosen:
            chosen["momentum"] = 1.0
        return Correction(start=cloud, **chosen)


def simulation(work: Work, arm: Arm) -> Simulation:
    """A federation of random images, whose rounds are the work, on one core."""
    generator = np.random.default_rng(0)
    count = work.clients * work.steps * BATCH
    images = generator.integers(0, 256, size=(count, *work.shape), dtype=np.uint8)
    labels = np.arange(count) % 10
    dataset = from_arrays(images, labels, images[:10], labels[:10], name="random")
    partition = cut(labels, 10, Scheme(work.clients, 0, "iid", alpha=1.0, unbalance=0.0, seed=0))
    module = build_model(work.model, torch.zeros(2, *work.shape), 10, seed=0)
    task = ClassificationTask(dataset, partition, module, epochs=1, batch_size=BATCH)
    training = LocalTraining(weight_decay=1e-3, learning_rate=1e-3, optimizer=Adam() if arm.adam else None)
    return Simulation(
        Parts(parts=arm.parts),
        task,
        partition.training,
        training=training,
        attendance=Attendance(participation=1.0),
        engine=partial(make_batched_engine, threads=1),
    )


def on_a_cpu(name: str, repeats: int) -> dict[str, list[float]]:
    """Microseconds of computing for a client-step of each arm, one for each repeat."""
    work = WORKS[name]
    torch.set_num_threads(1)
    federations = {title: simulation(work, arm) for title, arm in ARMS.items()}
    found: dict[str, list[float]] = {title: [] for title in ARMS}
    for repeat in range(repeats + 1):
        for title, federation in federations.items():
            begin = time.process_time()
            federation.step()
            spent = (time.process_time() - begin) / (work.clients * work.steps) * 1e6
            found[title] += [spent] if repeat else []
    return found


def on_a_gpu(name: str, repeats: int, clients: int) -> dict[str, list[float]]:
    """Microseconds for a client-step of each arm by the kernels alone, in bfloat16, one for each repeat."""
    case = kernels.CASES[0] if name == "CNN" else kernels.CASES[3]
    steps = {title: step_of(case, arm, clients) for title, arm in ARMS.items()}
    found: dict[str, list[float]] = {title: [] for title in ARMS}
    for _ in range(repeats):
        for title, step in steps.items():
            found[title].append(kernels.seconds(step) / clients * 1e6)
    return found


def step_of(case: Any, arm: Arm, clients: int) -> Callable[[], None]:
    """One step of an arm, over and over."""
    from adabest.engine.gpu.kernels.fused import Fused
    from adabest.engine.gpu.program import Program

    own = kernels.setting(case, Fused("tf32"), torch.bfloat16, torch.float32)
    program, given = Program(own, clients, kernels.STEPS, kernels.GPU), kernels.cohort(own, clients, kernels.STEPS)

    def numbers(value: float) -> Tensor:
        return torch.full((clients,), value, device=kernels.GPU)

    vector = given.offset
    assert vector is not None
    extras: dict[str, Tensor] = {}
    for part in arm.parts:
        match part:
            case "offset":
                pass
            case "scale":
                extras["diagonal"] = 1 + vector
            case "radius":
                extras["radius"] = numbers(0.05)
            case "previous":
                extras["anchor"] = given.start
            case "momentum" | "velocity":
                extras |= {"momentum": numbers(0.9 if part == "momentum" else 1.0), "velocity": vector}
            case _:
                extras[part] = vector
    if arm.adam:
        extras |= {"beta1": numbers(0.9), "beta2": numbers(0.999), "eps": numbers(1e-8)}
    whole = replace(
        given,
        offset=vector if "offset" in arm.parts else None,
        extras=extras,
        has_previous="previous" in arm.parts,
    )
    program._load(whole)

    def step() -> None:
        program._step.zero_()
        program._work(whole.kind)

    return step


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device", choices=["cpu", "cuda"])
    parser.add_argument("--repeats", type=int, default=5, help="measurements of each arm")
    parser.add_argument("--models", nargs="+", choices=list(WORKS), default=list(WORKS))
    parser.add_argument("--clients", type=int, default=100, help="clients side by side on a GPU")
    options = parser.parse_args()
    rows = []
    for name in options.models:
        if options.device == "cpu":
            found = on_a_cpu(name, options.repeats)
        else:
            found = on_a_gpu(name, options.repeats, options.clients)
        best = {title: min(times) for title, times in found.items()}
        for title, spent in best.items():
            row = (name, title, f"{spent:.4g}", f"{spent / best['nothing']:.2f}")
            more = (f"{spent - best['nothing']:.2f}", f"{arithmetic(name, ARMS[title]):.2f}")
            rows.append(row if options.device == "cpu" else row + more)
    head = ("model", "the step has", "µs per client-step", "ratio")
    on_gpu = ("µs more", "µs more, by arithmetic")
    print(Table(head if options.device == "cpu" else head + on_gpu, tuple(rows)).markdown())


if __name__ == "__main__":
    main()
