"""What the hyper-parameters of every algorithm must be: frozen, described, in range, and settable by text."""

import dataclasses
import math
import pickle
import re
from typing import Any

import pytest
from recording import NAMES, every_algorithm, make

from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.base import Algorithm
from adabest.algorithms.catalog import ALGORITHMS
from adabest.errors import InputError
from adabest.registry import check_options, options_of
from adabest.runs.settings.config import SETTINGS

# The ranges that parameters of these names have, in every algorithm or in one: values outside of them, and their ends.
OUTSIDE: dict[str, list[float]] = {
    "mu": [-0.001, -1.0],
    "beta": [-0.001, 1.001],
    "beta_decay": [-0.1, 1.1],
    "patience": [0, -3, 2.5],
    "spring": [-0.1],
    "strength": [-0.1],
    "own_share": [-0.1, 1.1],
    "slow_rate": [0.0, -1.0],
    "fedacg.beta": [-0.1],
    "momentum": [-0.1, 1.0],
    "rate": [-0.1],
    "beta1": [-0.1, 1.0],
    "beta2": [-0.1, 1.0],
    "tau": [0.0, -0.1],
    "aide.tau": [-0.1],
    "q": [-0.1, 1.1],
    "epsilon": [-0.1],
    "rho": [0.0, -0.1],
    "s": [0.0, -0.1],
    "share": [-0.1],
    "layers": [0, -1],
    "pull": [-0.1],
    "radius": [-0.1],
    "probability": [0.0, -0.1, 1.1],
    **{f"{name}.beta": [-0.1, 1.0] for name in ("fedavgm", "slowmo", "mimelite", "mime", "local-momentum")},
}
ENDS: dict[str, list[float]] = {
    "mu": [0.0],
    "beta": [0.0, 1.0],
    "beta_decay": [0.0, 1.0],
    "patience": [1],
    "spring": [0.0],
    "strength": [0.0],
    "own_share": [0.0, 1.0],
    "slow_rate": [1e-9],
    "fedacg.beta": [0.0, 3.0],
    "momentum": [0.0],
    "rate": [0.0],
    "beta1": [0.0],
    "beta2": [0.0],
    "tau": [1e-9],
    "aide.tau": [0.0],
    "q": [0.0, 1.0],
    "epsilon": [0.0],
    "rho": [1e-9],
    "s": [1e-9],
    "share": [0.0],
    "layers": [1],
    "pull": [0.0],
    "radius": [0.0],
    "probability": [1e-9, 1.0],
    **{f"{name}.beta": [0.0] for name in ("fedavgm", "slowmo", "mimelite", "mime", "local-momentum")},
}


def fields_of(name: str) -> tuple[dataclasses.Field[Any], ...]:
    kind: Any = ALGORITHMS.find(name)
    return dataclasses.fields(kind)


def parameters_of(*kinds: type) -> list[tuple[str, str]]:
    """Pairs of an algorithm and one of its parameters, of those whose default has one of these types."""
    pairs = [(name, field.name) for name in NAMES for field in fields_of(name)]
    return [(name, parameter) for name, parameter in pairs if type(getattr(make(name), parameter)) in kinds]


def values_of(table: dict[str, list[float]], name: str, parameter: str) -> list[float]:
    return table.get(f"{name}.{parameter}", table[parameter])


@every_algorithm
def test_every_class_is_an_algorithm_that_needs_no_arguments(name: str) -> None:
    assert isinstance(make(name), Algorithm)


@every_algorithm
def test_no_hyper_parameter_is_a_setting_of_every_run(name: str) -> None:
    """A command line has one option of a name."""
    assert not {field.name for field in fields_of(name)} & set(SETTINGS)


@every_algorithm
def test_hyper_parameters_are_frozen(name: str) -> None:
    algorithm = make(name)
    assert dataclasses.is_dataclass(algorithm)
    for field in [*(field.name for field in fields_of(name)), "something_new"]:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(algorithm, field, 0.5)


