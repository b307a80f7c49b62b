"""The Triton kernels on a GPU: whether they equal their twins, and how long each takes.

python -m benchmarks.kernels check      whole steps against the same by the twins in float64
python -m benchmarks.kernels time       microseconds per client-step, of whole steps and of each operator
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from adabest.engine.gpu.kernels import twins
from adabest.engine.gpu.kernels.buffers import Rates
from adabest.engine.gpu.kernels.fused import Fused
from adabest.engine.gpu.packing import packing
from adabest.engine.gpu.program import Cohort, Program, ProgramSetting, StepKind
from adabest.engine.layer_plan import plan_model
from adabest.models.factory import build_model
from adabest.tasks.base import no_heartbeat

GPU = torch.device("cuda")
STEPS = 2
NETWORKS = {  # beside the models of the package; all give ten classes
    "group norm": nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.GroupNorm(4, 32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1, bias=False), nn.GroupNorm(8, 64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)),
    ),
    "layer norm": nn.Sequential(
        *(nn.Flatten(), nn.Linear(784, 200), nn.LayerNorm(200), nn.ReLU()),
        *(nn.Linear(200, 100), nn.GroupNorm(4, 100), nn.ReLU(), nn.Linear(100, 10)),
    ),
}
CASES = (  # model, shape of an input, classes, batch
    ("cnn", (3, 32, 32), 10, 45),
    ("cnn", (3, 32, 32), 100, 13),
    ("cnn", (1, 28, 24), 62, 20),
    ("mlp,hidden=100x100", (1, 28, 28), 10, 50),
    ("resnet", (3, 32, 32), 10, 16),
    ("group norm", (3, 32, 32), 10, 50),
    ("layer norm", (1, 28, 28), 10, 50),
)
TIMED = (CASES[0], CASES[3])
GFLOP = {"cnn": 3.63, "mlp,hidden=100x100": 0.0194}  # of a client-step; a first layer needs no input gradient


def setting(case: Any, operators: Any, operand: torch.dtype, master: torch.dtype) -> ProgramSetting:
    """A model on random bytes."""
    model, shape, classes, batch = case
    generator = torch.Generator().manual_seed(0)
    module = build_model(NETWORKS.get(model, model), torch.randn(2, *shape), classes, 0)
    plan = plan_model(module, torch.randn(2, *shape))
    shapes = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    samples = 50_000
    return ProgramSetting(
        layers=plan.layers,
        sources=plan.sources,
        packing=packing(plan.layers, shapes, operators, GPU),
        shapes=shapes,
        operators=operators,
        inputs=torch.randint(0, 256, (samples, *shape), dtype=torch.uint8, generator=generator).to(GPU),
        labels=torch.randint(0, classes, (samples,), generator=generator).to(GPU),
        mean=torch.full((shape[0],), 120.0, dtype=master, device=GPU),
        deviation=torch.full((shape[0],), 60.0, dtype=master, device=GPU),
        augment=None,
        loss=None,
        batch_value=None,
        batch=batch,
        output=(classes,),
        operand=operand,
        master=master,
    )


def cohort(own: ProgramSetting, clients: int, steps: int, rho: float = 0.0) -> Cohort:
    """Clients with random models, batches and corrections."""
    generator = torch.Generator().manual_seed(1)
    real = (own.packing.source >= 0).to(own.master)

    def draw(*size: int, scale: float) -> Tensor:
        return (torch.randn(size, generator=generator, dtype=torch.float64) * scale).to(GPU, own.master)

    def numbers(value: float) -> Tensor:
        return torch.full((clients,), value, dtype=own.master, device=GPU)

    table = (steps, clients, own.batch)
    mirrored = torch.randint(0, 2, table, generator=generator) * 128
    return Cohort(
        start=draw(clients, own.packing.size, scale=0.03) * real,
        offset=draw(clients, own.packing.size, scale=1e-3) * real,
        scale=1 + draw(clients, scale=0.1),
        rho=draw(clients, scale=rho),
        rates=Rates(eta=numbers(0.1), clip=numbers(10.0), decay=numbers(1e-3)),
        steps=torch.full((clients,), steps, dtype=torch.int32),
        keys=(torch.arange(clients), torch.arange(clients), torch.arange(clients)),
        chosen=torch.randint(0, len(own.labels), table, generator=generator).to(torch.int32),
        flip_crop_codes=(mirrored + torch.randint(0, 81, table, generator=generator)).to(torch.int32),
    )


def check() -> None:
    """Whole steps by kernels against the same by twins in float64, and against themselves."""
    torch.backends.cudnn.deterministic = True
    for case in CASES:
        exact = setting(case, twins, torch.float64, torch.float64)
        given = cohort(exact, 3, STEPS, rho=0.01)
        slow = Program(exact, 3, STEPS, GPU)
        moved = exact.packing.unpack(slow.train(given, no_heartbeat) - given.start)
        for operand, precision in ((torch.float32, "ieee"), (torch.float32, "tf32"), (torch.bfloat16, "tf32")):
            rough = setting(case, Fused(precision), operand, torch.float32)
            fast = Program(rough, 3, STEPS, GPU)
            once, again = (fast.train(given, no_heartbeat).clone() for _ in range(2))
            off = rough.packing.unpack(once.double() - given.start) - moved
            losses = (fast.losses.double() - slow.losses).norm() / slow.losses.norm()
            print(
                f"{case[0]} {case[1]} batch {case[3]}, {str(operand).removeprefix('torch.')} {precision}: "
                f"update off by {off.norm() / moved.norm():.1e}, losses by {losses:.1e}; "
                f"repeats {'equal' if torch.equal(once, again) else 'DIFFER'}",
                flush=True,
            )


def seconds(work: Callable[[], None], repeats: int = 20) -> float:
    """Median time of work that is captured as a CUDA graph."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        work()
        work()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    times = []
    for _ in range(5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(repeats):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / repeats / 1e3)
    return float(sorted(times)[2])


