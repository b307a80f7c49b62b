"""What each command takes.

The options of a run are the fields of ``Config`` and the hyper-parameters of the chosen algorithm, so they are put
together when the algorithm is known; a configuration file's values become the defaults.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import tyro

from adabest.algorithms.catalog import ALGORITHMS
from adabest.cli import parser
from adabest.cli.parser import Field
from adabest.costs.round_costs import costs
from adabest.experiments.default_grids import TUNING_ROUNDS
from adabest.experiments.report_page import write_report
from adabest.experiments.space import read_space, write_space
from adabest.experiments.steering_figure import illustrate
from adabest.experiments.sweep import read_vary, write_vary
from adabest.experiments.verify_call import verify
from adabest.paper.reproduce import COSTS, reproduce
from adabest.paper.specification import specification_names
from adabest.registry import Option, naming, options_of, split_specification
from adabest.runs.files.folder import MODELS
from adabest.runs.settings.algorithm_specification import algorithm_options, merge
from adabest.runs.settings.call_arguments import DEFAULT_ALGORITHMS
from adabest.runs.settings.config import BESIDE_SPECIFICATIONS, PARTITION_SETTINGS, SETTINGS, Config
from adabest.runs.settings.run_plan import check_algorithms

_OUT = "Folder to write to. By default below runs/."
_OVERWRITE = "Replace a run that lies there."
# What several runs take beside the settings of each.
_SEVERAL = {
    "seeds": Option(tuple[int, ...], ()),
    "target": Option(float | None, None),
    "lanes": Option(int | None, None),
}
_SEVERAL_HELP = {
    "seeds": "Seeds to run each with, in place of --seed, as in 0 1 2; the table has means and standard deviations.",
    "target": "Accuracy whose first round the table tells, as in 0.95. By default one that all reach.",
    "lanes": "How many runs are trained together at most; 1 for one after another. By default all.",
}

_NAMES = {"algorithms": tuple[str, ...], "out": str}


def run_fields(given: Sequence[str]) -> list[Field]:
    """A run's settings, its algorithm's own among them, and where it goes."""
    return _fields_with_algorithm(given, parser.from_file(given), {}, {})


def sweep_fields(given: Sequence[str]) -> list[Field]:
    """A run's settings, what is varied of them, and where the runs go."""
    from_file = parser.from_file(given)
    if "vary" in from_file:
        from_file["vary"] = write_vary(read_vary(from_file["vary"]))
    special = {"vary": Option(tuple[str, ...], ()), **_SEVERAL}
    help_texts = {
        "vary": "Settings and the values to try, as in beta=0.8,0.9 mu=0.02,0.05; every combination is run. "
        "Semicolons separate values that have commas.",
        **_SEVERAL_HELP,
    }
    return _fields_with_algorithm(given, from_file, special, help_texts)


def tune_fields(given: Sequence[str]) -> list[Field]:
    """A run's settings, what is tried of them, and where the runs go."""
    from_file = {"rounds": TUNING_ROUNDS, **parser.from_file(given)}
    if "vary" in from_file:
        from_file["vary"] = write_vary(read_vary(from_file["vary"]))
    if "space" in from_file:
        algorithm = parser.value_of("--algorithm", given) or from_file.get("algorithm", Config.algorithm)
        with naming(algorithm):
            from_file["space"] = write_space(read_space(from_file["space"], split_specification(algorithm)[0]))
    texts = Option(tuple[str, ...], ())
    special = {"vary": texts, "space": texts, "trials": Option(int | None, None)}
    special |= {name: option for name, option in _SEVERAL.items() if name != "target"}
    help_texts = {
        "vary": "Settings and the values to try, as in beta=0.2,0.4, in every combination. By default the paper's.",
        "space": "Settings and what they may be, for Optuna to search: beta=0:1 mu=0.001:0.1:log batch_size=16,32.",
        "trials": "How many points of the space to try. By default 30.",
        "seeds": "Seeds to run each point with, in place of --seed, as in 0 1 2; the means are compared.",
        "lanes": f"{_SEVERAL_HELP['lanes'].removesuffix('.')}, or 8 if a space is searched.",
    }
    return _fields_with_algorithm(given, from_file, special, help_texts)


