"""``python -m fuzz``."""

import contextlib
import importlib
import sys


def _watched_by_atheris() -> contextlib.AbstractContextManager[None]:
    """Has atheris see the lines that an input reaches, of what is imported from now on and reads or is ours."""
    import atheris

    watched: contextlib.AbstractContextManager[None] = atheris.instrument_imports(
        include=["adabest", "zipfile", "tarfile", "gzip", "tomllib", "pickletools"]
    )
    return watched


with _watched_by_atheris() if "--atheris" in sys.argv else contextlib.nullcontext():
    driver = importlib.import_module("fuzz.driver")
driver.run()
