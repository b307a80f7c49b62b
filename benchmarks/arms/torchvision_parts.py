"""Lets packages import torchvision where its compiled operators don't fit torch: no arm here uses any of them."""

import importlib
import re
import sys


def make_importable() -> None:
    """Imports torchvision, if need be after declaring the operators whose absence stops the import.

    A torchvision that was compiled for CUDA can't load its operators beside a torch that was compiled for CPUs.
    """
    while True:
        try:
            importlib.import_module("torchvision")
        except RuntimeError as error:
            missing = re.search(r"operator torchvision::(\w+) does not exist", str(error))
            if missing is None:
                raise
            _declare(missing[1])
        else:
            return


def _declare(operator: str) -> None:
    import torch

    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "FRAGMENT")
    library.define(f"{operator}() -> ()")
    _DECLARED.append(library)  # a declaration lasts as long as its library


_DECLARED: list[object] = []
