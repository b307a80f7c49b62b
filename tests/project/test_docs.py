"""The docs: the site builds without a warning, and all that pages tell the reader to run works."""

import importlib
import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch
from docs_pages import ROOT, Page, Step, pages, read, run_page
from docs_site import build
from quadratics import random_quadratics, simulate
from scored import scored_model
from small import METRICS

import adabest
from adabest.algorithms.catalog import ALGORITHMS
from adabest.algorithms.fedavgm import FedAvgM
from adabest.cli.catalog import COMMANDS
from adabest.runs.files import folder
from adabest.runs.settings.config import SETTINGS

PAGES = pages()
MARKDOWN_LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


# --- The site ---------------------------------------------------------------------------------------------------------


def text_of(site: Path, page: str) -> str:
    return (site / page / "index.html").read_text(encoding="utf-8")


def test_every_page_is_built(site: Path) -> None:
    for path in (ROOT / "docs").rglob("*.md"):
        place = path.relative_to(ROOT / "docs").with_suffix("")
        assert "<article" in text_of(site, "" if place.name == "index" else place.as_posix())


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loaded = set()
    for path in site.rglob("*.html"):
        tags = re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", path.read_text(encoding="utf-8"))
        loaded |= {url for tag in tags for url in re.findall(r'(?:src|href)="((?:https?:)?//[^"]+)"', tag)}
    assert loaded == set()


def test_the_reference_has_what_the_package_has(site: Path) -> None:
    for name in COMMANDS:
        assert f"usage: adabest {name} " in text_of(site, "reference/commands")
    settings = text_of(site, "reference/settings").replace("<wbr>", "")
    for name in SETTINGS:
        assert f"<td><code>{name}</code></td>" in settings
    for name in ALGORITHMS.builtin:
        assert f'<h3 id="{name}">' in settings
    zoo = text_of(site, "reference/zoo")
    for listed in adabest.list_algorithms():
        assert f"<td><code>{listed.name}</code></td>" in zoo
        assert f"<td>{listed.paper}</td>" in zoo
    assert "<td><code>beta</code></td>" in settings
    pages = text_of(site, "reference/python") + text_of(site, "reference/algorithms")
    for name in set(adabest.__all__) - {"__version__"}:
        assert f'id="adabest.{name}"' in pages, name
    files = text_of(site, "reference/run-folder")
    assert "<td><code>metrics.jsonl</code></td>" in files
    assert 'id="adabest.run"' in text_of(site, "reference/python")
    assert 'id="adabest.AdaBest"' in text_of(site, "reference/algorithms")
    for path in site.rglob("*.html"):
        assert "generated:" not in path.read_text(encoding="utf-8"), path


def test_docstrings_are_put_into_markdown(site: Path) -> None:
    """Else their tables and literal blocks would be shown as they are written."""
    for page in ("reference/algorithms", "reference/engine"):
        shown = re.sub(r"<details.*?</details>", "", text_of(site, page), flags=re.DOTALL)  # without the source
        assert "====" not in shown
        assert not re.search(r"::\s*</p>", shown)


def test_no_formula_is_taken_for_emphasis(site: Path) -> None:
    """Markdown sees emphasis in θ̄_t − h_t: such a formula goes between dollars or into code."""
    for path in site.rglob("*.html"):
        emphasised = re.findall(r"<em>(.*?)</em>", path.read_text(encoding="utf-8"), re.DOTALL)
        assert [text for text in emphasised if re.search(r"[_{}=]", text)] == [], path


