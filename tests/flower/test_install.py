"""``pip install 'adabest[flower]'`` in an empty environment."""

import importlib.metadata
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytest.importorskip("flwr", reason="Flower isn't installed: make federation has an environment with it")


def test_the_extra_installs_into_an_empty_environment(tmp_path: Path) -> None:
    """PyTorch comes first, in the version that is here: else pip may bring gigabytes of CUDA along."""

    def do(command: Sequence[str]) -> str:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    do([sys.executable, "-m", "venv", "new"])
    python = str(tmp_path / "new" / "bin" / "python")
    version = importlib.metadata.version("torch").partition("+")[0]
    do([python, "-m", "pip", "install", "--quiet", f"torch=={version}"])
    do([python, "-m", "pip", "install", "--quiet", f"{ROOT}[flower]"])
    do([python, "-m", "pip", "check"])
    do([str(tmp_path / "new" / "bin" / "adabest"), "new-flower-app", "mine"])
    code = "from mine.server_app import app as server; from mine.client_app import app; print(type(app).__name__)"
    assert do([python, "-c", f"import sys; sys.path.insert(0, 'mine'); {code}"]).strip() == "ClientApp"
