"""The package as users install it: a wheel, away from this checkout."""

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as ``pip`` does it, of a copy of the project: a build leaves files beside its sources."""
    place = tmp_path_factory.mktemp("wheel")
    source = place / "project"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (source / name).write_bytes((ROOT / name).read_bytes())
    for path in (ROOT / "src" / "adabest").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            copy = source / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    line = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    done = subprocess.run([*line, str(place), str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = place.glob("adabest-*.whl")
    return built


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    package = ROOT / "src"
    own = {
        path.relative_to(package).as_posix()
        for path in (package / "adabest").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("adabest/")}
    assert packed == own


def test_an_installed_wheel_runs_from_elsewhere(wheel: Path, tmp_path: Path) -> None:
    """Its files alone, with the dependencies of this environment; so what it reads at run time must be in it."""
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    program = (
        "import sys; sys.path[:0] = sys.argv[1:3]; import adabest\n"
        "assert adabest.__file__.startswith(sys.argv[1]), adabest.__file__\n"
        "from adabest.cli import main\n"
        "assert main(['run', '--rounds', '1', '--clients', '4', '--out', 'made']) == 0\n"
        "assert main(['report', 'made', '--html', 'made.html']) == 0\n"
        "from adabest.paper.specification import read_specification\n"
        "assert read_specification('table1').name == 'table1'\n"
        "from adabest.paper import facts\n"
    )
    packages = sysconfig.get_path("purelib")
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(installed), packages],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "made.html").is_file()
