"""Resolution: settings become a complete configuration and the objects that it names."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.nn import functional

from adabest.algorithms.base import Algorithm
from adabest.data.dataset import Dataset
from adabest.data.loading import load_dataset
from adabest.engine.gpu.kernels.compiler import begin_device
from adabest.errors import InputError
from adabest.models.factory import Factory
from adabest.registry import also_named, check_options, is_own_name, options_of, split_specification, stands_for
from adabest.runs.settings.algorithm_specification import build_algorithm, check_algorithm, check_settings
from adabest.runs.settings.checks import check_ranges, refuse_absurd
from adabest.runs.settings.completion import complete
from adabest.runs.settings.config import COMPONENTS, SETTINGS, Config
from adabest.runs.settings.object_names import is_object, name_of, names_of
from adabest.runs.settings.placeholders import OBJECT, is_object_name, refuse_placeholder
from adabest.tasks.classification import LOSSES, Loss
from adabest.tasks.objectives.base import Objective
from adabest.tasks.objectives.catalog import check_objective, make_objective
from adabest.tasks.own_metrics import OwnMetric, make_own_metrics


@dataclasses.dataclass(frozen=True)
class Components:
    """The objects that a configuration's names stand for; no loss if it is the task's own."""

    dataset: Dataset
    algorithm: Algorithm
    model: str | nn.Module | Factory
    loss: Loss | None
    task: Objective
    metrics: tuple[OwnMetric, ...] = ()

    @property
    def outputs(self) -> int:
        """The number that model factories get as ``classes``."""
        return self.task.outputs(self.dataset)

    def check_output(self, shape: tuple[int, ...]) -> None:
        """Refuses a model by the shape of what it gives for one sample."""
        self.task.check_output(shape, self.dataset)


def resolve(
    settings: Mapping[str, Any], loaded: Dataset | None = None, names: Mapping[str, str] | None = None
) -> tuple[Config, Components]:
    """Turns settings into a complete configuration and the objects it names.

    Args:
        settings: Names and values. For ``dataset``, ``algorithm``, ``model``, ``loss`` and ``task`` the value may be an
            object.
        loaded: The data set that the settings name, if it has been loaded already.
        names: What objects among the settings are called in the configuration. By default a name is made up for each.

    Raises:
        InputError: For an unknown name, a wrong type or a value out of range; the message has the nearest right name.
    """
    own_metrics, settings = _own_metrics(settings)
    objects = {key: settings[key] for key in COMPONENTS if is_object(settings, key)}
    plain = {name: value for name, value in settings.items() if name not in objects}
    if "algorithm" in objects:
        algorithm = check_algorithm(objects["algorithm"])
        checked = check_settings(plain, SETTINGS)
    else:
        algorithm, checked = build_algorithm(plain)
    config = Config(**checked)
    if config.device.startswith("cuda"):
        begin_device(config.device)  # while the data are read
    dataset = _check_dataset(objects["dataset"]) if "dataset" in objects else loaded
    if dataset is None:
        dataset = load_dataset(refuse_placeholder("dataset", config.dataset), config.data_dir)
    also_named(dataset.defaults.model)  # no file has a say in it: code that is running did
    model = objects.get("model", refuse_placeholder("model", config.model or dataset.defaults.model))
    if not (isinstance(model, str | nn.Module) or callable(model)):
        raise InputError(f"model should be a name, an nn.Module or a function, not a {type(model).__name__}")
    task = check_objective(objects.get("task") or make_objective(refuse_placeholder("task", config.task)))
    task.check_data(dataset)
    loss = objects.get("loss")
    if loss is None:
        refuse_placeholder("loss", config.loss or "")
    config = complete(config, dataset, algorithm, names_of(objects, dataset) | dict(names or {}))
    if loss is None and config.loss is not None:
        loss = LOSSES.find(config.loss)
    if loss is functional.cross_entropy and dataset.y_train.is_floating_point():
        raise InputError(
            f"loss cross-entropy: it is that of classes, and y_train of data set {dataset.name} holds "
            f"{dataset.y_train.dtype}, which torch would take for their probabilities; leave --loss out"
        )
    check_ranges(config)
    if config.stop_at is not None:
        task.metrics[0].check_value("stop_at", config.stop_at)
    refuse_absurd(config, dataset)
    return config, Components(dataset, algorithm, model, loss, task, make_own_metrics(own_metrics, task))


_MAKERS = {"datasets": "from_huggingface", "pandas": "from_frame", "polars": "from_frame"}


def _check_dataset(thing: Any) -> Dataset:
    """Refuses an object that isn't a data set; the message names the function that makes one of it."""
    if isinstance(thing, Dataset):
        return thing
    package = type(thing).__module__.partition(".")[0]
    kind = type(thing).__name__ if package in ("builtins", "adabest") else f"{package} {type(thing).__name__}"
    maker = _MAKERS.get(package, "from_arrays")
    arguments = "x_train, y_train, x_test, y_test" if maker == "from_arrays" else "…"
    raise InputError(
        f"dataset should be a name or a Dataset, not a {kind}; adabest.{maker}({arguments}) makes one of "
        f"{'arrays' if maker == 'from_arrays' else 'it'}"
    )


