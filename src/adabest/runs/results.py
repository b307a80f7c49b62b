"""Reading runs: what a folder holds, as objects."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from adabest.errors import InputError
from adabest.models import build_model
from adabest.registry import check_options
from adabest.runs import folder as files
from adabest.runs.config import CONFIG_OPTIONS, Config, is_object_name, read_toml
from adabest.runs.folder import RunFolder


@dataclass(frozen=True)
class Run:
    """A run as it lies on disk.

    Attributes:
        folder: Where it lies.
        config: Its complete configuration.
        status: ``running``, ``interrupted``, ``killed``, ``finished`` or ``diverged``.
        round: The last round that counts: the last one, the last checkpointed one, or the one it diverged in.
        reason: Why it diverged, or ended before its last round, if it did.
        metrics: One row per evaluated round.
        identity: Fingerprints and the partition's statistics.
    """

    folder: Path
    config: Config
    status: str
    round: int
    reason: str | None
    metrics: list[dict[str, Any]]
    identity: Mapping[str, Any]

    @property
    def final(self) -> dict[str, Any]:
        """The last evaluated round's metrics; empty if there is none."""
        rows = [row for row in self.metrics if "diverged" not in row]
        return rows[-1] if rows else {}

    def curve(self, name: str) -> tuple[list[int], list[float]]:
        """A metric over rounds, where it was measured: rounds and values."""
        points = [(row["round"], row[name]) for row in self.metrics if row.get(name) is not None]
        return [r for r, _ in points], [v for _, v in points]

    @functools.cached_property
    def model(self) -> nn.Module:
        """The scored model, for normalised inputs; ``predict`` takes them as they are."""
        return self.load_model()

    def predict(self, inputs: Any) -> Tensor:
        """Class scores of the scored model for inputs as they are in the data set, samples first."""
        precision = getattr(torch, self.config.precision)
        mean, std = (torch.tensor(self.identity[key], dtype=precision) for key in ("mean", "std"))
        with torch.no_grad():
            scores: Tensor = self.model((torch.as_tensor(inputs).to(precision) - mean) / std)
        return scores

    def load_model(self, which: str = "scored", module: nn.Module | None = None) -> nn.Module:
        """A model of a finished run.

        Args:
            which: ``scored``, ``aggregate``, ``cloud`` or, for a run with ``average_from``, ``averaged``.
            module: A module to load into, for runs whose model was a Python object.

        Raises:
            InputError: If the run isn't finished, or the model can't be rebuilt.
        """
        if which not in files.MODELS:
            raise InputError(f"a run has no {which!r} model; it has {', '.join(files.MODELS)}")
        path = self.folder / files.MODELS[which]
        if not path.is_file():
            why = (
                "the run is " + self.status if self.status not in files.ENDED else "it wasn't asked for (average_from)"
            )
            raise InputError(f"{self.folder} has no {which} model: {why}")
        if module is None:
            if is_object_name(str(self.config.model)):
                raise InputError(f"the model of {self.folder} was a Python object: pass it to load_model(module=...)")
            example = torch.zeros(2, *self.identity["input_shape"])
            module = build_model(str(self.config.model), example, self.identity["classes"], self.config.seed)
        tensors = load_file(path)
        try:
            module.to(getattr(torch, self.config.precision)).load_state_dict(tensors)
        except RuntimeError as error:
            raise InputError(f"the {which} model of {self.folder} doesn't fit the module: {error}") from error
        return module.eval()


def load(path: str | Path) -> Run:
    """Reads a run.

    Raises:
        InputError: If there is no run.
    """
    folder = RunFolder(Path(path))
    if not folder.holds_run():
        raise InputError(f"there is no run in {path} (it has no {files.CONFIG})")
    settings = read_toml(folder / files.CONFIG)
    own = {name: settings.pop(name) for name in list(settings) if name not in CONFIG_OPTIONS}
    status = folder.status()
    if status["status"] == "running" and not folder.is_being_written():
        status["status"] = "killed"
    return Run(
        folder=Path(path),
        config=Config(**check_options(str(path), settings, CONFIG_OPTIONS, text=False), hyperparameters=own),
        status=status["status"],
        round=status["round"],
        reason=status.get("reason"),
        metrics=folder.rows(files.METRICS),
        identity=folder.read_json(files.IDENTITY) or {},
    )


def find_runs(root: str | Path) -> list[Path]:
    """The folders below ``root`` that hold a run, in alphabetical order."""
    return sorted(path.parent for path in Path(root).rglob(files.CONFIG) if RunFolder(path.parent).holds_run())
