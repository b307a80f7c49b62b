"""Catches figures that a command saves, which take longer to draw than its runs to train."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_PLACES = ("adabest.experiments.comparison", "adabest.experiments.tuning", "adabest.paper.reproduce")


def catch_figures(monkeypatch: pytest.MonkeyPatch, save: Callable[[Any, Path], list[Path]] = lambda *_: []) -> None:
    """Has figures saved by a function of the test's."""
    for place in _PLACES:
        monkeypatch.setattr(f"{place}.save_figure", save)