def _own_metrics(settings: Mapping[str, Any]) -> tuple[list[Any], Mapping[str, Any]]:
    """The metrics of the user's own, and the settings with a name in place of each that is a function."""
    given = settings.get("metrics", ())
    if not isinstance(given, list | tuple):
        return [given], settings
    functions = [one.function if isinstance(one, OwnMetric) else one for one in given]
    names = [one if isinstance(one, str) else OBJECT + name_of(one) for one in functions]
    for name, function in zip(names, functions, strict=True):
        if isinstance(function, str):
            refuse_placeholder("metrics", name)
    return functions, {**settings, "metrics": names} if names else settings


def resolve_again(
    stored: Mapping[str, Any], objects: Mapping[str, Any], data_dir: str | None = None
) -> tuple[Config, Components]:
    """Turns the stored settings of a run into what they were.

    Args:
        stored: The settings of a complete configuration.
        objects: Objects for ``dataset``, ``algorithm``, ``model``, ``loss`` or ``task``; those are used that have no
            importable name, or one of the user's own, which then needn't be imported. A data set is always used, so
            that it needn't be loaded again, or not from where it once was.
        data_dir: The folder of the official data files, if they have moved.

    Raises:
        InputError: If an object is missing, or isn't the one that the run began with.
    """
    used, names = {}, {}
    for key, value in objects.items():
        name = str(stored.get(key, ""))
        if is_object_name(name):
            used[key] = value
        elif is_object(objects, key) and (isinstance(value, Dataset) or is_own_name(name)):
            used[key], names[key] = _same_object(key, value, name), name
    if any(map(is_object_name, stored.get("metrics", ()))):
        again = objects.get("metrics", ())
        if len(again) == len(stored["metrics"]):  # those with a name are found by it
            pairs = zip(stored["metrics"], again, strict=True)
            used["metrics"] = [one if is_object_name(name) else name for name, one in pairs]
    settings = {**stored, **used} | ({} if data_dir is None else {"data_dir": data_dir})
    if "algorithm" in used:
        settings = {name: value for name, value in settings.items() if name in SETTINGS}
    config, components = resolve(settings, names=names)
    now = config.flat()
    changed = {name for name, value in stored.items() if now.get(name) != value and name != "data_dir"}
    if changed:
        raise InputError(
            f"this isn't what the run began with: {', '.join(sorted(changed))} differs from its configuration"
        )
    return config, components


def _same_object(key: str, value: Any, specification: str) -> Any:
    """An object in place of a name in a stored configuration.

    Raises:
        InputError: If it isn't what the name says. A data set is told by its fingerprint, when the run goes on.
    """
    if key == "dataset":
        return value
    name, options = split_specification(specification)
    plain = value.func if isinstance(value, functools.partial) else value
    meant = (
        [type(value)] if key in ("algorithm", "task") else [value, plain, type(plain)] if key == "model" else [value]
    )
    if not any(stands_for(name, thing) for thing in meant):
        raise InputError(f"this isn't what the run began with: its {key} is {name}, not {name_of(value)}")
    if key == "model" and options and not isinstance(value, nn.Module):
        checked = check_options(f"model {name!r}", options, options_of(plain, skip=2))
        return functools.partial(plain, **checked)
    return value
