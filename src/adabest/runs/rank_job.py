"""Jobs of several ranks: the torchrun job that this process is rank 0 of, if it is one.

A job has one conductor, whatever runs are made in it.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm
from adabest.algorithms.forms import forms_of
from adabest.engine.client_side import ClientSide
from adabest.engine.distributed.conductor import Conductor, RankedEngine
from adabest.engine.distributed.rank_device import choose_device, connect_devices, refuse_shared_device
from adabest.engine.distributed.ranked_clients import RankedClients
from adabest.engine.distributed.ranks import Ranks
from adabest.engine.distributed.service import RankService
from adabest.engine.interface import Engine
from adabest.engine.local_test import LocalTests, local_tests_here
from adabest.engine.memory_tiers import Memory
from adabest.engine.simulation import Simulation
from adabest.errors import InputError, RankLost
from adabest.runs.job import current_job, entered
from adabest.runs.settings.config import Config
from adabest.tasks.base import Heartbeat, Task

if TYPE_CHECKING:
    from adabest.runs.build import BuiltParts

_OF_MACHINE = ("engine", "device", "precision", "clients_in_parallel", "threads", "backend")

_RESTARTS = "TORCHELASTIC_RESTART_COUNT"


def was_restarted() -> bool:
    """Whether torchrun has started the ranks of this job again, since one had failed."""
    return isinstance(current_job(), RankJob) and os.environ.get(_RESTARTS, "0") != "0"


class RankJob:
    """The ranks of a torchrun job, as rank 0 uses them.

    Attributes:
        ranks: The ranks.
        service: What carries out orders on rank 0.
        has_group: Whether all ranks have an engine for runs.
        is_lasting: False: the ranks end with this process.
        resumed_by: Empty: the package's own command goes on with its runs.
    """

    is_lasting = False
    resumed_by = ""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.service = RankService(ranks)
        self._conductor = Conductor(ranks, self.service)
        self.has_group = False

    def entered(self) -> AbstractContextManager[None]:
        """While entered, runs share their clients out among the ranks."""
        return entered(self)

    def apart(self) -> AbstractContextManager[None]:
        """While entered, every rank makes whole runs by itself."""
        return entered(None)

    def partition(self) -> None:
        """None: every rank has the samples of all clients."""

    @contextlib.contextmanager
    def group(self, config: Config, threads: int) -> Iterator[None]:
        """While entered, all ranks have an engine for runs with the process settings of a configuration.

        Args:
            config: The configuration of one of the runs.
            threads: The number of torch's threads.

        Raises:
            InputError: If a rank lacks the device, or the backend has none.
        """
        machine = {name: getattr(config, name) for name in _OF_MACHINE}
        self._conductor.carry_out("group", lambda order: self._choose_devices(config), machine=machine, threads=threads)
        self.has_group = True
        try:
            yield
        finally:
            self.has_group = False
            self.service.engine = None
            self._conductor.forget_all()
            with contextlib.suppress(RankLost):  # what ended the runs is told, or that a rank was lost
                self._conductor.carry_out("ungroup", lambda order: None)

    def _choose_devices(self, config: Config) -> None:
        def refuse_shared(found: list[Any]) -> dict[str, Any]:
            refuse_shared_device(self.ranks.hosts, found, config.backend)
            return {}

        self.service.agree(lambda: choose_device(self.ranks, config.device, config.backend), refuse_shared)
        connect_devices(self.ranks, config.device, config.backend)

    def make_apart(
        self, runs: Sequence[Sequence[Mapping[str, Any]]], at_a_time: int | None, own: Callable[[], None], device: str
    ) -> None:
        """Has every rank make whole runs, and rank 0 its own.

        Args:
            runs: The runs of each rank, as the worker takes them.
            device: The device of all of them; ``cuda`` is the GPU of the rank's number on its machine.
            at_a_time: The most runs that a rank trains together; None for all.
            own: Makes rank 0's.

        Raises:
            Exception: What ended the runs of a rank.
        """

        def make_own() -> None:
            with self.apart():
                own()

        def make(order: Any) -> None:
            self.service.collect(lambda: choose_device(self.ranks, device, "gloo"))  # nothing is exchanged
            self.service.collect(make_own)

        self._conductor.carry_out("runs", make, runs=runs, at_a_time=at_a_time, device=device)

    def end(self, code: int) -> None:
        """Has the other ranks end with an exit code."""
        self._conductor.carry_out("end", lambda order: None, code=code)

    def local_tests(self, built: "BuiltParts", simulation: Simulation, score: str) -> LocalTests | None:
        """Rank 0 judges models on what all clients hold out."""
        return local_tests_here(built.task, simulation, score)

    def engine(self, inner: Callable[[Heartbeat], Engine], heartbeat: Heartbeat) -> RankedEngine:
        """The engine of rank 0's runs, which trains rank 0's clients by another one."""
        self.service.engine = inner(heartbeat)
        return RankedEngine(self._conductor, heartbeat)

    def share_out(self, config: Config, built: "BuiltParts") -> Callable[[Algorithm, Task, Tensor, Memory], ClientSide]:
        """Has all ranks build a run, and makes sure that they have the same data, partition, model and code.

        Returns:
            What makes the client side of the run.

        Raises:
            InputError: If a rank can't build it, has something else, or there are fewer clients than ranks.
        """
        clients = len(built.partition.training)
        if clients < self.ranks.size:
            raise InputError(
                f"{clients} clients can't be shared out among {self.ranks.size} ranks; start at most {clients} "
                "(torchrun --nproc-per-node), or use more clients"
            )
        undeclared = undeclared_fields(built.parts.algorithm)
        if undeclared:
            raise InputError(
                f"algorithm {type(built.parts.algorithm).__name__} doesn't say what its replies' "
                f"{', '.join(undeclared)} are, so they can't be sent between ranks; declare them as Model, Vector or "
                "Number of adabest.algorithms.forms"
            )
        number = self._conductor.next_number()
        own = digests(built)
        found = self._conductor.carry_out(
            "build", lambda order: self.service.collect(lambda: own), run=number, settings=config.flat()
        )
        assert found is not None
        for rank, theirs in enumerate(found):
            for name, digest in own.items():
                if theirs[name] != digest:
                    raise InputError(
                        f"rank {rank} on {self.ranks.hosts[rank]} has another {name} than rank 0 on "
                        f"{self.ranks.hosts[0]}; all ranks need the same data, code and versions"
                    )
        run = self._conductor.add(number, built.parts)
        return lambda algorithm, task, initial, memory: RankedClients(self._conductor, run)


def digests(built: "BuiltParts") -> dict[str, str]:
    """Fingerprints of what must be the same at all ranks, by name."""
    algorithm, task = built.parts.algorithm, built.task
    return {
        "data set": built.identity["dataset"],
        "partition": built.identity["partition"]["fingerprint"],
        "initial model": built.identity["initial_model"],
        "algorithm": f"{algorithm!r} {_digest_of_code(type(algorithm))}",
        "model's code": _digest_of_code(type(task.model.module)),
        "loss": _digest_of_code(task.loss),
        "task": f"{type(task.objective).__name__} {_digest_of_code(type(task.objective))}",
    }


def _digest_of_code(thing: Any) -> str:
    """A digest of the file that a class or a function is written in; empty for one that has none."""
    try:
        file = inspect.getsourcefile(thing)
    except TypeError:
        return ""
    return "" if file is None else _digest_of_file(file)


@functools.cache
def _digest_of_file(file: str) -> str:
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return ""


def facts_of_process(arguments: list[str]) -> dict[str, str]:
    """What must be the same in all processes of a job before it begins, by name."""
    package = Path(__file__).parents[1]
    sources = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        sources.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes())
    files = {word: _digest_of_file(word)[:12] or "none" for word in arguments if word.endswith(".toml")}
    return {
        "arguments": repr(arguments),
        "version of adabest": f"{importlib.metadata.version('adabest')} ({sources.hexdigest()[:12]})",
        "version of torch": torch.__version__,
        "version of Python": ".".join(map(str, sys.version_info[:2])),
        **{f"file {word}": digest for word, digest in files.items()},
    }


def compare_facts(facts: list[Mapping[str, str]], hosts: tuple[str, ...]) -> None:
    """Refuses ranks that differ from rank 0.

    Raises:
        InputError: With the first difference.
    """
    for rank, theirs in enumerate(facts):
        for name, own in facts[0].items():
            if theirs.get(name, own) != own:
                raise InputError(
                    f"rank {rank} on {hosts[rank]} has another {name} than rank 0 on {hosts[0]}: {theirs[name]}, not "
                    f"{own}; all ranks need the same"
                )


def undeclared_fields(algorithm: Algorithm) -> list[str]:
    """The fields of replies whose form an algorithm leaves open."""
    forms = [forms_of(algorithm.reply_type(phase)) for phase in range(len(algorithm.phases))]
    return sorted({name for own in forms for name, form in own.items() if form is None})
