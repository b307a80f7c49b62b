"""Triton's compiler is loaded beside other work, and its cache folder can be written."""

import importlib.util
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adabest.engine.gpu.kernels import compiler


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    compiler.load_in_background.cache_clear()
    yield
    compiler.load_in_background.cache_clear()


def knobs_with(folder: Path) -> Any:
    return SimpleNamespace(cache=SimpleNamespace(dir=str(folder)))


def test_triton_is_loaded_once_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    loading = []
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(compiler, "_load", lambda: loading.append(threading.current_thread()))
    assert compiler.load_in_background() is compiler.load_in_background()
    compiler.wait_until_loaded()
    assert len(loading) == 1
    assert loading[0] is not threading.current_thread()


def test_without_triton_nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert compiler.load_in_background() is None
    compiler.wait_until_loaded()


def test_a_folder_for_kernels_is_made_and_kept(tmp_path: Path) -> None:
    knobs = knobs_with(tmp_path / "new" / "cache")
    compiler.provide_cache(knobs)
    assert knobs.cache.dir == str(tmp_path / "new" / "cache")
    assert list((tmp_path / "new" / "cache").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_replaced_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    knobs = knobs_with(tmp_path / "file" / "cache")
    with pytest.warns(UserWarning, match="set TRITON_CACHE_DIR to a folder that can be written"):
        compiler.provide_cache(knobs)
    assert Path(knobs.cache.dir).is_dir()
    Path(knobs.cache.dir).rmdir()


def test_a_driver_that_cannot_be_loaded_is_left_to_the_first_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="Triton isn't installed")
    monkeypatch.setattr(compiler, "provide_cache", lambda knobs: 1 / 0)
    compiler._load()
