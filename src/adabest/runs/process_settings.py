"""Process-wide settings: threads, TF32, cuDNN flags. Runs that differ in them can't be trained together."""

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from adabest.models.float_type import float32_by_default
from adabest.runs.model_source import count_run_parameters
from adabest.runs.settings.config import Config
from adabest.runs.settings.resolution import Components

_PARAMETERS_FOR_THREADS = 100_000  # with fewer, several threads wait for each other longer than they compute


class ProcessSettings(NamedTuple):
    """The process-wide settings of a run.

    Attributes:
        engine: The engine's name.
        device: The device.
        precision: The number format of training.
        clients_in_parallel: The most clients that train at a time.
        threads: The number of CPU threads.
        workers: How many clients train side by side on a CPU; None for one on each core.
    """

    engine: str
    device: str
    precision: str
    clients_in_parallel: int | None
    threads: int
    workers: int | None = None

    @classmethod
    def of(cls, config: Config, components: Components) -> "ProcessSettings":
        """The process settings of a run. By default a small model has one thread, and others torch's number."""
        threads = config.threads
        if threads is None:
            small = count_run_parameters(config, components) < _PARAMETERS_FOR_THREADS
            threads = 1 if small else torch.get_num_threads()
        return cls.of_machine(config, threads)

    @classmethod
    def of_machine(cls, config: Config, threads: int) -> "ProcessSettings":
        """The process settings of a run whose number of threads is known."""
        return cls(
            config.engine,
            config.device,
            config.precision or "float32",
            config.clients_in_parallel,
            threads,
            config.threads,
        )

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """While entered, the process has these threads and this precision, and a GPU's results are deterministic."""
        before = torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32
        rough = self.precision in ("tf32", "bf16")
        exact: Any = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=rough)
        try:
            torch.set_num_threads(self.threads)
            torch.backends.cuda.matmul.allow_tf32 = rough
            with float32_by_default(), exact if self.device.startswith("cuda") else contextlib.nullcontext():
                yield
        finally:
            torch.set_num_threads(before[0])
            torch.backends.cuda.matmul.allow_tf32 = before[1]
