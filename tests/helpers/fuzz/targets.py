"""One function of bytes for each thing that is read: whether it was taken. What it raises must never reach a user."""

import atexit
import functools
import io
import json
import os
import shutil
import signal
import struct
import tempfile
import threading
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from unittest import mock

import numpy as np
import tiny_data as tiny

from adabest.cli import main
from adabest.data import download
from adabest.data.cifar import binary, pickled
from adabest.data.dataset import Dataset
from adabest.data.emnist import read_matlab
from adabest.data.files import File, read_archive, read_folder
from adabest.data.idx import parse_idx
from adabest.data.loading import load_dataset
from adabest.errors import InputError
from adabest.report.table import runs_table
from adabest.runs.execution import start
from adabest.runs.files.manifest import FORMAT_KEY
from adabest.runs.results_file import Results, read_choices
from adabest.runs.settings.resolution import resolve
from adabest.runs.settings.toml_file import read_toml, to_toml
from adabest.runs.stored_run import read_run

ARRAYS = {
    "x_train": np.zeros((4, 3), np.float32),
    "y_train": np.array([0, 1, 2, 1]),
    "x_test": np.ones((2, 3), np.float32),
    "y_test": np.array([0, 1]),
    "clients": np.array(["a", "b", "a", "c"]),
}
_MAT_HEADER = tiny.matlab()[:128]
_STOP_AFTER = 0.5  # seconds after which a command that trains is asked to stop
_CODES = {0, 2, 3, 4, 130}


