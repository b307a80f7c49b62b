"""``adabest tune``."""

from collections.abc import Sequence
from typing import Any

from adabest.cli import parser
from adabest.cli.parser import Action, Field
from adabest.cli.run_options import fields_with_algorithm, given_by_name
from adabest.experiments.default_grids import TUNING_ROUNDS
from adabest.registry import naming, split_specification
from adabest.runs.settings.call_arguments import CALL_ARGUMENTS
from adabest.runs.settings.config import Config

_HELP = {
    "vary": "Settings and the values to try, as in beta=0.2,0.4, in every combination. By default the paper's.",
    "seeds": "Seeds to run each point with, in place of --seed, as in 0 1 2; the means are compared.",
    "lanes": f"{CALL_ARGUMENTS['lanes'].meaning.help.removesuffix('.')}, or 8 if a space is searched.",
}


def fields(given: Sequence[str]) -> list[Field]:
    """A run's settings, the values to try, and where the runs go."""
    from_file = {"rounds": TUNING_ROUNDS, **parser.from_file(given)}
    if "vary" in from_file:
        from adabest.experiments.sweep import read_vary, write_vary

        from_file["vary"] = write_vary(read_vary(from_file["vary"]))
    if "space" in from_file:
        from adabest.experiments.space import read_space, write_space

        algorithm = parser.value_of("--algorithm", given) or from_file.get("algorithm", Config.algorithm)
        with naming(algorithm):
            from_file["space"] = write_space(read_space(from_file["space"], split_specification(algorithm)[0]))
    return fields_with_algorithm(given, from_file, ("vary", "space", "trials", "seeds", "lanes"), _HELP)


def action() -> Action:
    """Imports what the command needs; the result tries the points, and chooses one."""
    from adabest.cli.output import print_comparison
    from adabest.experiments.call import asked_for
    from adabest.experiments.tuning import make_tuning

    def act(arguments: dict[str, Any]) -> int:
        with asked_for(None, given_by_name(arguments)) as settings:
            return print_comparison(make_tuning(settings, show=True))

    return act
