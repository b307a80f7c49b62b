"""What a call or a command takes beside the settings of its runs, each declared once.

A configuration file may hold these, too. No hyper-parameter may have one of these names.
"""

import dataclasses
from typing import Annotated

from adabest.runs.settings.declaration import Meaning, declared, names_where

DEFAULT_ALGORITHMS = ("fedavg", "fedprox", "scaffold", "feddyn", "adabest")
# Of an illustration: μ is larger than anyone would train with, so that its effect can be seen in a few
# steps.
STEERING_ALGORITHMS = ("fedavg", "scaffold-m", "feddyn,mu=0.3", "adabest,mu=0.3,beta=0.8")


@dataclasses.dataclass(frozen=True)
class CallArguments:
    """What to run, and what to do with the result; no part of what a run is."""

    algorithms: Annotated[
        tuple[str, ...],
        Meaning("experiment", "Algorithms to compare: names with options, as in adabest,beta=0.9.", names=True),
    ] = DEFAULT_ALGORITHMS
    vary: Annotated[
        tuple[str, ...],
        Meaning(
            "experiment",
            "Settings and the values to try, as in beta=0.8,0.9 mu=0.02,0.05; every combination is run. "
            "Semicolons separate values that have commas.",
            names=True,
        ),
    ] = ()
    space: Annotated[
        tuple[str, ...],
        Meaning(
            "experiment",
            "Settings and the values they may have, for Optuna to search: beta=0:1 mu=0.001:0.1:log batch_size=16,32.",
            names=True,
        ),
    ] = ()
    trials: Annotated[int | None, Meaning("experiment", "Number of points of the space to try. By default 30.")] = None
    seeds: Annotated[
        tuple[int, ...],
        Meaning(
            "experiment",
            "Seeds to run each with, in place of --seed, as in 0 1 2; the table has means and standard deviations.",
        ),
    ] = ()
    target: Annotated[
        float | None,
        Meaning(
            "experiment",
            "Accuracy, or value of the task's first metric, whose first round the table tells, as in 0.95. By default "
            "one that all reach.",
        ),
    ] = None
    lanes: Annotated[
        int | None,
        Meaning("experiment", "How many runs are trained together at most; 1 for one after another. By default all."),
    ] = None
    out: Annotated[str | None, Meaning("output", "Folder to write to. By default below runs/.")] = None
    overwrite: Annotated[bool, Meaning("output", "Replace a run that lies there.")] = False


CALL_ARGUMENTS = declared(CallArguments)
CALL_ARGUMENTS_WITH_NAMES = names_where(CALL_ARGUMENTS, lambda meaning: meaning.names)
# Names that a call takes, and that no file of settings holds.
_ONLY_IN_CALLS = ("config", "show", "hyperparameters")
RESERVED = (*CALL_ARGUMENTS, *_ONLY_IN_CALLS)
