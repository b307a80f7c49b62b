"""The peak memory of this process, for the progress display."""

import importlib
import importlib.util
import sys
from typing import Any

import torch

# Windows has no module ``resource``.
_resource: Any = importlib.import_module("resource") if importlib.util.find_spec("resource") else None


def memory_used() -> int | None:
    """The peak bytes of this process: on the GPU if there is one, else in main memory; None if unknown."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    if _resource is None:
        return None
    return int(_resource.getrusage(_resource.RUSAGE_SELF).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)