@functools.cache
def scratch() -> Path:
    """A folder of this process, in memory where there is such a place."""
    place = Path(tempfile.mkdtemp(prefix="fuzz-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return place


def _target(read: Callable[[bytes], None]) -> Callable[[bytes], bool]:
    """Turns a reader into a target: whether the input was taken. A warning is nobody's business here."""

    @functools.wraps(read)
    def target(data: bytes) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                read(data)
            except InputError:
                return False
        return True

    return target


def npy(array: np.ndarray) -> bytes:
    """An array as NumPy writes it."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array)
    return buffer.getvalue()


def npz(entries: dict[str, bytes]) -> bytes:
    """Entries as NumPy packs them."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(f"{name}.npy", content)
    return buffer.getvalue()


@_target
def fuzz_npz(data: bytes) -> None:
    """An ``.npz`` file: after a 0 the whole file, after another byte one of its arrays, in a sound archive."""
    which, content = data[:1] or b"\0", data[1:]
    if which != b"\0":
        good = {name: npy(array) for name, array in ARRAYS.items()}
        good[list(good)[which[0] % len(good)]] = content
        content = npz(good)
    path = scratch() / "data.npz"
    path.write_bytes(content)
    load_dataset(str(path)).fingerprint()


@_target
def fuzz_idx(data: bytes) -> None:
    """A file of MNIST's format: after a 0 one of images, else one of labels."""
    parse_idx(File("file", data[1:]), (6, 28, 28) if data[:1] == b"\0" else (6,))


@_target
def fuzz_cifar(data: bytes) -> None:
    """A batch of CIFAR: after a 0 a binary one, else a pickled one."""
    content = data[1:]
    file = File("file", content, tiny.md5(content))
    if data[:1] == b"\0":
        binary(2)([file], tiny.shrink(tiny.TINY_CIFAR100, 10, 3), "train")
    else:
        pickled("fine_labels")([file], tiny.TINY_CIFAR100, "train")


@_target
def fuzz_mat(data: bytes) -> None:
    """EMNIST's ``.mat`` file: after a 0 the whole file, else one variable, which is compressed as MATLAB does."""
    content = data[1:]
    if data[:1] != b"\0":
        deflated = zlib.compress(content, 1)
        content = _MAT_HEADER + struct.pack("<II", 15, len(deflated)) + deflated
    read_matlab([File("file", content)], tiny.TINY_LETTERS, "train")


@_target
def fuzz_leaf(data: bytes) -> None:
    """A file of LEAF's."""
    folder = scratch() / "leaf"
    for split in ("train", "test"):
        (folder / split).mkdir(parents=True, exist_ok=True)
        (folder / split / "all.json").write_bytes(data)
    load_dataset(f"leaf,path={folder}").fingerprint()


@_target
def fuzz_archive(data: bytes) -> None:
    """A ``.zip`` after a 0, a ``.tar.gz`` after a 1, a tar that is then packed after a 2, else a ``.gz`` file."""
    which, content = data[:1], data[1:]
    folder = scratch() / "archives"
    folder.mkdir(exist_ok=True)
    if which in (b"\0", b"\1", b"\2"):
        path = folder / ("archive.zip" if which == b"\0" else "archive.tar.gz")
        path.write_bytes(zlib.compress(content, 1, 31) if which == b"\2" else content)
        read_archive(path, None, "inside", {"first": None, "second": None})
    else:
        (folder / "first.gz").write_bytes(content)
        read_folder(folder, {"first": None})


@functools.cache
def _digits() -> Dataset:
    return load_dataset("digits")


@_target
def fuzz_configuration(data: bytes) -> None:
    """A configuration file, from its bytes to complete settings, which must survive being written and read again."""
    path = scratch() / "config.toml"
    path.write_bytes(data)
    config, _ = resolve(read_toml(path), _digits())
    path.write_text(to_toml(config.flat()), encoding="utf-8")
    again, _ = resolve(read_toml(path), _digits())
    assert again.digest() == config.digest(), "settings don't survive a file"


@functools.cache
def run_folder() -> dict[str, bytes]:
    """The files of two finished runs, by their paths in ``scratch()``: one proves itself, one is of version 0.4.0.

    Of the first, every change is refused before a field is looked at.
    """
    settings = {"rounds": 2, "evaluate_every": 1, "clients": 4, "epochs": 1, "model": "logistic", "partition": "iid"}
    config, components = resolve(settings, _digits())
    run, old = scratch() / "run", scratch() / "old"
    start(config, components, run)
    shutil.copytree(run, old)
    (old / "manifest.json").unlink()
    environment = json.loads((old / "environment.json").read_text())
    (old / "environment.json").write_text(json.dumps({k: v for k, v in environment.items() if k != FORMAT_KEY}))
    return {
        str(path.relative_to(scratch())): path.read_bytes()
        for folder in (run, old)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.stat().st_size
    }


@_target
def fuzz_run_folder(data: bytes) -> None:
    """A finished run, one of whose files has another content: the first byte says which."""
    files = run_folder()
    name = list(files)[(data[0] if data else 0) % len(files)]
    path = scratch() / name
    path.write_bytes(data[1:])
    try:
        run = read_run(path.parent)
        runs_table([run])
        run.curve("scored_accuracy")
        run.load_model()
    finally:
        path.write_bytes(files[name])


@_target
def fuzz_results_file(data: bytes) -> None:
    """A file of results after a 0, else one of choices."""
    path = scratch() / "results.json"
    path.write_bytes(data[1:])
    if data[:1] == b"\0":
        Results.read(path)
    else:
        read_choices(path)


def _no_download(*_: object) -> None:
    raise InputError("nothing is downloaded while fuzzing")


def _ignore(_: int, __: FrameType | None) -> None:
    """Does nothing about a signal that comes when a command has just ended."""


def _stop_training(over: threading.Event) -> None:
    """Asks a command that trains to stop after a while: while it does, it has a signal handler of its own."""
    over.wait(_STOP_AFTER)
    while not over.wait(0.1):
        if signal.getsignal(signal.SIGINT) is not _ignore:
            os.kill(os.getpid(), signal.SIGINT)
            return


def fuzz_command_line(data: bytes) -> bool:
    """A whole command, one argument a line, in a folder of its own. It may end with a documented exit code only."""
    text = data.decode("utf-8", "replace").replace("/", "_").replace("~", "_").replace("..", "_").replace("\0", "")
    arguments = text.split("\n")
    folder, before = scratch() / "commands", Path.cwd()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "config.toml").write_text('rounds = 1\nclients = 2\npartition = "iid"\n')
    os.chdir(folder)
    over = threading.Event()
    stop = threading.Thread(target=_stop_training, args=(over,), daemon=True)
    heard = signal.signal(signal.SIGINT, _ignore)
    try:
        with (
            mock.patch.object(download, "_download", _no_download),
            mock.patch("sys.stdout", io.StringIO()),
            mock.patch("sys.stderr", io.StringIO()) as told,
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            stop.start()
            code: object
            try:
                code = main(arguments)
            except SystemExit as end:
                code = end.code
        assert code in _CODES, f"the exit code is {code!r}"
        assert code == 0 or told.getvalue().strip(), f"exit code {code} without a word"
        assert "Traceback" not in told.getvalue()
        return code == 0
    finally:
        over.set()
        if stop.ident is not None:
            stop.join()
        signal.signal(signal.SIGINT, heard)
        os.chdir(before)


TARGETS: dict[str, Callable[[bytes], bool]] = {
    "npz": fuzz_npz,
    "idx": fuzz_idx,
    "cifar": fuzz_cifar,
    "mat": fuzz_mat,
    "leaf": fuzz_leaf,
    "archive": fuzz_archive,
    "configuration": fuzz_configuration,
    "run_folder": fuzz_run_folder,
    "results_file": fuzz_results_file,
    "command_line": fuzz_command_line,
}
