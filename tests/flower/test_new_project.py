"""New projects: what ``adabest new-flower-app`` writes works as it stands."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from adabest.cli import main
from adabest.cli.exit_codes import DONE
from adabest.errors import InputError
from adabest.flower.new_project import new_flower_app
from adabest.flower.project import Terms
from adabest.runs.settings.config import SETTINGS

FILES = {
    ".gitignore",
    "README.md",
    "keys.sh",
    "pyproject.toml",
    "my_federation/__init__.py",
    "my_federation/client_app.py",
    "my_federation/project.py",
    "my_federation/server_app.py",
    "tests/test_project.py",
}


def test_a_project_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new-flower-app", "my-federation"]) == DONE
    assert "my-federation is a project to edit; my-federation/README.md says how" in " ".join(
        capsys.readouterr().out.split()
    )
    folder = tmp_path / "my-federation"
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == FILES
    texts = [path.read_text() for path in folder.rglob("*") if path.is_file() and path.suffix != ".sh"]
    assert not any("$" in text.replace("$PWD", "") for text in texts)
    settings = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    known = {name.replace("_", "-") for name in [*SETTINGS, *vars(Terms())]}
    assert settings.keys() <= known
    assert settings["out"] == f"{folder}/runs/first"


def test_the_projects_own_test_passes(tmp_path: Path) -> None:
    new_flower_app(str(tmp_path / "mine"))
    # `python -m pytest` would add the project to the path; `pytest`, which its pages name, doesn't.
    command = [sys.executable, "-c", "import sys, pytest; sys.path.pop(0); sys.exit(pytest.console_main())", "-q"]
    done = subprocess.run(command, cwd=tmp_path / "mine", capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


@pytest.mark.parametrize(
    "name", ["Mine", "my_app", "1st", "", "class", "adabest", "flwr", "tests", "a--b", "é", "a/../b c"]
)
def test_a_name_that_cannot_be_a_projects_is_an_error(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="can't be a project's name; take lower-case letters, digits and dashes"):
        new_flower_app(name)
    assert not any(tmp_path.iterdir())


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match="mine exists; take another name, or move it away"):
        new_flower_app(str(tmp_path / "mine"))
    assert not any((tmp_path / "mine").iterdir())


def test_keys_are_made_for_the_server_and_every_node(tmp_path: Path) -> None:
    folder = new_flower_app(str(tmp_path / "mine"))
    if not all(map(shutil.which, ("openssl", "ssh-keygen"))):
        pytest.skip("openssl or ssh-keygen isn't installed")
    command = ["sh", "keys.sh", "2", "server.example.org", "8888"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    keys = {path.name for path in (folder / "keys").iterdir()}
    assert keys >= {"ca.crt", "ca.key", "server.pem", "server.key", "node0", "node0.pub", "node1", "node1.pub"}
    assert all((folder / "keys" / name).stat().st_mode & 0o077 == 0 for name in ("ca.key", "server.key", "node0"))
    named = tomllib.loads((folder / "flower" / "config.toml").read_text())["superlink"]["federation"]
    assert named == {"address": "server.example.org:8888", "root-certificates": f"{folder}/keys/ca.crt"}
    before = {name: (folder / "keys" / name).read_bytes() for name in keys}
    again = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "keys/ has keys already" in again.stderr
    assert before == {path.name: path.read_bytes() for path in (folder / "keys").iterdir()}
    shown = ["openssl", "verify", "-verify_hostname", "server.example.org", "-CAfile", "keys/ca.crt", "keys/server.pem"]
    assert subprocess.run(shown, cwd=folder, check=True, capture_output=True, text=True).stdout.endswith("OK\n")
