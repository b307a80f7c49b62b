"""The pages of the docs as something that can be run: the files they define, and their commands and Python in order.

Of a ``sh`` block, lines that start with ``adabest`` or ``python`` are commands; all others (make, pip, cd) are the
reader's own business. A ``python`` block is run, unless it has a title: then it is the file of that name. A block
after a comment ``<!-- not run: why -->`` is left out.
"""

import contextlib
import dataclasses
import functools
import io
import re
import runpy
import shlex
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_data
from matplotlib.figure import Figure
from tiny_runs import command, stripes

from adabest.data.catalog import CIFAR10, CIFAR100, MNIST, OFFICIAL
from adabest.data.loading import DATASETS
from adabest.data.official import load_official
from adabest.runs.settings import completion, resolution
from adabest.runs.settings.config import Config

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"( *)```(\w*) *(.*)")
_TITLE = re.compile(r'title="([^"]+)"')
_NOT_RUN = re.compile(r"<!-- not run: .+ -->")


@dataclasses.dataclass(frozen=True)
class Step:
    """A command, or a block of Python."""

    language: str
    line: int
    text: str


@dataclasses.dataclass(frozen=True)
class Page:
    """What a page gives the reader to run, and the files that it has them write first."""

    name: str
    steps: tuple[Step, ...]
    files: dict[str, str]