@every_algorithm
def test_algorithms_of_equal_hyper_parameters_are_equal_and_hashable(name: str) -> None:
    assert make(name) == make(name)
    assert hash(make(name)) == hash(make(name))
    assert pickle.loads(pickle.dumps(make(name))) == make(name)


@pytest.mark.parametrize(("name", "parameter"), parameters_of(int, float))
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
def test_a_number_that_is_not_finite_is_refused_by_name(name: str, parameter: str, value: float) -> None:
    with pytest.raises(InputError, match=rf"^{parameter} = {value}\b.*finite"):
        ALGORITHMS.find(name)(**{parameter: value})


@pytest.mark.parametrize(("name", "parameter"), parameters_of(int, float))
def test_a_number_out_of_its_range_is_refused_by_name(name: str, parameter: str) -> None:
    for value in values_of(OUTSIDE, name, parameter):
        with pytest.raises(InputError, match=rf"^{parameter} = {re.escape(str(value))} is out of range"):
            ALGORITHMS.find(name)(**{parameter: value})


@pytest.mark.parametrize(("name", "parameter"), parameters_of(int, float))
def test_the_ends_of_a_range_belong_to_it(name: str, parameter: str) -> None:
    for value in values_of(ENDS, name, parameter):
        assert getattr(ALGORITHMS.find(name)(**{parameter: value}), parameter) == value


@pytest.mark.parametrize(("name", "parameter"), [of for of in parameters_of(str) if of != ("fedper", "private")])
def test_a_choice_out_of_its_list_is_refused_by_name(name: str, parameter: str) -> None:
    with pytest.raises(InputError, match=parameter):
        ALGORITHMS.find(name)(**{parameter: "no-such-choice"})


def test_a_beta_that_sets_itself_is_a_hyper_parameter() -> None:
    algorithm = AdaBest(beta="auto")
    assert algorithm == make("adabest,beta=auto")
    assert not algorithm.needs_population
    assert pickle.loads(pickle.dumps(algorithm)) == algorithm
    assert AdaBest(beta="auto", beta_decay=1) == algorithm


@pytest.mark.parametrize(
    ("beta", "message"),
    [
        ("automatic", "beta = 'automatic' should be a number in [0, 1], or 'auto'"),
        ("0.5", "beta = '0.5' should be a number in [0, 1], or 'auto'"),
        ("", "beta = '' should be a number in [0, 1], or 'auto'"),
        (True, "beta = True is out of range: it must be a finite number in [0, 1]"),
        (None, "beta = None is out of range: it must be a finite number in [0, 1]"),
        (1.5, "beta = 1.5 is out of range: it must be a finite number in [0, 1]"),
    ],
)
def test_a_beta_that_is_neither_a_number_nor_auto_is_refused(beta: Any, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        AdaBest(beta=beta)


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_a_beta_that_sets_itself_refuses_a_decay(decay: float) -> None:
    with pytest.raises(InputError, match=rf"beta_decay = {decay:g} shrinks a β that is given.*leave out one of them"):
        AdaBest(beta="auto", beta_decay=decay)


@every_algorithm
def test_hyper_parameters_can_be_set_by_text(name: str) -> None:
    """As the command line and the configuration file do."""
    kind = ALGORITHMS.find(name)
    text = {field.name: str(getattr(make(name), field.name)) for field in fields_of(name)}
    assert kind(**check_options(name, text, options_of(kind))) == make(name)


@every_algorithm
def test_every_hyper_parameter_is_described(name: str) -> None:
    documentation = ALGORITHMS.find(name).__doc__ or ""
    attributes = documentation.partition("Attributes:")[2]
    for field in fields_of(name):
        assert re.search(rf"^\s+{field.name}: \S", attributes, flags=re.MULTILINE), field.name


@every_algorithm
def test_classes_and_modules_of_algorithms_are_described(name: str) -> None:
    kind = ALGORITHMS.find(name)
    assert kind.__doc__
    assert "::" in kind.__doc__, "the formulas"
    assert (__import__(kind.__module__, fromlist=["_"]).__doc__ or "").strip()