def _fields_with_algorithm(
    given: Sequence[str], from_file: Mapping[str, Any], special: Mapping[str, Option], special_help: Mapping[str, str]
) -> list[Field]:
    specification = parser.value_of("--algorithm", given)
    with naming(specification, from_file.get("algorithm")):
        merged = merge(from_file, {} if specification is None else {"algorithm": specification})
        name = str(merged.get("algorithm", Config.algorithm))
        own = algorithm_options(name)
        defaults = parser.check_file(merged, {**SETTINGS, **own, **special, **_DESTINATION})
        help_texts = parser.help_texts(Config) | parser.help_texts(ALGORITHMS.find(name)) | dict(special_help)
    options = {**special, **SETTINGS, **own}
    return [_config_field(), *parser.fields(options, help_texts, defaults), *_destination_fields(defaults)]


def compare_fields(given: Sequence[str]) -> list[Field]:
    """The settings of all runs, those of the algorithms among them, and where they go."""
    from_file = parser.from_file(given)
    algorithms = parser.values_of("--algorithms", given) or from_file.get("algorithms", DEFAULT_ALGORITHMS)
    check_algorithms(algorithms)
    own: dict[str, Option] = {}
    owners: dict[str, list[str]] = {}
    help_texts = parser.help_texts(Config)
    for specification in algorithms:
        name, _ = split_specification(specification)
        with naming(name):
            its_own, its_texts = algorithm_options(name), parser.help_texts(ALGORITHMS.find(name))
        for key, option in its_own.items():
            owners.setdefault(key, []).append(name)
            # A switch can't be left open, so it shows its default, unless the algorithms have different ones.
            switch = option.type is bool and own.get(key, option) == option
            own[key] = option if switch else Option(option.type | None, None)
        help_texts = its_texts | help_texts
    shared = {name: option for name, option in SETTINGS.items() if name != "algorithm"}
    special = {"algorithms": Option(tuple[str, ...], DEFAULT_ALGORITHMS), **_SEVERAL}
    help_texts |= {
        key: f"{help_texts.get(key, '')} For {', '.join(names)}, each with a default of its own.".strip()
        for key, names in owners.items()
    }
    help_texts |= {"algorithms": "What to compare: names with options, as in adabest,beta=0.9.", **_SEVERAL_HELP}
    defaults = parser.check_file(from_file, {**shared, **own, **special, **_DESTINATION})
    return [
        _config_field(),
        *parser.fields({**special, **shared, **own}, help_texts, defaults),
        *_destination_fields(defaults),
    ]


def partition_fields() -> list[Field]:
    """The settings that a partition depends on, and where its figure goes."""
    options = {name: SETTINGS[name] for name in PARTITION_SETTINGS}
    out = ("out", Annotated[str, tyro.conf.arg(help="Figure to write, without ending.")], "partition")
    return [*parser.fields(options, parser.help_texts(Config), {}), out]


def resume_fields() -> list[Field]:
    """The run's folder, where its data are, if they have moved, and what of it may be imported."""
    help_text = "Go on with a run of version 0.4.0, or one that lost its manifest, though nothing proves its files."
    unverified = parser.fields({"unverified": Option(bool, False)}, {"unverified": help_text}, {})
    return [*folder_field(), *_data_dir_field(), *_allowed_fields(), *unverified]


def datasets_fields() -> list[Field]:
    """Where data lie, and what of them is to be downloaded."""
    help_text = "Data sets to download first, if they aren't there."
    fetch = ("fetch", Annotated[tuple[str, ...], tyro.conf.arg(help=help_text, help_behavior_hint="")], ())
    return [*_data_dir_field(), fetch]


def _data_dir_field() -> list[Field]:
    return parser.fields({"data_dir": SETTINGS["data_dir"]}, parser.help_texts(Config), {})


def cost_fields() -> list[Field]:
    """What the costs of a round depend on, as Python takes it, but for objects."""
    options = options_of(costs)
    options |= {name: Option(str | None, None) for name in ("model", "input_shape", "out")}
    options["algorithms"] = Option(tuple[str, ...], tuple(ALGORITHMS.builtin))
    return parser.fields(options, parser.help_texts(costs), {})


