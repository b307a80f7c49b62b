"""Private parts of models that nothing judges: a warning before a run whose numbers would mislead."""

import warnings
from collections.abc import Iterable

from adabest.registry import is_own_name, named_now
from adabest.runs.settings.algorithm_specification import build_algorithm
from adabest.runs.settings.config import Config
from adabest.runs.settings.placeholders import is_object_name


def warn_of_unjudged_parts(configs: Iterable[Config]) -> None:
    """Warns once if there are runs whose clients keep a part of the model, and whose models aren't tested by client."""
    names = dict.fromkeys(config.algorithm for config in configs if config.local_test is None and _is_partly(config))
    if names:
        warnings.warn(
            f"with {', '.join(names)}, the server's models have the initial numbers in the part that clients keep, so "
            "their accuracy says little; --local-test 0.2 judges the clients' own models",
            stacklevel=2,
        )


def _is_partly(config: Config) -> bool:
    """Whether a run's algorithm has a private part, as far as its class may be imported by now."""
    name = config.algorithm
    if is_object_name(name) or (is_own_name(name) and name not in named_now()):
        return False
    algorithm, _ = build_algorithm({"algorithm": name, **config.hyperparameters})
    return algorithm.private_part() is not None
