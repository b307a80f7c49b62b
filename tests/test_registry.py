"""Names find what is built in, what is installed, and what is one's own; values get their types."""

import functools
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Optional

import pytest

from adabest.errors import InputError, nearest
from adabest.registry import Option, Registry, check_options, convert, options_of, split_specification

REGISTRY: Registry[Any] = Registry(kind="thing", group="adabest.tests", builtin={"alpha": 1, "beta": 2})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder from which modules can be imported, and whose modules are forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]
    importlib.invalidate_caches()


def install(folder: Path, entry_points: str) -> None:
    """What ``pip install`` leaves of a package that offers something."""
    info = folder / "plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    (folder / "plugin.py").write_text("class Offer: pass\n")
    importlib.invalidate_caches()


def test_builtin_names_are_found() -> None:
    assert REGISTRY.find("alpha") == 1
    assert REGISTRY.names() == ["alpha", "beta"]


def test_an_installed_package_can_offer_more(folder: Path) -> None:
    install(folder, "[adabest.tests]\ngamma = plugin:Offer\n[adabest.others]\ndelta = plugin:Offer\n")
    assert REGISTRY.names() == ["alpha", "beta", "gamma"]
    assert REGISTRY.find("gamma") is sys.modules["plugin"].Offer
    with pytest.raises(InputError, match="unknown thing 'delta'"):
        REGISTRY.find("delta")


def test_an_installed_package_cannot_replace_what_is_built_in(folder: Path) -> None:
    install(folder, "[adabest.tests]\nalpha = plugin:Offer\n")
    assert REGISTRY.find("alpha") == 1


@pytest.mark.usefixtures("trusting")
def test_an_own_module_is_found(folder: Path) -> None:
    (folder / "own_module.py").write_text("class Outer:\n    class Inner:\n        value = 42\n")
    assert REGISTRY.find("own_module:Outer") is sys.modules["own_module"].Outer
    assert REGISTRY.find("own_module:Outer.Inner.value") == 42


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown thing 'alhpa'; did you mean 'alpha'\? Known: alpha, beta"):
        REGISTRY.find("alhpa")
    with pytest.raises(InputError, match=r"unknown thing 'zzz'; Known: alpha, beta\. .*module:attribute"):
        REGISTRY.find("zzz")


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:Thing", "can't import module 'no_such_module'"),
        ("needs_another:Thing", "can't import module 'needs_another': No module named 'not_installed'"),
        ("complete:Missing", "module 'complete' has no 'Missing'"),
        ("complete:Thing.missing", r"module 'complete' has no 'Thing\.missing'"),
        ("complete:", "thing 'complete:' should have the form module:attribute"),
        (":Thing", "thing ':Thing'"),
        (".complete:Thing", r"thing '\.complete:Thing'"),
    ],
)
def test_import_errors_name_what_is_missing(folder: Path, name: str, message: str) -> None:
    (folder / "needs_another.py").write_text("import not_installed\n")
    (folder / "complete.py").write_text("class Thing: pass\n")
    with pytest.raises(InputError, match=message):
        REGISTRY.find(name)


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("FedSAM", "fedsam", "fedsam"),
        ("SCAFFOLD-M", "scaffold-m", "scaffold-m"),
        ("groupnorm", "GroupNorm", "GroupNorm"),
    ],
)
def test_nearest_knows_names_in_other_cases(name: str, known: str, meant: str) -> None:
    assert nearest(name, ["other", known]).startswith(f"did you mean {meant!r}? Known: ")


def test_nearest_lists_everything_in_order() -> None:
    assert nearest("betta", ["gamma", "beta"]) == "did you mean 'beta'? Known: beta, gamma"


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("adabest", "adabest", {}),
        ("adabest,beta=0.9", "adabest", {"beta": "0.9"}),
        (" mlp , hidden = 10x20 ,other=", "mlp", {"hidden": "10x20", "other": ""}),
        ("module:attribute,key=a=b", "module:attribute", {"key": "a=b"}),
    ],
)
def test_specifications_are_split_into_name_and_options(text: str, name: str, options: dict[str, str]) -> None:
    assert split_specification(text) == (name, options)


