"""The rooms of the house: each imports only from rooms below it, and only some know of devices."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib import resources
from pathlib import Path

import pytest
from imports import imports_of, tree_of

import adabest

SOURCE = Path(adabest.__file__).parent
PROJECT = Path(__file__).parents[2]

# From the cellar to the roof. What stands in one line may not import each other, unless said below.
FLOORS = (
    ("errors",),
    ("registry", "random", "global_generators", "machine", "extras", "model_part"),
    ("stop_requests", "noise"),
    ("data",),
    ("federation",),
    ("models",),
    ("tasks",),
    ("algorithms",),
    ("engine",),
    ("runs",),
    ("report",),
    ("costs",),
    ("experiments",),
    ("paper",),
    ("flower",),
    ("cli",),
    ("__init__", "__main__"),
)
LEVEL = {room: level for level, floor in enumerate(FLOORS) for room in floor}

# Rooms that must not know each other, although one is below the other.
STRANGERS = {
    "models": {"data", "federation"},
    "tasks": {"algorithms"},
    "algorithms": {"data", "federation", "models", "random", "tasks"},
}

FILES = sorted(SOURCE.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def rooms_used(path: Path) -> set[str]:
    """The rooms that a file imports from; ``__init__`` for the package itself."""
    parts = [name.split(".") for name in imports_of(path) if name.split(".")[0] == "adabest"]
    return {part[1] if len(part) > 1 and part[1] in LEVEL else "__init__" for part in parts}


def test_every_file_has_a_room() -> None:
    assert len(FILES) > 30
    assert {room_of(path) for path in FILES} == LEVEL.keys()


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_lower_rooms_never_import_higher_ones(path: Path) -> None:
    room = room_of(path)
    higher = {used for used in rooms_used(path) if used != room and LEVEL[used] >= LEVEL[room]}
    assert not higher
    assert not rooms_used(path) & STRANGERS.get(room, set())


def module_imported(name: str) -> str:
    """The module that an imported name is, or lies in, as in ``engine.gpu.program``."""
    parts = name.split(".")[1:]
    place = SOURCE.joinpath(*parts)
    return ".".join(parts if place.is_dir() or place.with_suffix(".py").is_file() else parts[:-1])


def package_of(module: str) -> str:
    return module if SOURCE.joinpath(*module.split(".")).is_dir() else module.rpartition(".")[0]


def package_graph(files: list[Path]) -> dict[str, set[str]]:
    """Which packages the modules of each package import from; modules outside of any room, as ``errors``, are left out.

    An ``__init__.py`` doesn't count: it only says what its package is.
    """
    graph: dict[str, set[str]] = {}
    for path in files:
        package = ".".join(path.relative_to(SOURCE).parent.parts)
        if path.name == "__init__.py" or not package:
            continue
        modules = {module_imported(name) for name in imports_of(path) if name.startswith("adabest.")}
        graph.setdefault(package, set()).update({package_of(module) for module in modules} - {"", package})
    return graph


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    """Packages that import each other in a circle; none if there is no circle."""

    def walk(path: list[str]) -> list[str]:
        for used in sorted(graph.get(path[-1], set())):
            if used in path:
                return [*path[path.index(used) :], used]
            if used not in finished and (found := walk([*path, used])):
                return found
        finished.add(path[-1])
        return []

    finished: set[str] = set()
    return next((found for package in sorted(graph) if (found := walk([package]))), [])


def test_packages_import_each_other_in_no_circle() -> None:
    graph = package_graph(FILES)
    assert {"engine", "engine.cpu", "engine.gpu", "runs.callbacks", "report.page"} <= graph.keys()
    assert cycle_in(graph) == []


def test_a_circle_of_packages_is_found() -> None:
    """Also one of a package and the one that it lies in, which the order of the floors can't tell."""
    graph = {"engine": {"engine.cpu"}, "engine.cpu": {"engine.gpu"}, "engine.gpu": {"engine", "data"}, "data": set()}
    assert cycle_in(graph) == ["engine", "engine.cpu", "engine.gpu", "engine"]


def test_rooms_promise_nothing_of_their_own() -> None:
    """``adabest/__init__.py`` is the one public surface; the ``__init__.py`` of a room is a docstring."""
    for path in FILES:
        if path.name == "__init__.py" and path.parent != SOURCE and room_of(path) != "cli":
            body = tree_of(path).body
            assert len(body) == 1, name_of(path)
            assert isinstance(body[0], ast.Expr), name_of(path)


def test_the_test_sees_imports() -> None:
    """Else the one above would hold for an empty reason."""
    assert rooms_used(SOURCE / "cli" / "commands" / "tune.py") >= {"experiments", "runs", "registry"}
    assert rooms_used(SOURCE / "engine" / "simulation.py") == {
        "algorithms",
        "engine",
        "errors",
        "federation",
        "tasks",
    }
    assert rooms_used(SOURCE / "algorithms" / "adabest.py") == {"algorithms", "errors"}


