"""The keywords of Python calls are those of the declaration."""

import subprocess
import sys
from pathlib import Path

import pytest

from adabest import AdaBest, InputError
from adabest.runs.keywords import Settings, SharedSettings
from adabest.runs.settings.algorithm_specification import refuse_hyperparameters
from adabest.runs.settings.config import SETTINGS
from tools.keywords import FILE, keywords_text

WRONG = """
from typing import Unpack
from keywords import Settings

def call(**settings: Unpack[Settings]) -> None: ...

call(rounds=3, algorithm="adabest,beta=0.9", precision="float64", loggers=["wandb"])
call(rouns=3)
call(rounds="many")
call(beta=0.9)
"""


def test_the_committed_file_is_current() -> None:
    assert FILE.read_text(encoding="utf-8") == keywords_text(), "run python -m tools.keywords"


def test_every_setting_is_a_keyword() -> None:
    assert set(Settings.__annotations__) == SETTINGS.keys()
    assert SETTINGS.keys() - SharedSettings.__annotations__.keys() == {"algorithm"}


def test_type_checkers_find_wrong_keywords(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "keywords.py").write_text(FILE.read_text(encoding="utf-8"))
    # Without what the keywords import: reading all of torch would take minutes.
    options = ["--follow-imports", "skip", "--ignore-missing-imports", "--cache-dir", str(tmp_path / "cache")]
    command = [sys.executable, "-m", "mypy", *options, "wrong.py", "keywords.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = [line.split(":")[1] for line in done.stdout.splitlines() if ": error: " in line]
    assert found == ["8", "9", "10"], done.stdout


@pytest.mark.parametrize(
    ("algorithm", "right"),
    [
        ("adabest", '"adabest,beta=0.9"'),
        ("adabest,mu=0.1", '"adabest,beta=0.9"'),
        (AdaBest(), "AdaBest(beta=0.9)"),
    ],
)
def test_a_hyper_parameter_as_a_keyword_is_refused_with_the_right_way(algorithm: object, right: str) -> None:
    with pytest.raises(InputError) as refusal:
        refuse_hyperparameters({"rounds": 3, "beta": 0.9}, [algorithm])
    assert str(refusal.value).endswith(f"not as a keyword: {right}")


def test_settings_and_arguments_of_calls_are_no_hyper_parameters() -> None:
    refuse_hyperparameters({"rounds": 3, "out": "here", "nonsense": 1}, ["adabest", "feddyn"])
