"""The page on data sets does what it says: its Python is run, then its commands, one after the other."""

import functools
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_data as tiny
from tiny_runs import command

from adabest.data import DATASETS
from adabest.data.catalog import CIFAR10, CIFAR100, MNIST, OFFICIAL
from adabest.data.official import load_official

PAGE = Path(__file__).parent.parent / "docs" / "how-to" / "data.md"
BLOCKS: list[tuple[str, str]] = re.findall(
    r"^```(sh|python)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S
)
TRAIN, TEST = 1_100, 20


def imitations(folder: Path) -> list[Any]:
    """Files that look like the published ones, only fewer; noise with labels that take turns."""
    images = {count: tiny.pixels(count, 28, 28) for count in (TRAIN, TEST)}
    labels = {count: (np.arange(count) % 10).astype("u1") for count in (TRAIN, TEST)}
    mnist = {
        f"{split}-{kind}": tiny.idx(array[count])
        for split, count in (("train", TRAIN), ("t10k", TEST))
        for kind, array in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels))
    }
    tiny.write(folder / "MNIST" / "raw", mnist)
    colour = {count: tiny.pixels(count, 3, 32, 32) for count in (TRAIN // 5, TRAIN, TEST)}
    labels[TRAIN // 5] = labels[TRAIN][: TRAIN // 5]
    batch = tiny.records(colour[TRAIN // 5], labels[TRAIN // 5])
    tiny.write(folder / "cifar-10-batches-bin", {f"data_batch_{number}.bin": batch for number in range(1, 6)})
    tiny.write(folder / "cifar-10-batches-bin", {"test_batch.bin": tiny.records(colour[TEST], labels[TEST])})
    hundred = {
        f"{split}.bin": tiny.records(colour[count], labels[count], labels[count])
        for split, count in (("train", TRAIN), ("test", TEST))
    }
    tiny.write(folder / "cifar-100-binary", hundred)
    return [tiny.shrink(spec, TRAIN, TEST) for spec in (MNIST, CIFAR10, CIFAR100)]


def test_the_page_has_something_to_run() -> None:
    assert len(BLOCKS) >= 10
    commands = [line for language, block in BLOCKS if language == "sh" for line in block.splitlines()]
    assert len(commands) >= 8
    assert all(line.startswith("adabest ") for line in commands)


def test_every_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("datasets", reason="needs the extra huggingface")
    hub.disable_progress_bars()
    for spec in imitations(tmp_path / "data"):
        monkeypatch.setitem(OFFICIAL, spec.name, spec)
        monkeypatch.setitem(vars(DATASETS)["builtin"], spec.name, functools.partial(load_official, spec))
    monkeypatch.setenv("ADABEST_DATA", str(tmp_path / "data"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    names: dict[str, Any] = {}
    for language, block in BLOCKS:
        if language == "python":
            exec(compile(block, str(PAGE), "exec"), names)
        else:
            for line in block.splitlines():
                assert command(*shlex.split(line)[1:]) == 0, line
