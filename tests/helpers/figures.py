"""Catches the figures of comparisons and tunings, which take longer to draw than their runs to train."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_PLACES = ("adabest.experiments.comparison", "adabest.experiments.tuning")


def catch_figures(monkeypatch: pytest.MonkeyPatch, save: Callable[[Any, Path], list[Path]] = lambda *_: []) -> None:
    """Has figures saved by a function of the test's."""
    for place in _PLACES:
        monkeypatch.setattr(f"{place}.save_figure", save)
