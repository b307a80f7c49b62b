"""``adabest compare``."""

from collections.abc import Sequence
from typing import Any

from adabest.cli import parser
from adabest.cli.parser import Action, Field
from adabest.cli.run_options import DESTINATION, config_field
from adabest.registry import Option, naming, split_specification
from adabest.runs.settings.call_arguments import CALL_ARGUMENTS, DEFAULT_ALGORITHMS
from adabest.runs.settings.config import SETTINGS


def fields(given: Sequence[str]) -> list[Field]:
    """The settings of all runs, the hyper-parameters of the algorithms, and where the runs go."""
    from adabest.algorithms.catalog import ALGORITHMS
    from adabest.runs.settings.algorithm_specification import algorithm_options, check_algorithms

    from_file = parser.from_file(given)
    algorithms = parser.values_of("--algorithms", given) or from_file.get("algorithms", DEFAULT_ALGORITHMS)
    check_algorithms(algorithms)
    own: dict[str, Option] = {}
    owners: dict[str, list[str]] = {}
    own_texts: dict[str, str] = {}
    for specification in algorithms:
        name, _ = split_specification(specification)
        with naming(name):
            its_own, its_texts = algorithm_options(name), parser.help_texts(ALGORITHMS.find(name).__doc__)
        for key, option in its_own.items():
            owners.setdefault(key, []).append(name)
            # A switch can't be left open, so it shows its default, unless the algorithms have different ones.
            switch = option.type is bool and own.get(key, option) == option
            own[key] = option if switch else Option(option.type | None, None)
        own_texts = its_texts | own_texts
    own_texts = {
        key: f"{own_texts.get(key, '')} For {', '.join(names)}, each with a default of its own.".strip()
        for key, names in owners.items()
    }
    beside = {name: CALL_ARGUMENTS[name] for name in ("algorithms", "seeds", "target", "lanes")}
    settings = beside | {name: one for name, one in SETTINGS.items() if name != "algorithm"} | DESTINATION
    defaults = parser.check_file(from_file, {**settings, **own})
    return [
        config_field(),
        *parser.fields(settings, defaults=defaults),
        *parser.fields(own, own_texts, defaults, group="algorithm"),
    ]


def action() -> Action:
    """Imports what the command needs; the result makes the runs."""
    from adabest.cli.output import print_comparison
    from adabest.experiments.call import asked_for
    from adabest.experiments.comparison import make_comparison

    def act(arguments: dict[str, Any]) -> int:
        with asked_for(None, parser.given(arguments)) as settings:
            return print_comparison(make_comparison(settings, show=True))

    return act