def test_every_metric_is_explained() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    explained = tuple(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert explained[: len(METRICS)] == METRICS
    of_local_tests = [f"local_global_{part}" for part in ("accuracy", "spread", "worst_tenth", "best_tenth")]
    assert [*explained[len(METRICS) :]] == [*of_local_tests, "local_own_accuracy"]


def test_every_file_of_a_run_is_explained() -> None:
    """The page is made of the module's docstring; here that is compared with what the module calls its own."""
    listed = set(re.findall(r"^``([\w./]+)``", str(folder.__doc__), re.MULTILINE))
    ours = {name for name in folder._OURS if not name.startswith(".")} - {folder.CHECKPOINTS, *folder.MODELS.values()}
    assert listed == ours | {f"{folder.CHECKPOINTS}/", folder.MODELS["scored"]}


def test_a_page_that_cannot_be_reached_ends_the_build(tmp_path: Path) -> None:
    pytest.importorskip("latex2mathml", reason="latex2mathml isn't installed: it comes with adabest[docs]")
    (tmp_path / "docs").mkdir()
    for name in ("index", "forgotten"):
        (tmp_path / "docs" / f"{name}.md").write_text(f"# {name}\n")
    validation = re.search(r"^validation:\n(?:  .*\n)+", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M)
    assert validation
    (tmp_path / "mkdocs.yml").write_text(f"site_name: test\nnav: [index.md]\n{validation[0]}")
    built = build(tmp_path / "site", "--config-file", str(tmp_path / "mkdocs.yml"))
    assert built.returncode != 0
    assert "forgotten.md" in built.stderr


# --- What pages tell the reader to run --------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [page for page in PAGES if page.steps], ids=lambda page: page.name)
def test_what_a_page_shows_works(page: Page, tmp_path: Path) -> None:
    run_page(page, tmp_path)


def test_pages_are_taken_apart() -> None:
    text = dedent("""\
        ```sh
        make demo
        adabest run --rounds 1 \\
                    --seed 2   # why not
          adabest indented
        adabest list
        ```

        ```python title="mine.py"
        x = 1
        ```

        <!-- not run: it would delete everything -->

        ```python
        delete_everything()
        ```

        - In a list:

            ```python
            if True:
                y = 2
            ```

        ```text
        adabest isn't a command here
        ```
        """)
    steps = (
        Step("sh", 3, "adabest run --rounds 1 --seed 2   # why not"),
        Step("sh", 6, "adabest list"),
        Step("python", 22, "if True:\n    y = 2"),
    )
    assert read("page", text) == Page("page", steps, {"mine.py": "x = 1\n"})


def test_commands_are_found_in_the_readme_and_the_tutorial() -> None:
    found = {page.name: len(page.steps) for page in PAGES}
    assert found["README.md"] > 4
    assert found["docs/tutorial.md"] > 5


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("```sh\nadabest run --rouds 3\n```", "exit code 2"),
        ("```sh\nadabest run --alpha 0 --out runs/x\n```", "alpha = 0.0"),
        ("```python\nimport adabest\nadabest.load('nothing')\n```", "InputError: there is no run in nothing"),
        ("```sh\npython examples/nothing.py\n```", "FileNotFoundError"),
    ],
)
def test_a_step_that_fails_is_named(block: str, problem: str, tmp_path: Path) -> None:
    page = read("docs/page.md", f"Text.\n\n{block}\n")
    with pytest.raises(AssertionError, match=r"^docs/page\.md, line 4: ") as failure:
        run_page(page, tmp_path)
    assert problem in str(failure.value)


def test_runs_of_pages_are_small_but_as_written(tmp_path: Path) -> None:
    text = "```sh\nadabest run --rounds 300 --epochs 7 --alpha 0.7 --beta 0.3 --clients 5 --out runs/x\n```\n"
    run_page(read("page", text), tmp_path)
    run = adabest.load(tmp_path / "runs" / "x")
    assert (run.status, run.round, run.config.epochs) == ("finished", 2, 1)
    assert (run.config.alpha, run.config.clients, run.config.hyperparameters["beta"]) == (0.7, 5, 0.3)


def test_the_algorithm_that_is_shown_is_right() -> None:
    """FedAvgM of the page against the one that is compared with a loop in plain NumPy."""
    (page,) = (page for page in PAGES if page.name == "docs/how-to/add-an-algorithm.md")
    namespace: dict[str, Any] = {"__name__": "page"}
    exec(page.files["my_module.py"], namespace)
    task = random_quadratics(0, 4, unbalanced=True)
    shown, proven = (simulate(kind(beta=0.7), task) for kind in (namespace["FedAvgM"], FedAvgM))
    for _ in range(6):
        shown.step()
        proven.step()
        assert torch.equal(shown.state.cloud, proven.state.cloud)
        assert torch.equal(scored_model(shown), scored_model(proven))
    assert shown.state.bytes_up == proven.state.bytes_up


# --- What pages refer to ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_files_that_are_linked_to_are_there(name: str) -> None:
    links = [link for link in MARKDOWN_LINK.findall((ROOT / name).read_text(encoding="utf-8")) if "://" not in link]
    assert [link for link in links if not (ROOT / link).exists()] == []
    assert links or name != "README.md"


def test_the_way_of_an_image_can_be_followed_in_the_code() -> None:
    """Every module and name that the page of the architecture mentions is there, in the room whose step names it."""
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    followed = 0
    for room, step in re.findall(r"^\d+\. \*\*`(\w+)/`\*\*(.*?)(?=^\d+\. |^Beside)", text, re.MULTILINE | re.DOTALL):
        for module, name in re.findall(r"`([a-z_]+)\.(\w+)[^`]*`", step):
            if name != "py" and (ROOT / "src" / "adabest" / room / f"{module}.py").is_file():
                assert hasattr(importlib.import_module(f"adabest.{room}.{module}"), name), f"{room}.{module}.{name}"
                followed += 1
    assert followed > 8


def test_tests_that_are_named_are_there() -> None:
    """An explanation may name the test that holds it true."""
    there = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        there |= {path.stem, *re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))}
    named = set()
    for path in (ROOT / "docs").rglob("*.md"):
        named |= set(re.findall(r"`(test_\w+)`", path.read_text(encoding="utf-8"))) - {"test_share"}  # an option
    assert len(named) > 5
    assert named <= there
