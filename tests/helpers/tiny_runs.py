"""Runs that take a fraction of a second, what they are made of, and ways to break them off."""

import functools
import json
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from small import make_dataset
from torch import Tensor, nn

import adabest
from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.base import ClientContext, Correction, Replies, ServerContext, Update
from adabest.algorithms.fedavg import FedAvg
from adabest.cli import main
from adabest.data.dataset import Dataset, Defaults, from_arrays
from adabest.engine.client_store import Pieces
from adabest.errors import Interrupted
from adabest.runs.callbacks.base import Callback, Ending, Row, RunView
from adabest.runs.files.manifest import FORMAT_KEY, checksum_of_object
from adabest.runs.files.tensor_file import write_tensors
from adabest.runs.settings.config import SETTINGS
from adabest.stop_requests import StopRequests

HELPERS = Path(__file__).parent
RESULTS = ("metrics.jsonl", "model.safetensors", "aggregate.safetensors", "cloud.safetensors")
DEFAULTS = Defaults(model="mlp,hidden=8", batch_size=8, weight_decay=1e-3)


@functools.cache
def stripes() -> Dataset:
    """Byte images of three classes. As an entry point, ``stripes``, a run finds them again without being told."""
    return replace(make_dataset(), defaults=DEFAULTS)


def dropping(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """A network with dropout."""
    width = input_shape[0] * input_shape[1] * input_shape[2]
    return nn.Sequential(nn.Flatten(), nn.Linear(width, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, classes))


def convolving(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """A network with a convolution and an odd number of parameters."""
    rows, columns = ((size - 2) // 2 for size in input_shape[1:])
    layers = [nn.Conv2d(input_shape[0], 5, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(5 * rows * columns, classes))


@functools.cache
def squares() -> Dataset:
    """Noise of 28×28 bytes in three classes, for models that are worth several threads."""
    generator = np.random.default_rng(1)
    images = generator.integers(0, 256, size=(240, 1, 28, 28), dtype=np.uint8)
    labels = np.arange(240) % 3
    return from_arrays(images[:200], labels[:200], images[200:], labels[200:], name="squares")


@dataclass(frozen=True)
class Peeping(AdaBest):
    """AdaBest whose clients look at each other, as far as an engine hands them over together: no algorithm should."""

    def client_start(self, client: Any, message: Any, context: ClientContext) -> Correction:
        beside = context.samples.sum() / 1e4
        return super().client_start(client, message, context)._replace(rho=beside.reshape(1))


@dataclass(frozen=True)
class Bomb(FedAvg):
    """FedAvg until a round in which the cloud model is lost.

    Attributes:
        fuse: The round.
    """

    fuse: int = 3

    def server_step(self, server: Any, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        update = super().server_step(server, cloud, replies, context)
        return update._replace(cloud=update.cloud * float("inf")) if context.round >= self.fuse else update


@dataclass(frozen=True)
class Faulty(FedAvg):
    """FedAvg with a bug that shows in round 3."""

    def server_step(self, server: Any, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        if context.round == 3:
            raise ZeroDivisionError("a bug")
        return super().server_step(server, cloud, replies, context)


@dataclass(frozen=True)
class Several(AdaBest):
    """AdaBest with hyper-parameters of every type that a setting may have."""

    rates: tuple[float, ...] = (0.1, 0.2)
    often: bool = False
    how: str = "so"
    count: int = 3


class Diary(Callback):
    """A tracker that writes down all that it hears, and can be made to fail."""

    heard: ClassVar[list[tuple[str, Any]]] = []
    failing: ClassVar[set[str]] = set()

    def __init__(self, title: str = "mine") -> None:
        self.title = title

    def start(self, run: RunView) -> None:
        facts = {name: getattr(run, name) for name in ("id", "name", "group", "folder", "config")}
        self._hear("begin", types.SimpleNamespace(**facts, rows=list(run.rows)))

    def after_evaluation(self, run: RunView, metrics: Row) -> None:
        self._hear("log", metrics)

    def end(self, run: RunView, ending: Ending) -> None:
        self._hear("end", ending.facts())

    def _hear(self, what: str, of: Any) -> None:
        self.heard.append((what, of))
        if what in self.failing:
            raise ConnectionError("the line is dead")


class Quiet(Diary):
    """One that never fails."""

    heard: ClassVar[list[tuple[str, Any]]] = []
    failing: ClassVar[set[str]] = set()


TINY: dict[str, Any] = {
    "dataset": "stripes",
    "clients": 8,
    "participation": 0.4,
    "epochs": 1,
    "rounds": 5,
    "evaluate_every": 2,
    "engine": "reference",  # whose bits don't depend on the company, and whose heartbeats can be counted
}


def tiny(**changes: Any) -> dict[str, Any]:
    """The settings of a tiny run: 3 of 8 clients a round, 4 local steps each."""
    return {**TINY, **changes}


def run(out: Path, *, overwrite: bool = False, **changes: Any) -> adabest.Run:
    return adabest.run(out=out, overwrite=overwrite, show=False, **with_algorithm(tiny(**changes)))


def with_algorithm(settings: Mapping[str, Any]) -> Any:
    """Settings whose hyper-parameters stand behind the name of the algorithm, as Python takes them."""
    own = {name: value for name, value in settings.items() if name not in SETTINGS}
    rest = {name: value for name, value in settings.items() if name in SETTINGS}
    if own:
        rest["algorithm"] = ",".join([settings.get("algorithm", "adabest"), *(f"{k}={v}" for k, v in own.items())])
    return rest


def resume(folder: Path, **objects: Any) -> adabest.Run:
    resumed = adabest.resume(folder, show=False, **objects)
    assert isinstance(resumed, adabest.Run)
    return resumed


def resume_comparison(folder: Path) -> adabest.Comparison:
    resumed = adabest.resume(folder, show=False)
    assert isinstance(resumed, adabest.Comparison)
    return resumed


def results(folder: Path) -> dict[str, bytes]:
    """All that must be the same, bit for bit, however a run came to its end."""
    return {name: (folder / name).read_bytes() for name in RESULTS}


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, except the lock, which says nothing."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def as_version_06(folder: Path) -> None:
    """Gives each checkpoint of a run one file with all rows of clients, as version 0.6.0 wrote it."""
    directory = folder / "checkpoints"
    whole = {path: _claims_and_whole_state(path) for path in directory.glob("round-*.json")}
    for path in directory.glob("round-*.safetensors"):
        path.unlink()
    for path, (content, tensors) in whole.items():
        with path.with_suffix(".safetensors").open("wb") as file:
            content["tensors_sha256"] = write_tensors(file, {name: Pieces.of(t) for name, t in tensors.items()})
        content.pop("earlier", None)
        path.write_text(json.dumps({"content": content, "content_sha256": checksum_of_object(content)}))


def _claims_and_whole_state(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    content = json.loads(path.read_text())["content"]
    names = [*sorted(content.get("earlier", {})), path.with_suffix(".safetensors").name]
    files = [load_file(path.with_name(name)) for name in names]
    with safe_open(path.with_suffix(".safetensors"), "pt") as own:
        in_order = [name for name in own.offset_keys() if name != "clients.rows"]
    whole = {name: files[-1][name].clone() for name in in_order}
    for name in [name for name in whole if name.startswith("clients.") and name != "clients.ids"]:
        whole[name] = torch.zeros(len(whole["clients.ids"]), *whole[name].shape[1:], dtype=whole[name].dtype)
        for file in files:
            whole[name][file.get("clients.rows", torch.arange(len(file[name])))] = file[name]
    return content, whole


def needed_files(folder: Path) -> list[str]:
    """The files that the checkpoints of a run consist of, by their claims."""
    claims = list((folder / "checkpoints").glob("round-*.json"))
    names = {name for path in claims for name in json.loads(path.read_text())["content"].get("earlier", {})}
    return sorted(names | {path.name for path in claims} | {f"{path.stem}.safetensors" for path in claims})


def as_old_version(folder: Path) -> None:
    """Takes out of a run's folder what version 0.4.0 didn't write."""
    as_version_06(folder)
    (folder / "manifest.json").unlink()
    path = folder / "environment.json"
    environment = json.loads(path.read_text())
    del environment[FORMAT_KEY]
    path.write_text(json.dumps(environment))
    for claims in (folder / "checkpoints").glob("*.json"):
        content = json.loads(claims.read_text())["content"]
        content = {name: content[name] for name in ("numbers", "tensors_sha256")}
        claims.write_text(json.dumps({"content": content, "content_sha256": checksum_of_object(content)}))


def arguments(**settings: Any) -> list[str]:
    """Settings as options of the command line."""
    options: list[str] = []
    for name, value in settings.items():
        dashed = name.replace("_", "-")
        if isinstance(value, list):
            options += [f"--{dashed}", *map(str, value)]
            continue
        options += [f"--{'' if value else 'no-'}{dashed}"] if isinstance(value, bool) else [f"--{dashed}", str(value)]
    return options


def command(*given: Any) -> int:
    """What ``adabest`` with these arguments would exit with."""
    before = list(sys.path)
    try:
        return main([str(argument) for argument in given])
    except SystemExit as end:  # the parser's own way out
        return int(end.code or 0)
    finally:
        sys.path[:] = before


class Killed(BaseException):
    """Nothing in the package catches it, so a run ends as abruptly as an exception can make it."""


@contextmanager
def ends_after(beats: int, error: type[BaseException] = Interrupted) -> Iterator[None]:
    """Breaks off whatever runs inside, just before a certain local step or evaluation."""
    left = beats

    def heartbeat(self: StopRequests) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise error("enough")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StopRequests, "heartbeat", heartbeat)
        yield


@contextmanager
def dies_at(owner: Any, name: str, calls: int) -> Iterator[None]:
    """Kills whatever runs inside when it calls a function of a module or class once too often."""
    original, left = getattr(owner, name), calls

    def counted(*given: Any, **options: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed
        return original(*given, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, counted)
        yield


def break_off(out: Path, beats: int, error: type[BaseException] = Killed, **changes: Any) -> None:
    """Begins a run and breaks it off; a round of a tiny run has 12 local steps, and an evaluation 4 heartbeats."""
    with ends_after(beats, error), pytest.raises(error):
        run(out, **changes)


def in_pieces(out: Path, beats: int, error: type[BaseException], **changes: Any) -> int:
    """Breaks a run off again and again until it is finished; returns how often."""
    break_off(out, beats, error, **changes)
    for times in range(1, 20):
        try:
            with ends_after(beats, error):
                resume(out, trust=True)
        except (Interrupted, Killed):
            continue
        return times
    raise AssertionError("the run doesn't get anywhere")


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").glob("*"))


def log(folder: Path) -> str:
    return (folder / "log.txt").read_text(encoding="utf-8")
