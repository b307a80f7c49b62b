"""Idle settings: those that were given and change nothing, because of another setting. Each is a warning."""

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from adabest.algorithms.base import Algorithm
from adabest.algorithms.catalog import ALGORITHMS
from adabest.data.loading import uses_data_dir
from adabest.engine.step_numbers import most_steps
from adabest.federation.partition import NATURAL
from adabest.federation.partitioners import PARTITIONERS
from adabest.federation.sampling import SAMPLERS
from adabest.registry import is_own_name, named_now
from adabest.runs.settings.algorithm_specification import algorithm_options, build_algorithm
from adabest.runs.settings.config import SETTINGS, Config
from adabest.runs.settings.placeholders import is_object_name

_WITH_PRIORS = ("dirichlet", "dirichlet-legacy")
_OF_TORCHRUN = "WORLD_SIZE"  # torchrun sets it for the processes that it starts


def warn_of_idle_settings(
    given: Mapping[str, Any], configs: Iterable[Config], seeds: Sequence[int] | None = None
) -> None:
    """Warns of each setting that was given and changes nothing in any run.

    A setting at its default isn't told of: whether it has an effect or not, the runs are what was asked for.

    Args:
        given: The settings that were given, and those that are varied, by name.
        configs: The complete configurations of the runs.
        seeds: The seeds of the runs, if there are several in place of ``seed``.
    """
    configs = list(configs)
    found = [dict(_idle(config)) for config in configs]
    idle = {name: why for name, why in (found[0] if found else {}).items() if all(name in one for one in found)}
    if seeds and given.get("seed") not in (None, SETTINGS["seed"].default):
        idle["seed"] = "the seeds of these runs are those of seeds"
    told = {name: why for name, why in idle.items() if name in given and _is_changed(name, given[name])}
    for name, why in {**told, **_idle_hyperparameters(configs)}.items():
        warnings.warn(f"{name} has no effect: {why}", stacklevel=2)


def _idle_hyperparameters(configs: Sequence[Config]) -> dict[str, str]:
    """The hyper-parameters that aren't at their default and change nothing in any run that has them, and why."""
    idle, active = dict[str, str](), set[str]()
    for config in configs:
        name = config.algorithm
        if is_object_name(name) or (is_own_name(name) and name not in named_now()):
            continue  # an object, whose class this call didn't name
        options = algorithm_options(name)
        changed = {key for key, value in config.hyperparameters.items() if value != options[key].default}
        if changed:
            algorithm, _ = build_algorithm({"algorithm": name, **config.hyperparameters})
            why = {key: words for key, words in algorithm.idle().items() if key in changed}
            idle |= why
            active |= changed - why.keys()
    return {name: why for name, why in idle.items() if name not in active}


def _is_changed(name: str, value: Any) -> bool:
    default = SETTINGS[name].default
    return bool(value != (list(default) if isinstance(default, tuple) and isinstance(value, list) else default))


def _idle(config: Config) -> Iterator[tuple[str, str]]:
    """The settings that change nothing with these values of the others, and why; code of a user's own reads any."""
    yield from _idle_of_clients(config)
    yield from _idle_of_steps(config)
    yield from _idle_of_rounds(config)
    yield from _idle_of_machine(config)
    if not uses_data_dir(config.dataset):
        yield "data_dir", "only the published data sets are looked for there, and this one isn't one of them"


def _idle_of_clients(config: Config) -> Iterator[tuple[str, str]]:
    partition = str(config.partition)
    if partition == NATURAL or partition in PARTITIONERS.builtin:
        if partition not in _WITH_PRIORS:
            yield "alpha", f"partition {partition} has no Dirichlet priors; dirichlet and dirichlet-legacy have"
        if partition != "shards":
            yield "shards", f"partition {partition} cuts no shards; partition shards does"
        if partition != NATURAL and config.unbalance == 0 and most_steps(config.local_steps) is None:
            yield "local_steps", "all clients have the same number of samples, and so the same number of steps"
    if config.sampler in SAMPLERS.builtin and _takes_everyone(config):
        share = f"with participation = {config.participation:g}"
        yield "sampler", f"{share}, every client that is present takes part in every round"


def _idle_of_steps(config: Config) -> Iterator[tuple[str, str]]:
    if most_steps(config.local_steps) is not None:
        yield "epochs", f"local_steps = {config.local_steps} draws the number of steps, however many samples there are"
    kind = ALGORITHMS.builtin.get(str(config.algorithm), Algorithm)  # a user's own may say the number now and then
    if kind.common_steps is not Algorithm.common_steps:
        for name in ("epochs", "local_steps"):
            yield name, f"{config.algorithm} says itself how many steps its clients make"


def _takes_everyone(config: Config) -> bool:
    """Whether all clients that are present take part in every round, however they are drawn."""
    if not 0 < config.participation < 1:  # a share that can't be is refused when the run is built
        return config.participation == 1
    # Of fewer clients than all, the share that rounding adds is no smaller.
    rounded = max(1, round(config.participation * config.clients)) if config.clients else 0
    return config.sampler != "bernoulli" and bool(config.clients) and rounded == config.clients


def _idle_of_rounds(config: Config) -> Iterator[tuple[str, str]]:
    if config.rounds == 1:
        yield "churn", "clients come and go between two rounds, and there is only one"
        yield "learning_rate_decay", "the learning rate falls from round to round, and there is only one"
    before_last = (config.rounds - 1) // config.evaluate_every * config.evaluate_every
    if config.evaluate_every >= config.rounds:
        yield "stop_at", "the first evaluation is that of the last round, which ends the run anyway"
    if config.stop_after is not None and config.stop_after > before_last - config.evaluate_every:
        yield (
            "stop_after",
            f"no run of {config.rounds} rounds, evaluated every {config.evaluate_every}, is {config.stop_after} rounds "
            "without a new best before its last evaluation",
        )
    starts = [int(event.partition(":")[0]) for event in config.schedule if event.partition(":")[0].strip().isdecimal()]
    if starts and len(starts) == len(config.schedule) and min(starts) > config.rounds:
        yield "schedule", f"its first event is in round {min(starts)}, and there are only {config.rounds} rounds"


def _idle_of_machine(config: Config) -> Iterator[tuple[str, str]]:
    on_gpu = config.device.startswith("cuda")
    if config.engine == "reference":
        yield "clients_in_parallel", "the reference engine trains one client after another"
    elif not on_gpu and config.precision == "bf16":
        yield "clients_in_parallel", "with bf16 on a CPU, one client trains at a time"
    if not on_gpu:
        yield "client_device_memory", f"device {config.device} has no GPU memory; client_memory is what it uses"
    if _OF_TORCHRUN not in os.environ:
        yield "backend", "it is for a job of several processes, which torchrun starts"
