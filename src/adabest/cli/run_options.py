"""The options of commands that make runs: settings, hyper-parameters of the algorithm, and where the runs go.

The hyper-parameters are known when the algorithm is; the values of a configuration file become the defaults.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from adabest.cli import parser
from adabest.cli.parser import Field
from adabest.registry import Option, naming, split_specification
from adabest.runs.settings.call_arguments import CALL_ARGUMENTS
from adabest.runs.settings.config import SETTINGS, Config
from adabest.runs.settings.declaration import Setting

DESTINATION = {name: CALL_ARGUMENTS[name] for name in ("out", "overwrite")}
_ALLOWED = {"allow": Option(tuple[str, ...], ()), "trust": Option(bool, False)}


def config_field() -> Field:
    """A configuration file."""
    help_text = "A TOML file whose settings are the defaults of the options below; it comes first."
    return parser.positional("config", str | None, help_text, "[CONFIG.TOML]", None)


def folder_field() -> Field:
    """A folder, given by its place."""
    return parser.positional("folder", str, "The folder.", "FOLDER")


def allowed_fields() -> list[Field]:
    """What of the names in a run's files may be imported."""
    help_texts = {
        "allow": "Names in the run's files that may be imported, as in my_module:MyAlgorithm. By default none.",
        "trust": "Import whatever the files name, since you know where they come from.",
    }
    return parser.fields(_ALLOWED, help_texts)


def data_dir_field() -> list[Field]:
    """Where data lie, outside of a group."""
    option = SETTINGS["data_dir"]
    return parser.fields({"data_dir": Option(option.type, option.default)}, {"data_dir": option.meaning.help})


def fields_with_algorithm(
    given: Sequence[str],
    from_file: Mapping[str, Any],
    beside: Iterable[str] = (),
    help_texts: Mapping[str, str] | None = None,
) -> list[Field]:
    """The options of a command that runs one algorithm.

    Args:
        given: The words of the command line.
        from_file: The settings of its configuration file.
        beside: The call's arguments beside the settings.
        help_texts: Help texts in place of their own.
    """
    from adabest.algorithms.catalog import ALGORITHMS
    from adabest.runs.settings.algorithm_specification import algorithm_options, merge

    special = {name: CALL_ARGUMENTS[name] for name in beside}
    specification = parser.value_of("--algorithm", given)
    with naming(specification, from_file.get("algorithm")):
        merged = merge(from_file, {} if specification is None else {"algorithm": specification})
        name = str(merged.get("algorithm", Config.algorithm))
        own = algorithm_options(name)
        defaults = parser.check_file(merged, {**SETTINGS, **own, **special, **DESTINATION})
        own_texts = parser.help_texts(ALGORITHMS.find(name).__doc__)
    settings: dict[str, Setting] = {**special, **SETTINGS, **DESTINATION}
    return [
        config_field(),
        *parser.fields(settings, help_texts, defaults),
        *parser.fields(own, own_texts, defaults, group="algorithm"),
    ]


def given_by_name(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that have a value, with the name of the algorithm alone: its options have become their own."""
    settings = parser.given(arguments)
    settings["algorithm"], _ = split_specification(settings["algorithm"])
    return settings
