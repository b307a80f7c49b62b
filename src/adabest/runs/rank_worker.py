"""The worker: what a rank other than 0 does, from its first order to its last."""

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from adabest.data.dataset import Dataset
from adabest.engine.distributed.phase_exchange import Order
from adabest.engine.distributed.placement import Slices
from adabest.engine.distributed.rank_device import choose_device, connect_devices
from adabest.engine.distributed.ranks import Ranks
from adabest.engine.distributed.run_share import RunShare
from adabest.engine.distributed.service import RankService
from adabest.errors import InputError
from adabest.registry import naming
from adabest.runs.build import build_parts, make_engine
from adabest.runs.execution import run_lanes
from adabest.runs.files.folder import RunFolder
from adabest.runs.process_settings import ProcessSettings
from adabest.runs.rank_job import digests
from adabest.runs.run_loop import PendingRun
from adabest.runs.settings.config import Config
from adabest.runs.settings.object_names import named_in
from adabest.runs.settings.resolution import Components, resolve_again
from adabest.runs.settings.toml_file import read_toml
from adabest.stop_requests import StopRequests

_TRUST = "--trust"


def serve(ranks: Ranks, arguments: list[str]) -> int:
    """Carries out rank 0's orders until it says that the job ends.

    Args:
        ranks: The ranks.
        arguments: The words of the command line, whose names of code may be imported.

    Returns:
        The exit code that rank 0 ends with.

    Raises:
        RankLost: If rank 0, or another rank, is gone.
    """
    with (
        _named_by(arguments),
        warnings.catch_warnings(),
        contextlib.ExitStack() as group,
        StopRequests(lambda: "rank 0 says how to go on") as requests,
    ):
        warnings.simplefilter("ignore")  # rank 0 gives the same warnings
        worker = _Worker(ranks, requests, group)
        while True:
            order = ranks.hear()
            if order["do"] == "end":
                return int(order["code"])
            worker.obey(order)


class _Worker:
    """Carries out the orders that are about whole runs; the service does the others."""

    def __init__(self, ranks: Ranks, requests: StopRequests, group: contextlib.ExitStack) -> None:
        """Makes a worker.

        Args:
            ranks: The ranks.
            requests: Whose heartbeat says that this process was asked to stop.
            group: Is left when a group of runs ends.
        """
        self._service, self._requests, self._group = RankService(ranks), requests, group
        self._datasets: dict[tuple[Any, Any], Dataset] = {}

    def obey(self, order: Order) -> None:
        """Carries out an order. An exception that all ranks know of ends only the order: rank 0 tells of it."""
        service = self._service
        service.tidy(order)
        try:
            match order["do"]:
                case "group":
                    config = Config(**order["machine"])
                    service.collect(lambda: self._begin_group(config, order["threads"]))
                    connect_devices(service.ranks, config.device, config.backend)
                case "ungroup":
                    self._end_group()
                case "build":
                    service.collect(lambda: self._build(order))
                case "runs":
                    self._make_runs(order)
                case _:
                    service.obey(order)
        except Exception as error:
            if error is not service.agreed_failure:
                raise
            if order["do"] == "group":
                self._end_group()

    def _begin_group(self, config: Config, threads: int) -> int | None:
        """Makes an engine, and enters the process settings of a group of runs; returns the GPU."""
        device = choose_device(self._service.ranks, config.device, config.backend)
        self._group.enter_context(ProcessSettings.of_machine(config, threads).entered())
        self._service.engine = make_engine(config)(self._requests.heartbeat)
        return device

    def _end_group(self) -> None:
        self._service.engine = None
        self._group.close()

    def _build(self, order: Order) -> dict[str, str]:
        """Builds this rank's share of a run; returns fingerprints of what it is made of."""
        built = build_parts(*self._resolved(order["settings"]))
        slices = Slices(built.task.initial_model().numel(), self._service.ranks.size)
        self._service.shares[order["run"]] = RunShare(built.parts, slices, self._service.ranks.rank)
        return digests(built)

    def _make_runs(self, order: Order) -> None:
        """Makes whole runs by itself, once all ranks know that each can."""
        runs = list[PendingRun]()

        def begin() -> None:
            choose_device(self._service.ranks, order["device"], "gloo")
            runs.extend(self._pending(one) for one in order["runs"][self._service.ranks.rank])

        self._service.collect(begin)
        self._service.collect(lambda: run_lanes(runs, at_a_time=order["at_a_time"]))

    def _pending(self, one: Order) -> PendingRun:
        folder = Path(one["folder"])
        mark = Path(one["mark"])
        if not mark.exists():
            raise InputError(
                f"{mark.parent} isn't the same folder here as at rank 0; when whole runs are shared out among ranks, "
                "these need a common file system"
            )
        config, components = self._resolved(one["settings"])
        plain = {
            name: one[name] for name in ("resumed", "overwrite", "unverified", "data_dir", "label", "group", "blind")
        }
        return PendingRun(RunFolder(folder), config, components, **plain)

    def _resolved(self, settings: Order) -> tuple[Config, Components]:
        """A run's configuration and objects; data sets are loaded once."""
        key = (settings.get("dataset"), settings.get("data_dir"))
        known = {"dataset": self._datasets[key]} if key in self._datasets else {}
        config, components = resolve_again(settings, known)
        self._datasets[key] = components.dataset
        return config, components


@contextlib.contextmanager
def _named_by(arguments: list[str]) -> Iterator[None]:
    """While entered, names on the command line, and in the files of settings that it names, may be imported."""
    files = [Path(word) for word in arguments if word.endswith(".toml") and Path(word).is_file()]
    with naming(arguments, *(named_in(read_toml(file)) for file in files), trust=_TRUST in arguments):
        yield
