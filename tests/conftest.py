"""What all tests share."""

import functools
import gc
import os
import signal
from collections.abc import Generator, Iterator
from typing import Any

import pytest
import torch
from figures import catch_figures
from hypothesis import settings

from adabest import registry
from adabest.registry import naming

# The same examples every time, so that a red run can be repeated; no deadline, since a busy machine isn't a bug.
settings.register_profile("adabest", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("adabest")

# Triton's kernels need a GPU or its interpreter, and it decides for one of them when torch imports it.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# Some virtual machines announce Intel's matrix units (AMX), which bfloat16 would use, and refuse their instructions.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

# A shell that starts the tests in the background has them ignore Ctrl-C, and everything that they start, too.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The models of the tests are tiny: more threads only make them wait for each other, in processes that tests start, too.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Looks for garbage neither while tests are collected nor among them afterwards, and else seldom.

    Python's collector went through torch and 11,000 tests again and again: that took 8 % of all computing.
    """
    gc.disable()
    collected = yield
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()
    return collected


def pytest_unconfigure() -> None:
    """Else libraries would complain at the end that nobody freed what they had lent."""
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def trackers_offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test tells anyone of its runs, whatever the environment says; Trackio looks only when it is imported."""
    place = tmp_path_factory.mktemp("trackers")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "WANDB_MODE": "offline",
            "WANDB_SILENT": "true",
            "WANDB_ERROR_REPORTING": "false",
            "WANDB_CONFIG_DIR": str(place),
            "WANDB_CACHE_DIR": str(place),
            "WANDB_DATA_DIR": str(place),
            "MLFLOW_TRACKING_URI": (place / "mlflow").as_uri(),
            "MLFLOW_ALLOW_FILE_STORE": "true",  # the only store that needs neither a server nor a database
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "TRACKIO_DIR": str(place / "trackio"),
        }.items():
            patch.setenv(name, value)
        for name in (
            "WANDB_DIR",
            "WANDB_PROJECT",
            "MLFLOW_EXPERIMENT_NAME",
            "TRACKIO_SPACE_ID",
            "TRACKIO_SERVER_URL",
        ):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def patient_checkpoints() -> Iterator[None]:
    """No checkpoint is left out since a busy machine writes slowly: then it would depend on the machine which ones are.

    Processes that tests start have their own patience.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("adabest.runs.callbacks.checkpoints._SECONDS_OF_WAITING", 600.0)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_disks() -> Iterator[None]:
    """What is forced to disk is in the system's cache, and the test goes on: only after a power cut would it matter.

    A disk needs some ten milliseconds for it, and a run asks fourteen times. Processes that tests start do wait.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # which fails for what isn't an open file, too
        yield


@pytest.fixture(scope="session", autouse=True)
def stripes_at_hand() -> Iterator[None]:
    """The entry point of the tests' own data set is looked up once: reading all packages takes 7 % of a run."""
    entry_points = registry._entry_points
    stripes = functools.cache(lambda group: entry_points(group=group, name="stripes"))

    def looked_up(**chosen: str) -> Any:
        return stripes(chosen["group"]) if chosen.get("name") == "stripes" else entry_points(**chosen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_entry_points", looked_up)
        yield


@pytest.fixture
def trusting() -> Iterator[None]:
    """Imports names of one's own as if a person's call had named them, for tests of what lies below such calls."""
    with naming(trust=True):
        yield


@pytest.fixture
def no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Saves no figure, where nobody looks at it: drawing takes longer than everything else."""
    catch_figures(monkeypatch)
