"""Export of models: one file that needs neither the run's folder nor this package."""

import contextlib
import copy
import importlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from adabest.engine.client_store import Pieces
from adabest.errors import InputError
from adabest.extras import require
from adabest.models.forward_pass import class_scores
from adabest.runs.files.atomic_files import write_bytes
from adabest.runs.files.folder import is_ours
from adabest.runs.files.tensor_file import write_tensors

FORMATS = ("safetensors", "onnx")


class _Classifier(nn.Module):
    """A model that normalises its inputs itself, unless they are ids: it takes them as they are in the data set."""

    mean: Tensor
    std: Tensor

    def __init__(self, module: nn.Module, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.module = module
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, inputs: Tensor) -> Tensor:
        """Class scores."""
        given = (inputs - self.mean) / self.std if inputs.is_floating_point() else inputs
        scores: Tensor = class_scores(self.module(given))
        return scores


def check_format(form: str) -> None:
    """Makes sure that a format is known, and that the packages it needs are installed.

    Raises:
        InputError: If it is unknown, or a package is missing.
    """
    if form not in FORMATS:
        raise InputError(f"there is no format {form!r}; a model can be exported as {' or '.join(FORMATS)}")
    if form == "onnx":
        require("ONNX", "onnx", "onnx", "onnxscript")


def check_place(path: Path, run: Path, *, overwrite: bool) -> None:
    """Refuses a file that exists, unless it may be replaced, and makes its folder.

    Args:
        path: The file to write.
        run: The folder of the run, whose own files are never replaced.
        overwrite: Whether another file may be replaced.

    Raises:
        InputError: If the file can't be written.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file in it")
    if is_ours(path.name) and path.resolve().parent == run.resolve():
        raise InputError(f"{path} is a file of the run itself; choose another one")
    if path.exists() and not overwrite:
        raise InputError(f"{path} is there already; choose another file, or pass --overwrite")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"can't make the folder {path.parent}: {error.strerror or error}") from error


def as_safetensors(tensors: Mapping[str, Tensor], mean: Tensor, std: Tensor, metadata: Mapping[str, str]) -> bytes:
    """Parameters by name, and the inputs' normalisation as ``input.mean`` and ``input.std``; deterministic."""
    named = {**tensors, "input.mean": mean, "input.std": std}
    file = io.BytesIO()
    write_tensors(file, {name: Pieces.of(tensor) for name, tensor in sorted(named.items())}, metadata)
    return file.getvalue()


def as_onnx(module: nn.Module, example: Tensor, mean: Tensor, std: Tensor, metadata: Mapping[str, str]) -> bytes:
    """An ONNX model: class scores of a batch of any size, of inputs as they are in the data set.

    Args:
        module: The model.
        example: Two inputs, float32 or, for ids, int64.
        mean: The mean of inputs.
        std: Their deviation.
        metadata: What the file says of the model.

    Raises:
        InputError: If torch can't express the module as ONNX.
    """
    onnx: Any = importlib.import_module("onnx")
    classifier = _Classifier(copy.deepcopy(module), mean, std).float().eval()
    try:
        with _silence():
            program: Any = torch.onnx.export(
                classifier,
                (example,),
                dynamo=True,
                verbose=False,
                external_data=False,
                input_names=["inputs"],
                output_names=["scores"],
                dynamic_shapes={"inputs": {0: torch.export.Dim("batch")}},
            )
            exported = program.model_proto
    except Exception as error:
        reason = str(error.__cause__ or error).strip().splitlines()[0]
        raise InputError(f"torch can't express the model as ONNX: {reason}") from error
    if not exported.graph.input[0].type.tensor_type.shape.dim[0].dim_param:
        raise InputError("torch can't express the model as ONNX: it wants batches of one size")
    _strip_notes(exported)
    onnx.helper.set_model_props(exported, dict(sorted(metadata.items())))
    onnx.checker.check_model(exported, full_check=True)
    content: bytes = exported.SerializeToString()
    return content


def write(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all.

    Raises:
        InputError: If it can't be written.
    """
    try:
        write_bytes(path, content)
    except OSError as error:
        raise InputError(f"can't write {path}: {error.strerror or error}") from error


def _strip_notes(exported: Any) -> None:
    """Removes the exporter's notes, which hold source code and its paths on this machine."""
    graph = exported.graph
    for part in (graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """While entered, the exporter's prints, logs and warnings are dropped. What matters, it raises."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
