"""Launches of Triton kernels, and the compilation of many of them at the same time.

Triton compiles a kernel at its first launch, one after another. A step has some twenty, so before its first run they
are compiled in threads: most of the work is in C++ and in other programs, which don't need Python's lock.
"""

import functools
import inspect
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import torch
import triton
from torch import Tensor

from adabest.engine.gpu.kernels.compiler import wait_until_loaded

# What kernels load one number at a time, for each client or sample.
_NUMBERS = {
    "step", "steps", "scale", "rho", "eta", "clip", "decay",
    "chosen", "codes", "counts", "labels", "losses", "right", "mean", "deviation",
    "seed", "round_number", "client", "samples", "starts",
    "momentum", "radius", "beta1", "beta2", "eps", "unbiased1", "unbiased2",
}  # fmt: skip
_SHARED_MEMORY = 232_448
_only_compiles: ContextVar[bool] = ContextVar("_only_compiles", default=False)


def jit(function: Callable[..., Any]) -> Any:
    """A Triton kernel whose compiled code is the same for any number of clients.

    Triton compiles a kernel once for pointers to multiples of 16 bytes and once for others. Where in a buffer the
    numbers of clients and samples begin may depend on how many clients there are, and wide loads don't read them.
    """
    numbers = [name for name in inspect.signature(function).parameters if name in _NUMBERS]
    return triton.jit(do_not_specialize_on_alignment=numbers)(function)


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Launches a kernel, or only compiles it where ``compile_together`` asks for that."""
    if _only_compiles.get():
        kernel.warmup(*arguments, grid=grid, **options)
    else:
        kernel[grid](*arguments, **options)


@functools.cache
def shared_memory(device: torch.device) -> int:
    """The bytes of shared memory that a program of a kernel may have; those of an H200 where there is no GPU."""
    if device.type != "cuda":
        return _SHARED_MEMORY
    properties: Any = torch.cuda.get_device_properties(device)  # torch's types don't know all of them
    return int(properties.shared_memory_per_block_optin)


def strides(x: Tensor) -> tuple[int, int, int, int]:
    """From one client, image, row and pixel of activations to the next; of what has a single one, torch may say any."""
    _, images, rows, columns, channels = x.shape
    if x.is_contiguous():
        return images * rows * columns * channels, rows * columns * channels, columns * channels, channels
    client, image, row, pixel, _ = x.stride()
    return client, image, row, pixel


def compile_together(work: Callable[[], object]) -> None:
    """Calls a function and compiles the kernels that it would launch, without running them.

    What can't be compiled is left to its first launch, which says why. With a Triton that compiles one kernel at a time
    the function isn't called, and the first launches compile, too.
    """
    wait_until_loaded()
    mode: Any = getattr(triton, "AsyncCompileMode", None)
    if mode is None:
        return
    with _Compilers() as compilers, mode(compilers, ignore_errors=True):
        before = _only_compiles.set(True)
        try:
            work()
        finally:
            _only_compiles.reset(before)


class _Compilers(ThreadPoolExecutor):
    """Threads that compile kernels and load them onto the device of the thread that asks."""

    def __init__(self) -> None:
        device = torch.cuda.current_device() if torch.cuda.is_available() else None
        super().__init__(max_workers=os.cpu_count(), initializer=_use_device, initargs=(device,))

    def submit(self, compiled: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        """Begins to compile a kernel; the result has been loaded, too."""
        return super().submit(lambda: _loaded(compiled(*arguments, **options)))


def _use_device(device: int | None) -> None:
    if device is not None:
        torch.cuda.set_device(device)


def _loaded(kernel: Any) -> Any:
    """A compiled kernel with its launcher built and its code on the device: reading ``run`` does both.

    Otherwise its first launch would, one kernel after another; some versions of Triton call a C compiler for it.
    """
    _ = kernel.run
    return kernel