class Remembering:
    """Operators that remember their calls, so that each can be timed alone."""

    def __init__(self, inner: Any) -> None:
        self.calls: list[tuple[str, Callable[[], None]]] = []
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        operator = getattr(self._inner, name)
        if name in ("parts", "norm_parts", "slots", "linear_slots"):
            return operator

        def call(*args: Any) -> None:
            self.calls.append((name, lambda: operator(*args)))
            operator(*args)

        return call


def ready(case: Any, clients: int, operators: Any) -> Program:
    """A program with clients in it."""
    own = setting(case, operators, torch.bfloat16, torch.float32)
    program = Program(own, clients, STEPS, GPU)
    program._load(cohort(own, clients, STEPS))
    return program


def step_of(program: Program, *, offset: bool) -> Callable[[], None]:
    """One step, over and over."""

    def step() -> None:
        program._step.zero_()
        program._work(StepKind(has_codes=True, has_offset=offset))

    return step


def microseconds(case: Any, clients: int, *, offset: bool) -> float:
    """The time of a client-step by the kernels alone, in bfloat16 with float32 sums, at a number of clients."""
    return seconds(step_of(ready(case, clients, Fused("tf32")), offset=offset)) / clients * 1e6


def time() -> None:
    """Whole steps and their parts, in bfloat16 with float32 sums."""
    for case in TIMED:
        for clients in (10, 50, 100, 500):
            with_offset, without = (microseconds(case, clients, offset=o) for o in (True, False))
            rate = GFLOP[case[0]] / with_offset * 1e3
            print(
                f"{case[0]}, {clients} clients: {with_offset:.2f} us per client-step ({rate:.0f} TFLOP/s), "
                f"{without:.2f} without offsets",
                flush=True,
            )
        remembering = Remembering(Fused("tf32"))
        program = ready(case, 100, remembering)
        program._work(StepKind(has_codes=True, has_offset=True))
        program._step.zero_()
        for name, call in remembering.calls:
            print(f"    {name}: {seconds(call) / 100 * 1e6:.2f}", flush=True)


if __name__ == "__main__":
    {"check": check, "time": time}[sys.argv[1]]()
