"""Checkpoints: a safetensors file with the state, and a manifest without which it doesn't count.

The manifest is written last and holds the checksum of the tensors and of itself, so a checkpoint is either whole or
passed over in favour of the one before it.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import safetensors
from safetensors.torch import load_file

from adabest.engine import Snapshot, View
from adabest.runs.folder import CHECKPOINTS, METRICS, RunFolder, force_to_disk, write_atomically, write_text
from adabest.runs.tensors import write_tensors

_KEPT = 2


def save_checkpoint(folder: RunFolder, state: View) -> None:
    """Writes a checkpoint, piece by piece, and removes all but the last two."""
    directory = folder / CHECKPOINTS
    directory.mkdir(exist_ok=True)
    stem = directory / f"round-{state.numbers['round']:07d}"
    tensors_path = stem.with_suffix(".safetensors")
    digest = write_atomically(tensors_path, lambda partial: write_tensors(partial, state.tensors))
    force_to_disk(folder / METRICS)  # or a power cut could leave a checkpoint ahead of its metrics
    content = {"numbers": state.numbers, "tensors_sha256": digest}
    manifest = {"content": content, "content_sha256": _digest_of_content(content)}
    write_text(stem.with_suffix(".json"), json.dumps(manifest, indent=2) + "\n")
    for old in sorted(directory.glob("round-*.json"))[:-_KEPT]:
        old.unlink()
    for found in directory.glob("round-*.safetensors"):
        if not found.with_suffix(".json").is_file():
            found.unlink()


def load_checkpoint(folder: RunFolder) -> Snapshot | None:
    """The last whole checkpoint; None if there is none. Says in the log which ones it passed over.

    Its tensors are maps of the file: what isn't read takes no memory.
    """
    for manifest_path in sorted((folder / CHECKPOINTS).glob("round-*.json"), reverse=True):
        problem = "the manifest is damaged"
        try:
            manifest = json.loads(manifest_path.read_text(encoding="utf-8"))
            content = manifest["content"]
            if manifest["content_sha256"] == _digest_of_content(content):
                problem = "the tensors don't match their checksum"
                tensors_path = manifest_path.with_suffix(".safetensors")
                if _digest(tensors_path) == content["tensors_sha256"]:
                    return Snapshot(load_file(tensors_path), content["numbers"])
        except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
            problem = f"{problem} ({error})"
        folder.log(f"checkpoint {manifest_path.stem} is passed over: {problem}")
        for path in (manifest_path, manifest_path.with_suffix(".safetensors")):
            if path.is_file():  # out of the way, or it would count as one of the last two
                path.replace(path.with_name(f"damaged-{path.name}"))
    return None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of_content(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