def pages() -> list[Page]:
    """The README and all pages of the site."""
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [read(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in paths]


def read(name: str, text: str) -> Page:
    """Takes a page apart."""
    steps: list[Step] = []
    files: dict[str, str] = {}
    lines = text.splitlines()
    before, number = "", 0
    while number < len(lines):
        fence = _FENCE.fullmatch(lines[number])
        if fence:
            indent, language, title = len(fence[1]), fence[2], _TITLE.search(fence[3])
            end = next(n for n in range(number + 1, len(lines)) if lines[n].strip() == "```")
            block = [line[indent:] for line in lines[number + 1 : end]]
            if _NOT_RUN.fullmatch(before):
                pass
            elif title:
                files[title[1]] = "\n".join(block) + "\n"
            elif language == "python":
                steps.append(Step("python", number + 2, "\n".join(block)))
            elif language == "sh":
                steps += _commands(block, number + 2)
            number = end
        before = lines[number].strip() or before
        number += 1
    return Page(name, tuple(steps), files)


def _commands(block: list[str], first: int) -> list[Step]:
    found = []
    number = 0
    while number < len(block):
        begun, text = number, block[number]
        while text.endswith("\\"):
            number += 1
            text = text[:-1] + block[number].strip()
        if text.startswith(("adabest ", "python ")):
            found.append(Step("sh", first + begun, text))
        number += 1
    return found


def run_page(page: Page, folder: Path) -> None:
    """Does what a page says, in order and in one folder, on runs of two rounds.

    Raises:
        AssertionError: If a step fails; the message names page and line.
    """
    for name, content in page.files.items():
        (folder / name).write_text(content, encoding="utf-8")
    if page.steps:
        shutil.copytree(ROOT / "examples", folder / "examples")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with _at(folder), _small_runs(), _small_data(folder):
        for step in page.steps:
            output = io.StringIO()
            try:
                with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                    if step.language == "python":
                        exec(compile(step.text, f"{page.name}, line {step.line}", "exec"), namespace)
                    else:
                        _run(shlex.split(step.text, comments=True), folder)
            except Exception as error:
                raise AssertionError(
                    f"{page.name}, line {step.line}: {step.text}\n{type(error).__name__}: {error}\n{output.getvalue()}"
                ) from error


def _run(words: list[str], folder: Path) -> None:
    prepare(words, folder)
    if words[0] == "adabest" or words[:3] == ["python", "-m", "adabest"]:
        code = command(*words[1:] if words[0] == "adabest" else words[3:])
        assert code == 0, f"exit code {code}"
        return
    script = Path(words[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", words[1:])
        patch.syspath_prepend(script.parent)
        runpy.run_path(str(script), run_name="__main__")


def prepare(words: list[str], folder: Path) -> None:
    """Puts in place what a command takes for granted: the reader's own files, and data sets that would be fetched."""
    for name, make in PREPARED.items():
        if name in words or any(word.startswith(f"{Path(name).stem}:") for word in words):
            path = folder / name
            if not path.exists():
                make(path)


def _arrays(path: Path) -> None:
    np.savez(path, **{name: getattr(stripes(), name).numpy() for name in ("x_train", "y_train", "x_test", "y_test")})


def _module(path: Path) -> None:
    path.write_text(
        "from dataclasses import dataclass\n\n"
        "from torch import nn\n\n"
        "from adabest import FedAvg\n\n\n"
        "@dataclass(frozen=True)\n"
        "class MyAlgorithm(FedAvg):\n"
        "    gamma: float = 0.5\n\n\n"
        "def make_model(input_shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(36, classes))\n",
        encoding="utf-8",
    )


# What commands name and no page defines, and how a small one is made.
PREPARED: dict[str, Callable[[Path], None]] = {"my_arrays.npz": _arrays, "my_module.py": _module}


@contextlib.contextmanager
def _at(folder: Path) -> Iterator[None]:
    """In a folder whose modules, and those of its examples, can be imported, and are forgotten afterwards."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        patch.syspath_prepend(folder / "examples")
        yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]


@contextlib.contextmanager
def _small_runs() -> Iterator[None]:
    """Whatever a command, file or call says is parsed and checked as it is, but two rounds of small batches are run.

    Figures are drawn in the tests of the report, where they are looked at, too; here they would take longer than runs.
    """
    complete = completion.complete

    def completed(*given: Any) -> Config:
        whole = complete(*given)
        short = dataclasses.replace(whole, rounds=min(whole.rounds, 2), epochs=1, evaluate_every=1)
        return dataclasses.replace(short, batch_size=min(whole.batch_size or 8, 8))

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        # Of settings for rounds that are cut off here.
        warnings.filterwarnings("ignore", message="(stop_after|schedule) has no effect.* 2 rounds")
        patch.setattr(resolution, "complete", completed)
        patch.setattr(Figure, "savefig", lambda figure, file, **options: file.write(b"a figure"))
        yield


@contextlib.contextmanager
def _small_data(folder: Path) -> Iterator[None]:
    """The published data sets are there, in files that look like the official ones, only with fewer images."""
    with pytest.MonkeyPatch.context() as patch:
        for spec in _imitations(folder / "official"):
            patch.setitem(OFFICIAL, spec.name, spec)
            patch.setitem(vars(DATASETS)["builtin"], spec.name, functools.partial(load_official, spec))
        patch.setenv("ADABEST_DATA", str(folder / "official"))
        yield


def _imitations(folder: Path, train: int = 550, test: int = 20) -> list[Any]:
    """Noise, with labels that take turns."""
    images = {count: tiny_data.pixels(count, 28, 28) for count in (train, test)}
    labels = {count: (np.arange(count) % 10).astype("u1") for count in (train, test)}
    mnist = {
        f"{split}-{kind}": tiny_data.idx(array[count])
        for split, count in (("train", train), ("t10k", test))
        for kind, array in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels))
    }
    tiny_data.write(folder / "MNIST" / "raw", mnist)
    colour = {count: tiny_data.pixels(count, 3, 32, 32) for count in (train // 5, train, test)}
    labels[train // 5] = labels[train][: train // 5]
    batch = tiny_data.records(colour[train // 5], labels[train // 5])
    ten = {f"data_batch_{number}.bin": batch for number in range(1, 6)}
    ten["test_batch.bin"] = tiny_data.records(colour[test], labels[test])
    tiny_data.write(folder / "cifar-10-batches-bin", ten)
    hundred = {
        f"{split}.bin": tiny_data.records(colour[count], labels[count], labels[count])
        for split, count in (("train", train), ("test", test))
    }
    tiny_data.write(folder / "cifar-100-binary", hundred)
    return [tiny_data.shrink(spec, train, test) for spec in (MNIST, CIFAR10, CIFAR100)]
