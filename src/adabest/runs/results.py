"""Reading runs: what a folder holds, as objects."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from adabest.errors import InputError
from adabest.models import build_model
from adabest.registry import check_options
from adabest.runs import export
from adabest.runs import folder as files
from adabest.runs.config import CONFIG_OPTIONS, Config, is_object_name, read_toml
from adabest.runs.folder import RunFolder
from adabest.runs.interruption import resume_command
from adabest.runs.records import check_environment, check_identity, check_metrics, check_status


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
        environment: Versions, hardware, the commit and the command it was begun with.
    """

    folder: Path
    config: Config
    status: str
    round: int
    reason: str | None
    metrics: list[dict[str, Any]]
    identity: Mapping[str, Any]
    environment: Mapping[str, Any]

    @property
    def final(self) -> dict[str, Any]:
        """The last evaluated round's metrics; empty if there is none."""
        rows = [row for row in self.metrics if "diverged" not in row]
        return check_metrics(f"{self.folder / files.METRICS}: the last row", rows[-1]) if rows else {}

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
        mean, std = self._normalisation()
        with torch.no_grad():
            scores: Tensor = self.model((torch.as_tensor(inputs).to(mean.dtype) - mean) / std)
        return scores

    def load_model(self, which: str = "scored", module: nn.Module | None = None) -> nn.Module:
        """A model of a finished run.

        Args:
            which: ``scored``, ``aggregate``, ``cloud`` or, for a run with ``average_from``, ``averaged``.
            module: A module to load into, for runs whose model was a Python object.

        Raises:
            InputError: If the run isn't finished, or the model can't be rebuilt.
        """
        tensors = self._tensors(which)
        if module is None:
            if is_object_name(str(self.config.model)):
                raise InputError(f"the model of {self.folder} was a Python object: pass it again, as module=...")
            example = torch.zeros(2, *self._of_identity("input_shape"))
            module = build_model(str(self.config.model), example, self._of_identity("classes"), self.config.seed)
        try:
            module.to(self.config.dtype).load_state_dict(tensors)
        except RuntimeError as error:
            raise InputError(f"the {which} model of {self.folder} doesn't fit the module: {error}") from error
        return module.eval()

    def export(
        self,
        form: str,
        /,
        which: str = "scored",
        *,
        out: str | Path | None = None,
        overwrite: bool = False,
        module: nn.Module | None = None,
    ) -> Path:
        """Writes a model of a finished run to a file of its own.

        Args:
            form: ``safetensors``, the parameters by name, or ``onnx``, which takes inputs as they are in the data set.
            which: As for ``load_model``.
            out: The file. By default named after the run, in the working directory.
            overwrite: Whether a file that is there may be replaced.
            module: For ONNX, if the run's model was a Python object: a module of that kind.

        Returns:
            The file.

        Raises:
            InputError: If the run isn't finished, the model can't be exported, or the file can't be written.
        """
        export.check_format(form)
        tensors = self._tensors(which)
        stem = self.folder.resolve().name + ("" if which == "scored" else f"-{which}")
        path = Path(f"{stem}.{form}" if out is None else out)
        export.check_place(path, self.folder, overwrite=overwrite)
        mean, std = self._normalisation()
        metadata = self._metadata(which)
        if form == "onnx":
            shape = tuple(self._of_identity("input_shape"))
            content = export.as_onnx(self.load_model(which, module), shape, mean, std, metadata)
        else:
            content = export.as_safetensors(tensors, mean, std, metadata)
        export.write(path, content)
        return path

    def _tensors(self, which: str) -> dict[str, Tensor]:
        """The parameters of a model, by name."""
        if which not in files.MODELS:
            raise InputError(f"a run has no {which!r} model; it has {', '.join(files.MODELS)}")
        path = self.folder / files.MODELS[which]
        if not path.is_file():
            why = f"the run is {self.status}; finish it with `{resume_command(self.folder)}`"
            if self.status in files.ENDED:
                why = "it wasn't asked for (average_from), or the run ended too early for it"
            raise InputError(f"{self.folder} has no {which} model: {why}")
        try:
            return load_file(path)
        except (SafetensorError, OSError) as error:
            raise InputError(f"{path} is damaged: {error}") from error

    def _of_identity(self, name: str) -> Any:
        """Something that the run's identity says."""
        if name not in self.identity:
            raise InputError(f"{self.folder / files.IDENTITY} is missing, so the {name.replace('_', ' ')} is unknown")
        return self.identity[name]

    def _normalisation(self) -> tuple[Tensor, Tensor]:
        """What is taken from inputs, and what they are divided by."""
        try:
            mean, std = (torch.tensor(self._of_identity(key), dtype=self.config.dtype) for key in ("mean", "std"))
        except (TypeError, ValueError) as error:
            raise InputError(f"{self.folder / files.IDENTITY}: mean and std should be numbers: {error}") from error
        return mean, std

    def _metadata(self, which: str) -> dict[str, str]:
        """What an exported model tells of where it comes from: the settings that count, and what became of them."""
        # A run that diverged leaves the models of the round before, which may not have been evaluated.
        round_number = self.round - 1 if self.status == "diverged" else self.round
        evaluated = self.final.get("round") == round_number
        facts = {
            "which": which,
            "round": round_number,
            "accuracy": self.final.get(f"{which}_accuracy") if evaluated else None,
            "classes": self._of_identity("classes"),
            "input_shape": self._of_identity("input_shape"),
        }
        return {name: str(value) for name, value in {**self.config.essence(), **facts}.items() if value is not None}


def load(path: str | Path) -> Run:
    """Reads a run.

    Raises:
        InputError: If there is no run.
    """
    folder = RunFolder(Path(path))
    if not folder.holds_run():
        below = find_runs(path)[:3]
        hint = f"; there are some below it, such as {', '.join(map(str, below))}" if below else ""
        raise InputError(f"there is no run in {path} (it has no {files.CONFIG}){hint}")
    settings = read_toml(folder / files.CONFIG)
    own = {name: settings.pop(name) for name in list(settings) if name not in CONFIG_OPTIONS}
    status = check_status(str(folder / files.STATUS), folder.status())
    identity = folder.read_json(files.IDENTITY)
    if status["status"] == "running" and not folder.is_being_written():
        status["status"] = "killed"
    return Run(
        folder=Path(path),
        config=Config(**check_options(str(path), settings, CONFIG_OPTIONS, text=False), hyperparameters=own),
        status=status["status"],
        round=status["round"],
        reason=status.get("reason"),
        metrics=folder.rows(files.METRICS),
        identity={} if identity is None else check_identity(str(folder / files.IDENTITY), identity),
        environment=check_environment(str(folder / files.ENVIRONMENT), folder.read_json(files.ENVIRONMENT) or {}),
    )


def find_runs(root: str | Path) -> list[Path]:
    """The folders below ``root`` that hold a run, in alphabetical order."""
    return sorted(path.parent for path in Path(root).rglob(files.CONFIG) if RunFolder(path.parent).holds_run())
