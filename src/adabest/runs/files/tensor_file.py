"""Safetensors files of any size, written piece by piece, so that no tensor is held in memory twice.

The format: the length of a header in eight bytes, the header as JSON, with name, type, shape and offsets of each
tensor, and the bytes of the tensors one after another.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import torch
from torch import Tensor

from adabest.engine.client_store import Pieces
from adabest.tasks.base import Heartbeat, no_heartbeat

_TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_ALIGNMENT = 8
_CHUNK = 32 * 2**20  # bytes that are hashed and written at a time, without the interpreter's lock


def write_tensors(
    file: BinaryIO,
    tensors: Mapping[str, Pieces],
    metadata: Mapping[str, str] | None = None,
    heartbeat: Heartbeat = no_heartbeat,
) -> str:
    """Writes a file; equal tensors and metadata make equal files.

    Args:
        file: The file, open for writing.
        tensors: The tensors by name.
        metadata: Texts by name that go with them.
        heartbeat: Called between two pieces; what it raises abandons the file.

    Returns:
        The sha256 checksum of its bytes.
    """
    # Wide types first, as the format's own writer does: then each tensor is aligned for its type.
    ordered = sorted(tensors.items(), key=lambda item: -item[1].dtype.itemsize)
    digest = hashlib.sha256()
    for piece in _contents(dict(ordered), metadata or {}):
        heartbeat()
        digest.update(piece)
        file.write(piece)
    return digest.hexdigest()


def _contents(tensors: Mapping[str, Pieces], metadata: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    begin = 0
    for name, pieces in tensors.items():
        end = begin + math.prod(pieces.shape) * pieces.dtype.itemsize
        header[name] = {"dtype": _TYPES[pieces.dtype], "shape": list(pieces.shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    yield len(text).to_bytes(8, "little") + text
    for pieces in tensors.values():
        for part in pieces.parts():
            yield from _chunks(part)


def _chunks(tensor: Tensor) -> Iterator[memoryview]:
    flat = tensor.detach().reshape(-1)
    for chunk in torch.split(flat, _CHUNK // flat.dtype.itemsize):
        if len(chunk):
            yield chunk.cpu().contiguous().view(torch.uint8).numpy().data
