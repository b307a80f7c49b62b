"""What files of a run's folder say is held against what they should say."""

from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, TypedDict

import pytest

from adabest.errors import InputError
from adabest.runs.files.records import check_environment, check_identity, check_metrics, check_status, conform

IDENTITY: dict[str, Any] = {
    "dataset": "f00",
    "classes": 3,
    "mean": [0.5],
    "std": [[0.1, 0.2]],
    "input_shape": [1, 4, 4],
    "initial_model": "ba5",
    "parameters": 10,
    "partition": {"fingerprint": "abc", "samples_per_client": [1, 2.5, 4]},
}


@dataclass
class Part:
    name: str
    sizes: list[int]
    ratio: float | None = None
    more: dict[str, float] = field(default_factory=dict)


class Row(TypedDict):
    kind: Literal["a", "b"]
    note: NotRequired[str]


class TestConform:
    @pytest.mark.parametrize(
        ("value", "kind"),
        [
            (True, bool),
            (3, int),
            (3, float),
            (2.5, float),
            ("text", str),
            (None, int | None),
            ("b", Literal["a", "b"]),
            ([1, None], list[int | None]),
            ({"a": [1.5]}, dict[str, list[float]]),
            (["text", 1, [True, None]], Any),
            ({"kind": "a"}, Row),
            ({"kind": "a", "note": "text"}, Row),
        ],
    )
    def test_values_that_fit_are_returned(self, value: Any, kind: Any) -> None:
        assert conform("f", value, kind) == value

    @pytest.mark.parametrize(
        ("value", "kind", "words"),
        [
            (1, bool, "f should be true or false, not 1"),
            (True, int, "f should be a whole number, not True"),
            (2**64, int, "f should be a whole number"),
            (1e201, float, "f should be a number"),
            (float("nan"), float, "f should be a number, not nan"),
            (10**400, float, "f should be a number"),
            ("\ud800", str, "f should be text"),
            ("c", Literal["a", "b"], "f should be one of a, b, not 'c'"),
            ([], Literal["a", "b"], "f should be one of a, b"),
            ({}, list[int], "f should be a list, not {}"),
            ([1, "x"], list[int], r"f\[1\] should be a whole number, not 'x'"),
            ([], dict[str, int], "f should be an object with names"),
            ({"a": "x"}, dict[str, int], r"f\.a should be a whole number"),
            ({"\ud800": 1}, dict[str, int], "f has a name that isn't text"),
            ({}, Any, "f should be text, a finite number"),
            ([[[[[1]]]]], Any, "should be text, a finite number"),
            ({}, Row, "f lacks kind"),
            ({"kind": "a", "other": 1}, Row, "f has 'other', which doesn't belong there"),
            ({"name": "n"}, Part, "f: this is no part: it lacks sizes"),
            ({"name": "n", "sizes": [], "x": 1}, Part, "f: this is no part: it has 'x'"),
            ({"name": "n", "sizes": [], "more": {"a": None}}, Part, r"f\.more\.a should be a number, not None"),
        ],
    )
    def test_values_that_do_not_fit_are_named(self, value: Any, kind: Any, words: str) -> None:
        with pytest.raises(InputError, match=words):
            conform("f", value, kind)

    def test_a_dataclass_is_built(self) -> None:
        assert conform("f", {"name": "n", "sizes": [1]}, Part) == Part("n", [1])


class TestStatus:
    def test_a_status_of_a_run_is_accepted(self) -> None:
        assert check_status("f", {"status": "finished", "round": 3}) == {"status": "finished", "round": 3}
        assert check_status("f", {"status": "diverged", "round": 3, "reason": "why", "later": 1})["reason"] == "why"

    @pytest.mark.parametrize(
        "value",
        [None, [], {}, {"status": "finished"}, {"status": "lost", "round": 1}, {"status": "finished", "round": -1}]
        + [{"status": "finished", "round": odd} for odd in ("1", None, True, 1.0)]
        + [{"status": "finished", "round": 1, "reason": 3}],
    )
    def test_another_status_is_refused(self, value: Any) -> None:
        with pytest.raises(InputError, match="f"):
            check_status("f", value)


class TestIdentity:
    def test_an_identity_of_a_run_is_accepted(self) -> None:
        assert check_identity("f", {**IDENTITY, "later": {}}) == {**IDENTITY, "later": {}}

    @pytest.mark.parametrize("name", IDENTITY)
    def test_missing_parts_of_an_identity_are_named(self, name: str) -> None:
        with pytest.raises(InputError, match=f"f lacks {name}"):
            check_identity("f", {key: value for key, value in IDENTITY.items() if key != name})

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"classes": 0}, "above 0"),
            ({"classes": "3"}, r"f\.classes should be a whole number"),
            ({"input_shape": [0]}, "above 0"),
            ({"input_shape": 3}, r"f\.input_shape should be a list"),
            ({"mean": {}}, r"f\.mean should be"),
            ({"partition": {}}, r"f\.partition lacks fingerprint"),
            ({"partition": {"fingerprint": 3}}, r"f\.partition\.fingerprint should be text"),
        ],
    )
    def test_wrong_parts_of_an_identity_are_named(self, change: dict[str, Any], words: str) -> None:
        with pytest.raises(InputError, match=words):
            check_identity("f", IDENTITY | change)


def test_an_environment_is_plain_facts() -> None:
    facts = {"command": "adabest run", "processors": 2, "commit": None}
    assert check_environment("f", facts) == facts
    strange: list[Any] = [[], {"command": 3}, {"working_directory": None}, {"torch": {}}]
    for odd in strange:
        with pytest.raises(InputError, match="f"):
            check_environment("f", odd)


def test_metrics_are_numbers_of_a_round() -> None:
    row = {"round": 2, "scored_accuracy": 0.5, "h_norm": None, "scored_loss": 3}
    assert check_metrics("f", row) == row
    strange: list[Any] = [[], {}, {"round": 1.5}, {"round": -1}, {"round": 1, "loss": "x"}]
    for odd in [*strange, {"round": 1, "scored_accuracy": 2}]:
        with pytest.raises(InputError, match="f"):
            check_metrics("f", odd)
