"""Files of results, choices and costs that somebody changed: they are read, or refused with what is wrong."""

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import adabest
from adabest.costs.cost_file import MeasuredCosts
from adabest.costs.measured_tables import measured_cost_notes, measured_cost_tables
from adabest.errors import InputError
from adabest.paper.rendering import render
from adabest.runs.results_file import Results, read_choices

KEPT = Path(__file__).parents[2] / "results"
ODD: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    2.5,
    10**30,
    1e308,
    -1e308,
    1e-320,
    "",
    "text",
    "../../elsewhere",
    "a,b",
    "\ud800",
    "\x00",
    "<script>",
    [],
    [[]],
    [None],
    ["text"],
    {},
    {"": 1},
    {"round": "one"},
]


def read(name: str, **parts: slice) -> Any:
    """A file of the repository, with a part of its lists, so that changes hit everything before long."""
    content = json.loads((KEPT / f"{name}.json").read_text(encoding="utf-8"))
    content.pop("sha256", None)  # else every change would be refused as one that breaks the seal
    for part, kept in parts.items():
        content[part] = content[part][kept]
    for run in content.get("runs", []):
        run["columns"] = {metric: values[:3] for metric, values in run["columns"].items()}
    return content


RESULTS = {
    "table1": read("table1/cifar10-1", runs=slice(0, 3), tuning=slice(0, 1)),
    "fig-beta": read("fig-beta", runs=slice(0, 2)),
    "fig-mu": read("fig-mu", runs=slice(0, 5, 4)),
    "fig-scale": read("fig-scale", runs=slice(0, 4)),
}
COSTS = read("costs", measured=slice(0, 2))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each node of a JSON value but the root."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def changed(content: Any, draw: random.Random) -> Any:
    """The same with one to three nodes lost, doubled, renamed or replaced."""
    content = copy.deepcopy(content)
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        ways = list(places(content))
        if not ways:
            break  # nothing is left to be changed
        # Each depth as often as the others, or nearly all changes would hit points of curves.
        depth = draw.choice(sorted({len(way) for way in ways}))
        *path, key = draw.choice([way for way in ways if len(way) == depth])
        parent = content
        for step in path:
            parent = parent[step]
        change = draw.choice(["drop", "replace", "replace", "replace", "double", "rename"])
        if change == "drop":
            del parent[key]
        elif change == "double" and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[key]))
        elif change == "rename" and isinstance(parent, dict):
            parent[draw.choice(["text", "\ud800", "round", "a.b"])] = parent.pop(key)
        else:
            parent[key] = copy.deepcopy(draw.choice(ODD))
    return content


def check_results(content: Any, top: Path, *, drawn: bool) -> bool:
    """Reads and shows results; returns whether they were accepted."""
    # Deep enough that "../../elsewhere" is still below the folder that is searched; the folders of all tests, which
    # lie beside it, would take a second to search.
    folder = top / "one" / "two" / "three"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "results.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    before = {place for place in top.rglob("*") if folder not in place.parents}
    try:
        results = Results.read(path)
        adabest.write_report(path, html=folder / "page.html")
        if drawn:
            for table in render(results.experiment, results).tables.values():
                table.rich(), table.markdown(), table.csv()
        return True
    except InputError:
        return False
    finally:
        after = {place for place in top.rglob("*") if folder not in place.parents}
        assert after == before, "something was written elsewhere"


def check_costs(content: Any, folder: Path) -> bool:
    path = folder / "costs.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    try:
        costs = MeasuredCosts.read(path)
    except InputError:
        return False
    for table in measured_cost_tables(costs).values():
        table.rich(), table.markdown(), table.csv()
    assert measured_cost_notes(costs)
    return True


def check_choices(content: Any, folder: Path) -> bool:
    path = folder / "choices.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    try:
        read_choices(path)
    except InputError:
        return False
    return True


def trials(count: int) -> settings:
    return settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )


