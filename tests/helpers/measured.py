"""Metrics of runs that were never run, in files as runs have them."""

import atexit
import itertools
import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from adabest.runs.files.metrics_file import MetricsFile

_FOLDER = tempfile.TemporaryDirectory()
atexit.register(_FOLDER.cleanup)
_NUMBERS = itertools.count()


def metrics_file(rows: Iterable[Mapping[str, Any]]) -> MetricsFile:
    """A file of some rows, which is there until the tests end."""
    path = Path(_FOLDER.name) / f"{next(_NUMBERS)}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return MetricsFile(path)