def illustrate_fields() -> list[Field]:
    """What ``adabest.illustrate`` takes."""
    options = options_of(illustrate)
    # What the command line has are names.
    options |= {name: Option(kind, options[name].default) for name, kind in _NAMES.items()}
    return parser.fields(options, parser.help_texts(illustrate), {})


def reproduce_fields() -> list[Field]:
    """Which experiment, how much of it, and how it is executed."""
    names = ", ".join([*specification_names(), COSTS])
    hint = tyro.conf.arg(help=f"The experiment: {names}.", metavar="NAME")
    options = {
        "cells": Option(tuple[str, ...], ()),
        "entries": Option(tuple[str, ...], ()),
        "seeds": Option(tuple[int, ...], ()),
        "rounds": Option(int | None, None),
        "choices": Option(str | None, None),
        "results": Option(tuple[str, ...] | None, None),
        "lanes": Option(int | None, None),
        "out": Option(str | None, None),
    }
    # What the specification says counts, unless something else is asked for.
    execution = {name: Option(SETTINGS[name].type | None, None) for name in BESIDE_SPECIFICATIONS}
    help_texts = parser.help_texts(Config) | parser.help_texts(reproduce)
    return [
        ("name", Annotated[str, tyro.conf.Positional, hint], dataclasses.MISSING),
        *parser.fields({**options, **execution}, help_texts, {}),
    ]


def folder_field(default: Any = dataclasses.MISSING) -> list[Field]:
    """A folder, given by its place."""
    help_text = "The folder."
    metavar = "FOLDER" if default is dataclasses.MISSING else "[FOLDER]"
    return [("folder", Annotated[str, tyro.conf.Positional, tyro.conf.arg(help=help_text, metavar=metavar)], default)]


def export_fields() -> list[Field]:
    """Which model of a run goes where, and in what form."""
    options = {
        "format": Option(Literal["safetensors", "onnx"], dataclasses.MISSING),
        "which": Option(Literal.__getitem__(tuple(MODELS)), "scored"),
        **_DESTINATION,
    }
    help_texts = {
        "format": "safetensors: the parameters by name. onnx: a model that takes inputs as they are in the data set.",
        "which": "Which of the run's models.",
        "out": "File to write. By default named after the run.",
        "overwrite": "Replace a file that is there.",
    }
    return [*folder_field(), *parser.fields(options, help_texts, {}), *_allowed_fields()]


def verify_fields() -> list[Field]:
    """What is looked at."""
    hint = tyro.conf.arg(help=parser.help_texts(verify)["paths"], metavar="RUNS", help_behavior_hint="")
    return [("paths", Annotated[tuple[str, ...], tyro.conf.Positional, hint], dataclasses.MISSING)]


def report_fields() -> list[Field]:
    """Which runs are shown, and where the page goes."""
    options = options_of(write_report)
    options["html"] = Option(str, options["html"].default)
    options["allow"] = _ALLOWED["allow"]
    help_texts = parser.help_texts(write_report)
    del options["folders"]
    hint = tyro.conf.arg(help=help_texts["folders"], metavar="RUNS", help_behavior_hint="")
    runs = ("runs", Annotated[tuple[str, ...], tyro.conf.Positional, hint], dataclasses.MISSING)
    return [runs, *parser.fields(options, help_texts, {})]


def _config_field() -> Field:
    help_text = "A TOML file whose settings are the defaults of the options below; it comes first."
    hint = tyro.conf.arg(help=help_text, metavar="[CONFIG.TOML]", help_behavior_hint="")
    return ("config", Annotated[str | None, tyro.conf.Positional, hint], None)


_ALLOWED = {"allow": Option(tuple[str, ...], ()), "trust": Option(bool, False)}


def _allowed_fields() -> list[Field]:
    help_texts = {
        "allow": "Names in the run's files that may be imported, as in my_module:MyAlgorithm. By default none.",
        "trust": "Import whatever the files name, since you know where they come from.",
    }
    return parser.fields(_ALLOWED, help_texts, {})


_DESTINATION = {"out": Option(str | None, None), "overwrite": Option(bool, False)}


def _destination_fields(defaults: Mapping[str, Any]) -> list[Field]:
    return parser.fields(_DESTINATION, {"out": _OUT, "overwrite": _OVERWRITE}, defaults)
