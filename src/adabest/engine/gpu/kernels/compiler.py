"""CUDA and Triton's compiler: loaded in threads while a run is built, with a cache folder that can be written."""

import contextlib
import functools
import importlib.util
import os
import tempfile
import threading
import warnings
from typing import Any

import torch


@functools.cache
def begin_device(device: str) -> None:
    """Begins to use a GPU in a thread, and to load Triton in another: the first use of each takes its time."""

    def use() -> None:
        with contextlib.suppress(Exception):  # whoever uses it next says what is wrong
            if torch.cuda.is_available():
                load_in_background()
                torch.empty(1, device=device)

    threading.Thread(target=use, name="begin CUDA", daemon=True).start()


@functools.lru_cache(maxsize=1)
def load_in_background() -> threading.Thread | None:
    """Begins to load Triton, so that it is there when the first kernels are compiled; None without Triton.

    Loading takes a second or two of the cores, not of the GPU: its driver is built by a C compiler when nothing is
    cached, and its own files are hashed, since the keys of cached kernels contain the hash.
    """
    if importlib.util.find_spec("triton") is None:
        return None
    thread = threading.Thread(target=_load, name="load Triton", daemon=True)
    thread.start()
    return thread


def wait_until_loaded() -> None:
    """Waits for the thread of ``load_in_background``: two threads at once would build the driver twice."""
    thread = load_in_background()
    if thread is not None:
        thread.join()


def _load() -> None:
    with contextlib.suppress(Exception):  # the first launch says what is wrong
        import triton
        from triton.runtime.cache import triton_key

        provide_cache(triton.knobs)
        _ = triton.runtime.driver.active
        triton_key()


def provide_cache(knobs: Any) -> None:
    """Moves the cache of compiled kernels to a temporary folder, with a warning, if its own can't be written."""
    folder = str(knobs.cache.dir)
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        knobs.cache.dir = tempfile.mkdtemp(prefix="adabest-kernels-")
        warnings.warn(
            f"compiled kernels can't be kept in {folder} ({error.strerror}), so every process compiles them anew; "
            "set TRITON_CACHE_DIR to a folder that can be written",
            stacklevel=2,
        )
