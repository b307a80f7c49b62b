"""Catches figures that a command saves, which take longer to draw than its runs to train."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Comparisons and tunings import the function from the first of these when they draw.
_PLACES = ("adabest.report.figure", "adabest.paper.reproduce")
# If these were imported while figures are caught, they would keep the test's function for good.
_OTHERS = ("adabest.experiments.partition", "adabest.experiments.steering_figure")


def catch_figures(monkeypatch: pytest.MonkeyPatch, save: Callable[[Any, Path], list[Path]] = lambda *_: []) -> None:
    """Has figures saved by a function of the test's."""
    for name in _OTHERS:
        importlib.import_module(name)
    for place in _PLACES:
        monkeypatch.setattr(f"{place}.save_figure", save)
