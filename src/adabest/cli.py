"""The command line: parses, calls, prints.

The options of a run are the fields of ``Config`` and the hyper-parameters of the chosen algorithm, so the parser is
built when the algorithm is known; a configuration file's values become the defaults.
"""

import dataclasses
import io
import itertools
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import docstring_parser
import tyro
from rich.console import Console

from adabest import api, report, runs
from adabest.algorithms import ALGORITHMS
from adabest.errors import InputError, Interrupted
from adabest.experiments import DEFAULT_ALGORITHMS, check_algorithms
from adabest.registry import Option, check_options, split_specification
from adabest.runs.config import CONFIG_OPTIONS, Config, algorithm_options, merge, read_toml, refuse_unknown

DONE, BAD_INPUT, DIVERGED, INTERRUPTED = 0, 2, 3, 130

_OUT = "Folder to write to. By default below runs/."
_OVERWRITE = "Replace a run that lies there."
_PARTITION_OPTIONS = (
    "dataset",
    "clients",
    "validation_clients",
    "partition",
    "alpha",
    "unbalance",
    "seed",
    "partition_seed",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code: 0 done, 2 bad input, 3 diverged, 130 interrupted."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--version"]:
        print(f"adabest {version('adabest')}")
        return DONE
    sys.path.append(os.getcwd())  # so that my_module:MyAlgorithm is found where the user is
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a code page without ‖θ‖ must not end in a traceback
    warnings.formatwarning = lambda message, *_, **__: f"adabest: {message}\n"
    try:
        command: Callable[[], int] = tyro.extras.subcommand_cli_from_dict(
            _commands(given),
            prog="adabest",
            description="A federated-learning simulator. Each command has its own --help; --version tells the version.",
            args=given or ["--help"],
        )
        return command()
    except (InputError, Interrupted) as error:
        print(f"adabest: {error}", file=sys.stderr)
        return INTERRUPTED if isinstance(error, Interrupted) else BAD_INPUT
    except KeyboardInterrupt:
        print("adabest: interrupted; a run that was begun can be resumed", file=sys.stderr)
        return INTERRUPTED


