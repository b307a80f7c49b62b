"""Commands import what they need, and nothing that another command needs."""

import subprocess
import sys
from pathlib import Path

import pytest

from adabest.cli.catalog import COMMANDS

HEAVY = ("torch", "numpy", "scipy", "sklearn", "matplotlib", "sympy", "rich", "adabest.experiments.single_run")
# Their help lists the hyper-parameters of classes that need torch.
WITH_HYPERPARAMETERS = ("run", "compare", "sweep", "tune")


def imported(*words: str) -> set[str]:
    """The modules that a command line leaves behind."""
    code = (
        "import sys\nfrom adabest.cli import main\n"
        f"try:\n    main({list(words)!r})\nexcept SystemExit:\n    pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize("words", [["--version"], ["--help"], []])
def test_what_needs_no_parser_imports_none(words: list[str]) -> None:
    assert not imported(*words) & {*HEAVY, "tyro", "adabest.cli.parser"}


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - set(WITH_HYPERPARAMETERS)))
def test_help_without_hyper_parameters_imports_no_torch(name: str) -> None:
    found = imported(name, "--help")
    assert not found & set(HEAVY)
    assert {module for module in found if module.startswith("adabest.cli.commands.")} == {
        f"adabest.cli.commands.{name.replace('-', '_')}"
    }


def test_help_with_hyper_parameters_imports_torch_and_little_else() -> None:
    """One process prints the help of all of them: torch is imported once, and what one imports stays there."""
    unused = ["scipy", "sklearn", "matplotlib", "sympy", "rich", "adabest.experiments.single_run"]
    code = (
        "import sys\nfrom adabest.cli import main\n"
        f"for name in {WITH_HYPERPARAMETERS}:\n"
        "    try:\n        main([name, '--help'])\n    except SystemExit:\n        pass\n"
        f"    print(name, [module for module in {unused} if module in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == [f"{name} []" for name in WITH_HYPERPARAMETERS]
    assert all(f"usage: adabest {name} " in done.stdout for name in WITH_HYPERPARAMETERS)


def test_a_run_imports_nothing_of_comparisons_figures_and_the_paper(tmp_path: Path) -> None:
    found = imported("run", "--rounds", "1", "--epochs", "1", "--clients", "5", "--out", str(tmp_path / "run"))
    assert "adabest.experiments.single_run" in found
    unused = {"matplotlib", "scipy", "sklearn", "sympy", "torch._dynamo", "torch._inductor"}
    unused |= {"adabest.experiments.comparison", "adabest.report.figure", "adabest.costs.count"}
    assert not found & unused
    assert not {module for module in found if module.startswith("adabest.paper")}


def test_figures_are_imported_after_the_runs_that_they_show() -> None:
    names = ("comparison", "sweep", "tuning")
    code = "import sys\n" + "".join(
        f"import adabest.experiments.{name}\nprint('{name}', 'matplotlib' in sys.modules)\n" for name in names
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{name} False" for name in names]
