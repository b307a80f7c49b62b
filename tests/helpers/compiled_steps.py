"""Steps whose Triton kernels are compiled for a GPU that isn't there; run as a program, without Triton's interpreter.

The driver and the compiler are stand-ins, so nothing is launched: the program prints, as JSON, what would be compiled.
"""

import functools
import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import triton
from torch import nn
from triton.backends.compiler import GPUTarget

from adabest.engine.gpu.kernels.buffers import Pace, Rates
from adabest.engine.gpu.kernels.fused import Fused
from adabest.engine.gpu.packing import packing
from adabest.engine.gpu.program import Program, ProgramSetting, StepKind
from adabest.engine.layer_plan import plan_model

CPU = torch.device("cpu")
STEP = StepKind(has_codes=True, has_offset=True, has_missing=True)


class Driver:
    """What Triton asks a GPU's driver."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        return 0


class Compiler:
    """Compiles nothing, slowly, and writes down who asked."""

    def __init__(self, *, broken: str = "") -> None:
        self.threads: list[str] = []
        self.names: list[str] = []
        self.together = self.most_together = 0
        self._lock, self._broken = threading.Lock(), broken

    def __call__(self, source: Any, **options: Any) -> Any:
        with self._lock:
            self.threads.append(threading.current_thread().name)
            self.names.append(source.name)
            self.together += 1
            self.most_together = max(self.most_together, self.together)
        time.sleep(0.05)
        with self._lock:
            self.together -= 1
        if source.name == self._broken:
            raise ValueError(f"{source.name} can't be compiled")
        return Kernel()


class Kernel:
    """A kernel that does nothing."""

    function = packed_metadata = None

    def launch_metadata(self, *arguments: Any) -> None:
        pass

    def run(self, *arguments: Any) -> None:
        pass


def program(clients: int) -> Program:
    """A convolution and two linear layers for a number of clients, in bfloat16."""
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 20), nn.ReLU(), nn.Linear(20, 4)
    )
    plan = plan_model(module, torch.zeros(2, 3, 8, 8))
    shapes = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    operators = Fused("ieee")
    setting = ProgramSetting(
        layers=plan.layers,
        sources=plan.sources,
        packing=packing(plan.layers, shapes, operators, CPU),
        shapes=shapes,
        operators=operators,
        inputs=torch.zeros(10, 3, 8, 8, dtype=torch.uint8),
        labels=torch.zeros(10, dtype=torch.int64),
        mean=torch.zeros(3),
        deviation=torch.ones(3),
        augment=None,
        loss=None,
        batch_value=None,
        batch=5,
        output=(4,),
        operand=torch.bfloat16,
        master=torch.float32,
    )
    return Program(setting, clients, 4, CPU)


def slices_of_one_buffer(made: Program, start: int) -> None:
    """Moves all numbers of clients into slices of a buffer, one behind the other, from an odd place on."""
    clients = made.clients
    buffer = torch.zeros(start + 6 * clients)
    scale, rho, eta, clip, decay, steps = (buffer[start + i * clients :][:clients] for i in range(6))
    made._direction = replace(made._direction, scale=scale, rho=rho)
    made._rates = Rates(eta, clip, decay)
    made._pace = Pace(made._step, steps.view(torch.int32))


def kernels_of(step: Callable[[], None]) -> list[str]:
    """What Triton tells the kernels of a step apart by."""
    keys = []

    def keep(**told: Any) -> bool:
        keys.append(f"{told['repr']} {told['key']}")
        return True  # as if somebody else had compiled it: Triton goes on without a launch

    triton.knobs.runtime.jit_cache_hook = keep
    step()
    triton.knobs.runtime.jit_cache_hook = None
    return keys


def keys() -> list[list[str]]:
    """The kernels of steps with several numbers of clients, some with slices of one buffer."""
    found = []
    for clients in (1, 2, 7, 16, 33):
        made = program(clients)
        found.append(kernels_of(functools.partial(made._work, STEP)))
        slices_of_one_buffer(made, start=clients % 3)
        found.append(kernels_of(functools.partial(made._work, STEP)))
    return found


def together(broken: str = "") -> dict[str, Any]:
    """What is compiled where, before a step and in it."""
    compiler, made = Compiler(broken=broken), program(2)
    triton.compiler.compile = compiler
    made._setting.operators.compile_together(lambda: made._work(STEP))
    before, error = list(compiler.names), ""
    try:
        made._work(STEP)
    except ValueError as raised:
        error = str(raised)
    return {
        "before": before,
        "in the step": compiler.names[len(before) :],
        "in the main thread": compiler.threads.count("MainThread"),
        "at a time": compiler.most_together,
        "error": error,
    }


if __name__ == "__main__":
    triton.runtime.driver.set_active(Driver())
    print(json.dumps(keys() if sys.argv[1] == "keys" else together(*sys.argv[2:])))