def _commands(given: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """The commands, each as a function that tyro can read and that returns what is to be done."""
    command = given[0] if given else ""
    return {
        "run": _command(_run, "Run one algorithm.", _run_fields(given if command == "run" else [])),
        "compare": _command(
            _compare,
            "Run several algorithms on the same clients, then write a table and a figure. What is there is resumed.",
            _compare_fields(given if command == "compare" else []),
        ),
        "resume": _command(_resume, "Continue a run, or a comparison, from its last checkpoint.", _folder_field()),
        "list": _command(_list, "List the runs below a folder.", _folder_field("runs")),
        "show": _command(_show, "Show a run's settings and results.", _folder_field()),
        "partition": _command(
            _partition, "Show how a data set is dealt to clients: statistics and a heat map.", _partition_fields()
        ),
    }


# ---------------------------------------------------------------------------------------------------------- commands


def _run(arguments: Any) -> int:
    settings = _given(arguments)
    settings["algorithm"], _ = split_specification(settings["algorithm"])  # its options are the defaults of their own
    return _tell_run(api.run(**settings))


def _tell_run(run: runs.Run) -> int:
    console = _console()
    if run.status == "diverged":
        console.print(
            f"Diverged in round {run.round}: {run.reason}. The models of the round before are in {run.folder}"
        )
        return DIVERGED
    final = run.final
    console.print(
        f"Round {final['round']}: accuracy {100 * final['scored_accuracy']:.2f} % (scored), "
        f"{100 * final['aggregate_accuracy']:.2f} % (aggregate), {100 * final['cloud_accuracy']:.2f} % (cloud)"
    )
    console.print(f"Written to {run.folder}")
    return DONE


def _compare(arguments: Any) -> int:
    return _tell_comparison(api.compare(**_given(arguments)))


def _tell_comparison(comparison: api.Comparison) -> int:
    console = _console()
    console.print(comparison.table.rich())
    for path in comparison.files:
        console.print(f"Written: {path}")
    return DIVERGED if any(run.status == "diverged" for run in comparison.runs.values()) else DONE


def _resume(arguments: Any) -> int:
    if api.is_comparison(arguments.folder):
        return _tell_comparison(api.resume_comparison(arguments.folder))
    return _tell_run(api.resume(arguments.folder))


def _list(arguments: Any) -> int:
    found = runs.find_runs(arguments.folder)
    if not found:
        raise InputError(f"there are no runs below {arguments.folder}")
    loaded = []
    for path in found:
        try:
            loaded.append(runs.load(path))
        except InputError as error:
            print(f"adabest: {error}", file=sys.stderr)
    _console().print(report.runs_table(loaded).rich())
    return DONE


def _show(arguments: Any) -> int:
    run = runs.load(arguments.folder)
    console = _console()
    console.print(report.facts_table(run.config.flat(), "settings").rich())
    if run.identity:
        console.print(report.facts_table(run.identity["partition"], "partition").rich())
    console.print(report.facts_table({"status": run.status, "round": run.round, **run.final}, "result").rich())
    return DONE


def _partition(arguments: Any) -> int:
    settings = _given(arguments)
    out = Path(settings.pop("out"))
    config, components = runs.resolve(settings)
    partition = runs.cut_partition(config, components)
    statistics = runs.partition_statistics(partition)
    title = f"{config.dataset}, {config.partition}, mean label entropy {partition.label_entropy:.2f}"
    console = _console()
    console.print(report.facts_table(statistics, "partition").rich())
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        written = report.save_figure(report.partition_figure(partition, title), out)
    except OSError as error:
        raise InputError(f"can't write the figure {out}: {error.strerror or error}") from error
    for path in written:
        console.print(f"Written: {path}")
    return DONE


def _console() -> Console:
    """Prints text as it is: no markup, no colours in it, and paths stay in one piece."""
    return Console(markup=False, highlight=False, soft_wrap=True)


def _given(arguments: Any) -> dict[str, Any]:
    """The arguments that have a value; the others are left to their defaults."""
    values = {field.name: getattr(arguments, field.name) for field in dataclasses.fields(arguments)}
    return {name: value for name, value in values.items() if value is not None and name != "config"}


# ------------------------------------------------------------------------------------------------------------ parser

Field = tuple[str, Any, Any]


def _run_fields(given: Sequence[str]) -> list[Field]:
    from_file = _from_file(given)
    specification = _value_of("--algorithm", given)
    merged = merge(from_file, {} if specification is None else {"algorithm": specification})
    name = str(merged.get("algorithm", Config.algorithm))
    own = algorithm_options(name)
    defaults = _check_file(merged, {**CONFIG_OPTIONS, **own, **_DESTINATION})
    help_texts = _help_texts(Config) | _help_texts(ALGORITHMS.find(name))
    return [_config_field(), *_fields({**CONFIG_OPTIONS, **own}, help_texts, defaults), *_destination_fields(defaults)]


def _compare_fields(given: Sequence[str]) -> list[Field]:
    from_file = _from_file(given)
    algorithms = _values_of("--algorithms", given) or from_file.get("algorithms", DEFAULT_ALGORITHMS)
    check_algorithms(algorithms)
    own: dict[str, Option] = {}
    owners: dict[str, list[str]] = {}
    help_texts = _help_texts(Config)
    for specification in algorithms:
        name, _ = split_specification(specification)
        for key, option in algorithm_options(name).items():
            owners.setdefault(key, []).append(name)
            # A switch can't be left open, so it shows its default, unless the algorithms have different ones.
            switch = option.type is bool and own.get(key, option) == option
            own[key] = option if switch else Option(option.type | None, None)
        help_texts = _help_texts(ALGORITHMS.find(name)) | help_texts
    shared = {name: option for name, option in CONFIG_OPTIONS.items() if name != "algorithm"}
    special = {"algorithms": Option(tuple[str, ...], DEFAULT_ALGORITHMS), "target": Option(float | None, None)}
    help_texts |= {
        key: f"{help_texts.get(key, '')} For {', '.join(names)}, each with a default of its own.".strip()
        for key, names in owners.items()
    }
    help_texts |= {
        "algorithms": "What to compare: names with options, as in adabest,beta=0.9.",
        "target": "Accuracy whose first round the table tells, as in 0.95. By default one that all reach.",
    }
    defaults = _check_file(from_file, {**shared, **own, **special, **_DESTINATION})
    return [
        _config_field(),
        *_fields({**special, **shared, **own}, help_texts, defaults),
        *_destination_fields(defaults),
    ]


def _partition_fields() -> list[Field]:
    options = {name: CONFIG_OPTIONS[name] for name in _PARTITION_OPTIONS}
    out = ("out", Annotated[str, tyro.conf.arg(help="Figure to write, without ending.")], "partition")
    return [*_fields(options, _help_texts(Config), {}), out]


def _folder_field(default: Any = dataclasses.MISSING) -> list[Field]:
    help_text = "The folder."
    metavar = "FOLDER" if default is dataclasses.MISSING else "[FOLDER]"
    return [("folder", Annotated[str, tyro.conf.Positional, tyro.conf.arg(help=help_text, metavar=metavar)], default)]


def _config_field() -> Field:
    help_text = "A TOML file whose settings are the defaults of the options below; it comes first."
    hint = tyro.conf.arg(help=help_text, metavar="[CONFIG.TOML]", help_behavior_hint="")
    return ("config", Annotated[str | None, tyro.conf.Positional, hint], None)


_DESTINATION = {"out": Option(str | None, None), "overwrite": Option(bool, False)}


def _destination_fields(defaults: Mapping[str, Any]) -> list[Field]:
    return _fields(_DESTINATION, {"out": _OUT, "overwrite": _OVERWRITE}, defaults)


def _fields(options: Mapping[str, Option], help_texts: Mapping[str, str], defaults: Mapping[str, Any]) -> list[Field]:
    fields = []
    for name, option in options.items():
        default = defaults.get(name, option.default)
        # A default of None means "decided later", which the help text says in words.
        unset: dict[str, Any] = {"help_behavior_hint": "", "metavar": _metavar(option.type)} if default is None else {}
        fields.append((name, Annotated[option.type, tyro.conf.arg(help=help_texts.get(name, ""), **unset)], default))
    return fields


def _metavar(annotation: Any) -> str | None:
    """How the value of an option that may be left open is shown: its type, without the None."""
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
    if len(kinds) == 1 and get_origin(kinds[0]) is Literal:
        return "{" + ",".join(map(str, get_args(kinds[0]))) + "}"
    return kinds[0].__name__.upper() if len(kinds) == 1 and isinstance(kinds[0], type) else None


def _command(action: Callable[[Any], int], description: str, fields: Iterable[Field]) -> Callable[..., Any]:
    """A function of one dataclass, which tyro reads as the options of a subcommand."""
    kind = dataclasses.make_dataclass(
        "Arguments",
        [
            (name, annotation)
            if default is dataclasses.MISSING
            else (name, annotation, dataclasses.field(default=default))
            for name, annotation, default in fields
        ],
        kw_only=True,
    )

    def parsed(arguments: Any) -> Callable[[], int]:
        return lambda: action(arguments)

    parsed.__doc__ = description
    parsed.__annotations__ = {"arguments": Annotated[kind, tyro.conf.arg(name="")]}
    return parsed


def _help_texts(kind: type) -> dict[str, str]:
    """What a class's docstring says about its attributes."""
    return {
        parameter.arg_name: " ".join((parameter.description or "").split())
        for parameter in docstring_parser.parse(kind.__doc__ or "", docstring_parser.DocstringStyle.GOOGLE).params
    }


# ------------------------------------------------------------------------------------------------ configuration file


def _from_file(given: Sequence[str]) -> dict[str, Any]:
    """The settings of the configuration file, if the first argument of the command is one.

    Raises:
        InputError: If the file can't be read, or stands elsewhere, where its settings would come too late to count.
    """
    late = [
        argument
        for before, argument in itertools.pairwise(given[1:])
        if argument.endswith(".toml") and not (before.startswith("--") and "=" not in before) and "=" not in argument
    ]
    if late:
        raise InputError(f"the configuration file {late[0]} must come first: adabest {given[0]} {late[0]} ...")
    if len(given) < 2 or given[1].startswith("-"):
        return {}
    return read_toml(Path(given[1]))


def _check_file(settings: Mapping[str, Any], known: Mapping[str, Option]) -> dict[str, Any]:
    refuse_unknown(settings, known)
    return check_options("the configuration", settings, known, text=False)


def _value_of(option: str, given: Sequence[str]) -> str | None:
    """The value of an option that must be known before the parser is built."""
    values = _values_of(option, given)
    return values[0] if values else None


def _values_of(option: str, given: Sequence[str]) -> list[str]:
    values: list[str] = []
    for position, argument in enumerate(given):
        if argument.startswith(option + "="):
            values = [argument.partition("=")[2]]
        elif argument == option:
            values = []
            for value in given[position + 1 :]:
                if value.startswith("--"):
                    break
                values.append(value)
    return values
