"""Stored runs: a run's folder, read into a ``Run`` object."""

import functools
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from torch import Tensor, nn

from adabest.data.dataset import id_example
from adabest.engine.gate import Rejection
from adabest.errors import InputError
from adabest.machine import refuse_beyond_memory
from adabest.models.factory import build_model
from adabest.models.forward_pass import class_scores
from adabest.models.group_norm import replace_batch_norm
from adabest.registry import Named, check_options, named_now, naming
from adabest.runs import export
from adabest.runs.files import folder as files
from adabest.runs.files.folder import RunFolder
from adabest.runs.files.manifest import (
    Manifest,
    find_standing,
    prove_metrics,
    prove_settings,
    read_manifest,
    read_proven,
)
from adabest.runs.files.metrics_file import MetricsFile, Points
from adabest.runs.files.records import check_clients, check_environment, check_identity, check_metrics
from adabest.runs.settings.config import SETTINGS, Config
from adabest.runs.settings.placeholders import is_object_name
from adabest.runs.settings.toml_file import read_toml
from adabest.stop_requests import resume_command
from adabest.tasks.objectives.metric import ACCURACY, Metric


@dataclass(frozen=True)
class Run:
    """A run, as read from its folder.

    Attributes:
        folder: The folder.
        config: Its complete configuration.
        status: ``running``, ``interrupted``, ``killed``, ``finished`` or ``diverged``.
        round: The last round if it is finished, the last checkpointed one if not, or the one it diverged in.
        reason: Why it diverged, or ended before its last round, if it did.
        measured: The file of its metrics, read on first use.
        identity: Fingerprints and the partition's statistics.
        environment: Versions, hardware, the commit and the command it was begun with.
    """

    folder: Path
    config: Config
    status: str
    round: int
    reason: str | None
    measured: MetricsFile
    identity: Mapping[str, Any]
    environment: Mapping[str, Any]
    _manifest: Manifest | None = field(default=None, repr=False, compare=False)
    # The names that the call which made or loaded the run had allowed: without them, a model that is a
    # ``module:attribute`` couldn't be imported once that call is over.
    _named: Named = field(default_factory=named_now, repr=False, compare=False)

    @functools.cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """One row per evaluated round. Of a long run, ``final``, ``curve`` and ``points`` cost far less."""
        return self.measured.rows()

    @property
    def final(self) -> dict[str, Any]:
        """The last evaluated round's metrics; empty if there is none."""
        row = self.measured.last()
        return check_metrics(f"{self.measured.path}: the last row", row, self.judged_by) if row else {}

    @property
    def algorithm(self) -> str:
        """The name of its algorithm, without settings."""
        return self.config.algorithm

    @property
    def score(self) -> str:
        """The model that tables speak of."""
        return self.config.score

    @property
    def metric(self) -> Metric:
        """What tables speak of: accuracy, or the first metric of the task."""
        return self.judged_by[0]

    @property
    def judged_by(self) -> tuple[Metric, ...]:
        """What models are judged by."""
        return tuple(Metric(**stored) for stored in self.identity.get("metrics", ())) or (ACCURACY,)

    @property
    def rejections(self) -> list[Rejection]:
        """The replies that were left out, each with its round, its client and the reason."""
        return list(self.measured.notes().rejections)

    @property
    def skips(self) -> list[int]:
        """The rounds that were skipped since no reply was accepted."""
        return list(self.measured.notes().skips)

    def curve(self, name: str) -> tuple[list[int], list[float]]:
        """A metric over rounds, where it was measured: rounds and values."""
        return self.measured.curve(name)

    def points(self, name: str) -> Points:
        """A metric over rounds, where it was measured, as arrays."""
        return self.measured.points(name)

    @functools.cached_property
    def model(self) -> nn.Module:
        """The scored model. It takes normalised inputs; ``predict`` takes inputs as they are in the data set."""
        return self.load_model()

    def predict(self, inputs: Any) -> Tensor:
        """Class scores of the scored model for inputs as they are in the data set, samples first."""
        mean, std = self._normalisation()
        given = torch.as_tensor(inputs)
        if self._id_range() is None:
            given = (given.to(mean.dtype) - mean) / std
        elif given.is_floating_point():
            raise InputError(f"the model of {self.folder} takes ids: whole numbers, not {given.dtype}")
        with torch.no_grad():
            scores: Tensor = class_scores(self.model(given))
        return scores

    def load_model(self, which: str = "scored", module: nn.Module | None = None) -> nn.Module:
        """A model of a finished run.

        Args:
            which: ``scored``, ``aggregate``, ``cloud`` or, for a run with ``average_from``, ``averaged``.
            module: A module to load into, for runs whose model was a Python object.

        Raises:
            InputError: If the run isn't finished, or the model can't be rebuilt: then its name, if it is one of the
                form ``module:attribute``, must be allowed where the run is loaded.
        """
        tensors = self._tensors(which)
        if module is None:
            if is_object_name(str(self.config.model)):
                raise InputError(f"the model of {self.folder} was a Python object: pass it again, as module=...")
            example = self._example()
            classes = self._of_identity("classes")
            with naming(*self._named.names, trust=self._named.everything):
                module = build_model(
                    str(self.config.model),
                    example,
                    classes,
                    self.config.seed,
                    self.config.batch_norm,
                    check_output=lambda shape: None,
                )
        elif self.config.batch_norm == "group":
            module = replace_batch_norm(module)
        try:
            module.to(self.config.dtype).load_state_dict(tensors)
        except RuntimeError as error:
            raise InputError(f"the {which} model of {self.folder} doesn't fit the module: {error}") from error
        return module.eval()

    def local_results(self) -> dict[str, list[Any]]:
        """The clients of a finished run with ``local_test``: columns by name, with None where there is no number.

        Raises:
            InputError: If the run has no such results.
        """
        content = read_proven(RunFolder(self.folder), self._manifest, files.CLIENTS)
        if content is None:
            why = "it had no --local-test" if self.config.local_test is None else f"it is {self.status}"
            raise InputError(f"{self.folder} has no results client by client: {why}")
        return check_clients(str(self.folder / files.CLIENTS), json.loads(content))

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
            content = export.as_onnx(self.load_model(which, module), self._example(), mean, std, metadata)
        else:
            content = export.as_safetensors(tensors, mean, std, metadata)
        export.write(path, content)
        return path

    def _tensors(self, which: str) -> dict[str, Tensor]:
        """The parameters of a model, by name."""
        if which not in files.MODELS:
            raise InputError(f"a run has no {which!r} model; it has {', '.join(files.MODELS)}")
        path = self.folder / files.MODELS[which]
        content = read_proven(RunFolder(self.folder), self._manifest, files.MODELS[which])
        if content is None:
            why = f"the run is {self.status}; finish it with `{resume_command(self.folder)}`"
            if self.status in files.ENDED:
                why = "it wasn't asked for (average_from), or the run ended too early for it"
                if which == "scored":
                    why = "its clients' models can't be told from their replies; its aggregate model takes its place"
            raise InputError(f"{self.folder} has no {which} model: {why}")
        try:
            return parse_tensors(content)
        except (SafetensorError, ValueError) as error:
            raise InputError(f"{path} is damaged: {error}") from error

    def _of_identity(self, name: str) -> Any:
        """A field of the run's identity."""
        if name not in self.identity:
            raise InputError(f"{self.folder / files.IDENTITY} is missing, or doesn't say {name!r}")
        return self.identity[name]

    def _example(self) -> Tensor:
        """Two inputs as the model gets them."""
        shape = tuple(self._of_identity("input_shape"))
        inputs = {f"two inputs of {math.prod(shape):,} numbers": 16 * math.prod(shape)}
        refuse_beyond_memory(f"{self.folder / files.IDENTITY}", inputs, "bring back a good copy")
        ids = self._id_range()
        return torch.zeros(2, *shape, dtype=torch.float32) if ids is None else id_example(ids, shape)

    def _id_range(self) -> tuple[int, int] | None:
        """The lowest and the highest id of the data set; None if its inputs aren't ids."""
        found = self.identity.get("ids")
        return None if found is None else (found[0], found[1])

    def _normalisation(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the inputs."""
        try:
            mean, std = (torch.tensor(self._of_identity(key), dtype=self.config.dtype) for key in ("mean", "std"))
        except (TypeError, ValueError) as error:
            raise InputError(f"{self.folder / files.IDENTITY}: mean and std should be numbers: {error}") from error
        return mean, std

    def _metadata(self, which: str) -> dict[str, str]:
        """The metadata of an exported model: settings that its result depends on, round and first metric."""
        # A run that diverged leaves the models of the round before, which may not have been evaluated.
        round_number = self.round - 1 if self.status == "diverged" else self.round
        evaluated = self.final.get("round") == round_number
        facts = {
            "which": which,
            "round": round_number,
            self.metric.name: self.final.get(f"{which}_{self.metric.name}") if evaluated else None,
            "classes": self._of_identity("classes"),
            "input_shape": self._of_identity("input_shape"),
        }
        return {name: str(value) for name, value in {**self.config.essence(), **facts}.items() if value is not None}


def read_run(path: str | Path) -> Run:
    """Reads a run.

    Raises:
        InputError: If there is no run.
    """
    folder = RunFolder(Path(path))
    folder.settle()
    if not folder.holds_run():
        below = find_runs(path)[:3]
        hint = f"; there are some below it, such as {', '.join(map(str, below))}" if below else ""
        raise InputError(f"there is no run in {path} (it has no {files.CONFIG}){hint}")
    manifest = read_manifest(folder)
    standing = find_standing(folder, manifest)
    if manifest is not None and not manifest.has_ended() and not standing.is_live:
        manifest = read_manifest(folder)  # again: the run may have ended between the first reading and the lock's check
        standing = find_standing(folder, manifest)
    settings = read_toml(folder / files.CONFIG)
    prove_settings(folder, manifest, settings)
    own = {name: settings.pop(name) for name in list(settings) if name not in SETTINGS}
    measured = MetricsFile(folder / files.METRICS)
    if manifest is None or standing.is_live:
        measured = measured.checked()
    else:
        prove_metrics(folder, manifest.metrics, exactly=manifest.has_ended())
        measured = MetricsFile(folder / files.METRICS, manifest.metrics.length)
    return Run(
        folder=Path(path),
        config=Config(**check_options(str(path), settings, SETTINGS, text=False), hyperparameters=own),
        status=standing.status,
        round=standing.round,
        reason=standing.reason,
        measured=measured,
        identity=_object(folder, manifest, files.IDENTITY, check_identity),
        environment=_object(folder, manifest, files.ENVIRONMENT, check_environment),
        _manifest=manifest,
    )


def _object(
    folder: RunFolder, manifest: Manifest | None, name: str, check: Callable[[str, Any], dict[str, Any]]
) -> dict[str, Any]:
    content = read_proven(folder, manifest, name)
    return {} if content is None else check(str(folder / name), files.parse_object(folder / name, content))


def find_runs(root: str | Path) -> list[Path]:
    """The folders in ``root`` or below it that hold a run, in alphabetical order. Links to folders aren't followed."""
    found = set()
    for place, below, names in os.walk(root):
        folder = Path(place)
        if {files.CONFIG, files.MANIFEST} & set(names) and RunFolder(folder).holds_run():
            # A run that was set aside when the process that replaced it was killed comes back once its folder is read.
            found.add(folder.parent if folder.name in files.HIDDEN else folder)
            below[:] = [name for name in below if not files.is_ours(name)]  # trackers keep thousands of files
    return sorted(found)
