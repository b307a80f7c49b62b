"""Parcels: what is packed comes back, and what is of another form is refused in words."""

import contextlib
import json
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adabest.algorithms.forms import Count, Model, Number, Vector
from adabest.errors import InputError
from adabest.flower.orders import TrainAnswer, TrainOrder, or_nan, or_none, parsed, read, shortened, written
from adabest.flower.parcels import packed, unpacked, whole_models

LIKE = torch.zeros(4)


class Sent(NamedTuple):
    """A message with a field of each kind."""

    cloud: Model
    h: Vector
    rate: Number
    steps: Count


def sent(*leading: int) -> Sent:
    generator = torch.Generator().manual_seed(3)
    draw = torch.randn(2, *leading, 4, generator=generator)
    return Sent(draw[0], draw[1], torch.rand(*leading, 1, generator=generator), torch.ones(*leading, 1).long())


@pytest.mark.parametrize("clients", [None, 1, 3])
def test_what_is_packed_comes_back(clients: int | None) -> None:
    given_one = sent() if clients is None else sent(clients)
    contents = packed(given_one, None)
    numbers = json.loads(json.dumps(contents.numbers))
    found = unpacked(Sent, contents.vectors, numbers, LIKE, clients=clients)
    assert all(torch.equal(one, two) and one.dtype == two.dtype for one, two in zip(found, given_one, strict=True))
    assert contents.bytes() == 2 * 4 * 4 * (clients or 1)


@pytest.mark.parametrize(
    ("vectors", "numbers", "message"),
    [
        ([LIKE], {"rate": [1.0], "steps": [1]}, "it has 1 vectors; Sent has 2"),
        ([LIKE] * 3, {"rate": [1.0], "steps": [1]}, "it has 3 vectors"),
        ([LIKE] * 2, {"rate": [1.0]}, "it has the numbers rate, which aren't Sent's"),
        ([LIKE] * 2, {}, "it has the numbers none"),
        ([LIKE] * 2, {"rate": [1.0, 2.0], "steps": [1]}, "its field rate has 2 numbers"),
        ([LIKE] * 2, {"rate": [1.0], "steps": [2**80]}, "its field steps can't be read"),
        ([LIKE] * 2, {"rate": ["x"], "steps": [1]}, "its field rate can't be read"),
        ([LIKE[:3], LIKE], {"rate": [1.0], "steps": [1]}, "its field cloud has the shape"),
        ([LIKE, LIKE.double()], {"rate": [1.0], "steps": [1]}, "its field h is of type float64"),
        ([LIKE, LIKE.long()], {"rate": [1.0], "steps": [1]}, "its field h is of type int64"),
        ([LIKE.reshape(2, 2), LIKE], {"rate": [1.0], "steps": [1]}, "its field cloud has the shape"),
    ],
)
def test_what_is_of_another_form_is_refused(vectors: Any, numbers: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        unpacked(Sent, vectors, numbers, LIKE)


@pytest.mark.parametrize("vector", [torch.zeros(3), torch.zeros(4, dtype=torch.float64), torch.zeros(1, 4)])
def test_a_model_of_another_form_is_refused(vector: torch.Tensor) -> None:
    with pytest.raises(InputError, match="a model has the shape"):
        whole_models([vector], LIKE, None)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(facts=st.dictionaries(st.sampled_from([*TrainAnswer.__annotations__, "else"]), ANYTHING))
def test_facts_of_any_form_are_read_or_refused(facts: dict[str, Any]) -> None:
    for kind in (TrainAnswer, TrainOrder):
        with contextlib.suppress(InputError):
            assert read("it", facts, kind).keys() == kind.__annotations__.keys()


@given(text=st.text() | st.binary() | ANYTHING)
def test_a_text_of_any_form_is_parsed_or_refused(text: Any) -> None:
    with contextlib.suppress(InputError):
        assert isinstance(parsed("it", text), dict)


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(InputError, match="isn't JSON"):
        parsed("it", "[" * 100_000)


def test_numbers_that_json_lacks_are_null_on_the_way() -> None:
    for value in (float("nan"), float("inf"), -float("inf"), 1e308 * 10):
        assert or_none(value) is None
    assert or_none(-0.1) == or_nan(-0.1) == -0.1
    assert or_nan(None) != or_nan(None)
    assert written({"x": [or_none(float("nan"))]}) == '{"x":[null]}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        written({"x": float("nan")})


@given(text=st.text(max_size=700))
def test_words_from_elsewhere_are_one_printable_line(text: str) -> None:
    found = shortened(text)
    assert found.isprintable()
    assert len(found) <= 501