@pytest.mark.parametrize("text", ["adabest,", "adabest,beta", "adabest,=3", "adabest,beta=1,,mu=2"])
def test_bad_specifications_are_quoted(text: str) -> None:
    with pytest.raises(InputError, match="key=value"):
        split_specification(text)


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        ("3", int, 3),
        (" -3 ", int, -3),
        (3.0, int, 3),
        ("1e-3", float, 1e-3),
        (2, float, 2.0),
        (True, bool, True),
        ("yes", bool, True),
        ("False", bool, False),
        ("0", bool, False),
        ("text", str, "text"),
        ("a/b", Path, Path("a/b")),
        (Path("a"), Path | None, Path("a")),
        ("b", Literal["a", "b"], "b"),
        (2, Literal[1, 2], 2),
        ("10x20", tuple[int, ...], (10, 20)),
        ("10", tuple[int, ...], (10,)),
        ("", tuple[int, ...], ()),
        ([1, "2"], tuple[int, ...], (1, 2)),
        (None, int | None, None),
        ("4", int | None, 4),
        ("4", Optional[float], 4.0),  # noqa: UP045 - the old spelling is another type
        (None, Literal["a"] | None, None),
        ([1, 2], Any, [1, 2]),
    ],
)
def test_values_get_their_type(value: Any, annotation: Any, expected: Any) -> None:
    converted = convert("key", value, annotation)
    assert converted == expected
    assert type(converted) is type(expected)


@pytest.mark.parametrize(
    ("value", "annotation", "message"),
    [
        ("3.5", int, "key should be a whole number, not '3.5'"),
        (3.5, int, "key should be a whole number, not 3.5"),
        (float("inf"), int, "key should be a whole number, not inf"),
        (True, int, "key should be a whole number, not True"),
        (None, int, "key should be a whole number, not None"),
        ("many", float, "key should be a number, not 'many'"),
        (False, float, "key should be a number, not False"),
        ([1.0], float, "key should be a number"),
        pytest.param(10**400, float, "key should be a number", id="huge-float"),
        ("maybe", bool, "key should be true or false, not 'maybe'"),
        (1, bool, "key should be true or false, not 1"),
        (5, str, "key should be text, not 5"),
        ("", Path, "key should be a path, not ''"),
        (5, Path | None, "key should be a path, not 5"),
        ("az", Literal["abc", "xyz"], r"key = 'az' isn't one of its values; .*Known: abc, xyz"),
        ("10xtwo", tuple[int, ...], "key should be a whole number, not 'two'"),
        (50, tuple[int, ...], "key"),
        (None, tuple[int, ...], "key"),
        ("x", int | None, "key should be a whole number"),
        ("x", float | Literal["auto"], "key should be a number or 'auto', not 'x'"),
        (True, int | Literal["auto", "own"] | None, "key should be a whole number or 'auto' or 'own', not True"),
        (["x"], tuple[int, ...] | bool, "key should be a list or true or false, not"),
        ({}, bytes, "key should be valid"),
        (len, str, "key should be text, not .*; code of yours is named, as in 'builtins:len'"),
        (lambda: 0, str | None, "code of yours is named, as in 'my_module:my_function'"),
    ],
)
def test_values_of_another_type_are_refused_by_name(value: Any, annotation: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        convert("key", value, annotation)


class Configurable:
    def __init__(self, shape: tuple[int, ...], width: int, rate: float = 0.5, *rest: int, on: bool = True) -> None: ...


def configurable(shape: tuple[int, ...], width: int, rate=0.5, **rest: int) -> None:  # type: ignore[no-untyped-def]
    ...


def test_options_are_read_off_classes_and_functions() -> None:
    from dataclasses import MISSING

    expected = {"width": Option(int, MISSING), "rate": Option(float, 0.5), "on": Option(bool, True)}
    assert options_of(Configurable, skip=1) == expected
    assert options_of(configurable, skip=1) == {"width": Option(int, MISSING), "rate": Option(Any, 0.5)}


def test_options_are_read_off_a_partial() -> None:
    # A factory with some settings filled in is the shortest way to one's own model.
    assert "on" in options_of(functools.partial(Configurable, rate=0.1), skip=1)


def test_options_are_checked_by_name_and_type() -> None:
    options = options_of(Configurable, skip=1)
    assert check_options("it", {"width": "3", "on": "no"}, options) == {"width": 3, "on": False}
    assert check_options("it", {}, options) == {}
    with pytest.raises(InputError, match="it has no option 'widht'; did you mean 'width'"):
        check_options("it", {"widht": 3}, options)
    with pytest.raises(InputError, match="it has no option 'width'; it has none"):
        check_options("it", {"width": 3}, {})
    with pytest.raises(InputError, match="rate should be a number"):
        check_options("it", {"rate": "fast"}, options)


def test_own_annotations_are_understood() -> None:
    assert convert("n", "3", int | float) == 3
    assert convert("n", "0.5", int | float) == 0.5
    assert convert("n", "2", Literal[1, 2]) == 2
    assert convert("n", "3x4", tuple[int, int]) == (3, 4)
    with pytest.raises(InputError, match="n should have 2 values, not 3"):
        convert("n", [1, 2, 3], tuple[int, int])


def test_an_entry_point_that_fails_is_named(folder: Path) -> None:
    info = folder / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{REGISTRY.group}]\nbroken = no_such_module:thing\n")
    with pytest.raises(InputError, match="'broken' of the entry point no_such_module:thing: No module named"):
        REGISTRY.find("broken")