def test_the_engine_knows_no_algorithm_by_name() -> None:
    for path in (SOURCE / "engine").rglob("*.py"):
        used = {name for name in imports_of(path) if name.startswith("adabest.algorithms")}
        assert all(name.startswith(("adabest.algorithms.base.", "adabest.algorithms.forms.")) for name in used), path
        words = {word.lower() for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
        assert not words & {"fedavg", "fedprox", "scaffold", "feddyn"}, name_of(path)


def test_only_the_engine_knows_of_devices() -> None:
    """A device is chosen in runs/build.py, set up in runs/process_settings.py and used in engine/.

    A task has its data there, models/vector.py puts a module where it is told, models/factory.py counts parameters
    where nothing is stored, costs/section_timer.py waits for it, runs/callbacks/memory_use.py asks how full it is, and
    global_generators.py reads the states of its generators.
    """
    mentions = re.compile(r"\.cuda\b|torch\.device|\.to\((?:self\._)?device|\bmps\b")
    knowing = {name_of(path) for path in FILES if mentions.search(path.read_text(encoding="utf-8"))}
    outside = {name for name in knowing if not name.startswith("engine/")}
    assert outside == {
        "costs/section_timer.py",
        "global_generators.py",
        "models/factory.py",
        "models/vector.py",
        "runs/build.py",
        "runs/callbacks/memory_use.py",
        "runs/process_settings.py",
        "tasks/classification.py",
        "tasks/one_client.py",
    }
    assert len(knowing) > len(outside)


def test_nothing_is_unpickled() -> None:
    """A checkpoint or model from someone else must not be able to run code.

    The one exception are CIFAR's official pickles, once their md5 sum has matched; test_damaged_files.py holds that.
    """
    unpickling = {"pickle", "shelve", "joblib", "dill"}
    assert {name_of(path) for path in FILES if unpickling & {name.split(".")[0] for name in imports_of(path)}} == {
        "data/cifar.py"
    }
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) not in {("torch", "load"), ("torch", "save")}, name_of(path)
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant), name_of(path)
                assert node.value.value is False, name_of(path)


def called(node: ast.AST) -> str:
    """The last word of what is called, as in ``importlib.import_module``."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def test_only_the_registry_imports_by_a_name_that_was_read() -> None:
    """Its rule, that a call must have named it, would else be one of several ways in."""
    importing = {"import_module", "__import__", "exec_module", "run_path", "run_module", "resolve_name", "eval", "exec"}
    found = set()
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            literal = isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)
            method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and called(node) == "eval"
            if called(node) in importing and not literal and not method:  # module.eval() is torch's
                found.add(name_of(path))
            if isinstance(node, ast.Attribute) and node.attr == "path" and isinstance(node.value, ast.Name):
                assert node.value.id != "sys" or name_of(path) == "registry.py", f"{name_of(path)} changes sys.path"
            if called(node) == "entry_points":
                assert name_of(path) == "registry.py"
    assert found == {"registry.py", "__init__.py"}  # which imports rooms of its own, by names that stand in it


def test_only_the_command_line_prints() -> None:
    printing = {
        name_of(path)
        for path in FILES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert printing == {"cli/__init__.py", "cli/commands/list.py", "cli/failures.py", "flower/apps.py"}


def test_types_are_shipped() -> None:
    assert resources.files("adabest").joinpath("py.typed").is_file()
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "py.typed" in settings["tool"]["setuptools"]["package-data"]["adabest"]


def test_the_version_is_the_projects() -> None:
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    assert adabest.__version__ == settings["project"]["version"]


def test_what_is_public_is_there() -> None:
    assert len(adabest.__all__) == len(set(adabest.__all__))
    for name in adabest.__all__:
        assert hasattr(adabest, name)


def test_no_public_name_is_that_of_a_room() -> None:
    """Whoever imports the room would find the module in the place of the name."""
    assert not set(adabest.__all__) & LEVEL.keys()


def test_the_paper_could_be_taken_out() -> None:
    """Only its command and the lazy public names know of it; all other public names work without."""
    outside = [path for path in FILES if room_of(path) not in ("paper", "cli", "__init__")]
    assert not [name_of(path) for path in outside if "paper" in rooms_used(path)]
    others = [name for name in adabest.__all__ if name not in ("Forecast", "Reproduced", "forecast", "reproduce")]
    code = f"import sys; sys.modules['adabest.paper'] = None; import adabest; [getattr(adabest, n) for n in {others}]"
    assert output_of(f"{code}; print('whole')") == "whole"


def test_reports_load_no_data() -> None:
    loading = {"adabest.data.loading", "adabest.data.files", "adabest.data.location", "adabest.runs.build"}
    for path in (SOURCE / "report").rglob("*.py"):
        used = {name.rpartition(".")[0] for name in imports_of(path)}
        assert not used & loading, name_of(path)
        assert "adabest.runs.settings.config.resolve" not in imports_of(path), name_of(path)


def test_only_costs_imports_sympy_and_only_when_costs_are_asked_for() -> None:
    importing = {name_of(path) for path in FILES if "sympy" in {name.split(".")[0] for name in imports_of(path)}}
    assert importing == {"costs/formula.py"}
    public = "adabest.compare, adabest.tune, adabest.write_report, adabest.illustrate"
    asked = "print('sympy' in sys.modules)"
    code = f"import adabest, sys; {public}; {asked}; adabest.round_costs; {asked}"
    assert output_of(code).split() == ["False", "True"]


def output_of(code: str) -> str:
    """What another Python prints."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