class TestChanged:
    @trials(60)
    @given(seed=st.integers(0, 2**32))
    def test_results_are_shown_or_refused(self, seed: int, tmp_path: Path) -> None:
        check_results(changed(RESULTS["table1"], random.Random(seed)), tmp_path, drawn=False)

    @trials(8)
    @given(seed=st.integers(0, 2**32), name=st.sampled_from(sorted(RESULTS)))
    def test_figures_are_drawn_or_refused(self, seed: int, name: str, tmp_path: Path) -> None:
        check_results(changed(RESULTS[name], random.Random(seed)), tmp_path, drawn=True)

    @trials(200)
    @given(seed=st.integers(0, 2**32))
    def test_costs_are_shown_or_refused(self, seed: int, tmp_path: Path) -> None:
        check_costs(changed(COSTS, random.Random(seed)), tmp_path)

    @trials(200)
    @given(seed=st.integers(0, 2**32))
    def test_choices_are_read_or_refused(self, seed: int, tmp_path: Path) -> None:
        check_choices(changed({"choices": RESULTS["table1"]["tuning"]}, random.Random(seed)), tmp_path)

    @pytest.mark.soak
    @trials(3000)
    @given(seed=st.integers(0, 2**32), name=st.sampled_from(sorted(RESULTS)))
    def test_results_are_shown_or_refused_very_often(self, seed: int, name: str, tmp_path: Path) -> None:
        draw = random.Random(seed)
        check_results(changed(RESULTS[name], draw), tmp_path, drawn=draw.random() < 0.2)

    @pytest.mark.soak
    @trials(20_000)
    @given(seed=st.integers(0, 2**32))
    def test_costs_are_shown_or_refused_very_often(self, seed: int, tmp_path: Path) -> None:
        check_costs(changed(COSTS, random.Random(seed)), tmp_path)


class TestUnchanged:
    @pytest.mark.parametrize("path", sorted(set(KEPT.rglob("*.json")) - {KEPT / "costs.json"}), ids=lambda p: p.stem)
    def test_results_of_the_repository_are_read(self, path: Path) -> None:
        assert Results.read(path).runs

    def test_results_of_the_repository_leave_room_for_more(self) -> None:
        assert max(path.stat().st_size for path in KEPT.rglob("*.json")) < 700 * 1024

    def test_results_before_any_change_are_accepted(self, tmp_path: Path) -> None:
        """Else the tests above would hold for an empty reason."""
        assert all(check_results(content, tmp_path, drawn=name == "table1") for name, content in RESULTS.items())
        assert check_costs(COSTS, tmp_path)
        assert check_choices({"choices": RESULTS["table1"]["tuning"]}, tmp_path)


@pytest.mark.parametrize(
    ("way", "value", "words"),
    [
        (("runs", 1, "status"), "lost", r"runs\[1\]\.status should be one of running, .* not 'lost'"),
        (("runs", 1, "seed"), 1.5, r"runs\[1\]\.seed should be a whole number, not 1\.5"),
        (("runs", 0, "settings", "clients"), "many", r"clients should be a whole number, not 'many'"),
        (("runs", 0, "settings", "dataset"), [], r"runs\[0\]\.settings\.dataset should be text, not \[\]"),
        (("runs", 0, "settings", "algorithm"), [], r"runs\[0\]\.settings\.algorithm should be text, not \[\]"),
        (("runs", 0, "columns", "round"), [1, 2], r"runs\[0\]\.columns should have equally many values"),
        (("runs", 0, "columns", "round"), [3, 2, 1], r"columns\.round should be rounds in their order"),
        (("runs", 0, "columns", "scored_accuracy", 1), "half", r"scored_accuracy\[1\] should be a number, not 'half'"),
        (("runs", 0, "last", "round"), None, r"runs\[0\]\.last\.round should be a whole number"),
        (("runs", 0, "cell"), "../../a", r"runs\[0\]\.cell should be names with slashes"),
        (("runs", 0, "entry"), "adabest,beta", r"runs\[0\]\.entry should be an algorithm with options"),
        (("runs", 0, "partition"), {"a": 1}, r"runs\[0\]\.partition lacks fingerprint"),
        (("tuning", 0, "grid", 0, "status"), [], r"tuning\[0\]\.grid\[0\] should have a status"),
        (("tuning", 0, "grid", 0), {"point": {}}, r"grid\[0\] lacks .*status"),
        (("runs", 0, "reason"), "\ud800", r"runs\[0\]\.reason should be text"),
        (("experiment",), 3, r"experiment should be text, not 3"),
    ],
)
def test_the_message_names_the_place(way: tuple[Any, ...], value: Any, words: str, tmp_path: Path) -> None:
    content = copy.deepcopy(RESULTS["table1"])
    parent = content
    for step in way[:-1]:
        parent = parent[step]
    parent[way[-1]] = value
    (tmp_path / "r.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(InputError, match=rf"r\.json.*{words}"):
        Results.read(tmp_path / "r.json")


@pytest.mark.parametrize("text", ["NaN", "[" * 100_000, "9" * 5000, '{"experiment": Infinity}', "\ufeff{}"])
def test_text_that_is_no_json_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"r\.json"):
        Results.read(tmp_path / "r.json")
