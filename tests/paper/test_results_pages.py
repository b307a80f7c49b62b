"""Pages that show results: the committed ones agree with results/*.json, and blocks are filled in as they ask."""

import re
import shutil
from pathlib import Path
from textwrap import dedent

import pytest
from matplotlib.image import imread
from paper_results import everyone, made, of

import adabest
from adabest import InputError
from adabest.cli import main
from adabest.costs.cost_file import MeasuredCosts
from adabest.costs.measured_tables import measured_cost_notes, measured_cost_tables
from adabest.paper.rendering import render
from adabest.paper.specification import read_specification, specification_names
from adabest.runs.results_file import Result, Results
from tools import results
from tools.docs import on_page_markdown
from tools.results import ROOT, outdated

CELL = "cifar100/10/iid"


def test_committed_pages_agree_with_committed_results() -> None:
    """If this fails, run ``python tools/results.py``."""
    assert outdated(ROOT) == []


def test_every_committed_result_can_be_read_and_tells_where_it_comes_from() -> None:
    for path in sorted(set((ROOT / "results").rglob("*.json")) - {ROOT / "results" / "costs.json"}):
        kept = Results.read(path)
        for run in kept.runs:
            assert {"command", "commit", "device", "torch"} <= {k for k, v in run.provenance.items() if v}, path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Some results, and a page that shows one of them."""
    for folder in ("results", "docs/results"):
        (tmp_path / folder).mkdir(parents=True)
    of(everyone([CELL], seeds=1, rounds=1200)).write(tmp_path / "results" / "table1.json")
    of(everyone(["cifar100"]), "fig-stability").write(tmp_path / "results" / "fig-stability.json")
    write(tmp_path, "results/table1.json comparison")
    return tmp_path


def write(root: Path, *blocks: str, within: str = "", page: str = "docs/results/page.md") -> Path:
    """A page with blocks."""
    text = "\n".join(f"Before.\n\n<!-- generated: {block} -->\n{within}<!-- end -->\n\nAfter.\n" for block in blocks)
    (root / page).write_text(text, encoding="utf-8")
    return root / page


def comparison(*runs: Result) -> str:
    return render("table1", of(runs)).tables["comparison"].markdown()


class TestBlocks:
    def test_a_table(self, project: Path) -> None:
        page = project / "docs" / "results" / "page.md"
        before = page.read_text(encoding="utf-8")
        assert outdated(project) == ["docs/results/page.md"]
        assert page.read_text(encoding="utf-8") == before
        assert outdated(project, write=True) == ["docs/results/page.md"]
        table = comparison(*everyone([CELL], seeds=1, rounds=1200))
        begin = "<!-- generated: results/table1.json comparison -->\n"
        assert page.read_text(encoding="utf-8") == f"Before.\n\n{begin}{table}<!-- end -->\n\nAfter.\n"
        assert outdated(project, write=True) == []

    def test_a_page_follows_its_results(self, project: Path) -> None:
        outdated(project, write=True)
        of([made(CELL, "adabest", 55.0, rounds=1200)]).write(project / "results" / "table1.json")
        assert outdated(project, write=True) == ["docs/results/page.md"]
        text = (project / "docs" / "results" / "page.md").read_text(encoding="utf-8")
        assert comparison(made(CELL, "adabest", 55.0, rounds=1200)) in text
        assert "fedavg" not in text

    def test_an_edit_by_hand_is_found(self, project: Path) -> None:
        outdated(project, write=True)
        page = project / "docs" / "results" / "page.md"
        page.write_text(page.read_text(encoding="utf-8").replace("adabest | ", "adabest | 9"))
        assert outdated(project) == ["docs/results/page.md"]

    def test_several_blocks_and_notes(self, project: Path) -> None:
        page = write(project, "results/table1.json headline", "results/table1.json notes", within="Stale.\n")
        outdated(project, write=True)
        text = page.read_text(encoding="utf-8")
        assert "Stale" not in text
        assert text.count("Before.") == text.count("After.") == text.count("<!-- end -->") == 2
        assert text.index("| participation |") < text.index("- Within: ")

    def test_the_readme_counts(self, project: Path) -> None:
        write(project, "results/table1.json headline", page="README.md")
        assert "README.md" in outdated(project)

    def test_several_files_are_taken_together(self, project: Path) -> None:
        of([made(CELL, "adabest", 55.0, seed=7, rounds=1200)]).write(project / "results" / "table1-more.json")
        page = write(project, "results/table1*.json comparison")
        outdated(project, write=True)
        both = [*everyone([CELL], seeds=1, rounds=1200), made(CELL, "adabest", 55.0, seed=7, rounds=1200)]
        assert comparison(*both) in page.read_text(encoding="utf-8")

    def test_another_experiment_beside_it(self, project: Path) -> None:
        variant = made(CELL, "scaffold,clip=0", 45.0, rounds=1200)
        of([variant], "misses-scaffold").write(project / "results" / "misses-scaffold.json")
        plain = [made(cell, "scaffold", 46.0, rounds=1200) for cell in (CELL, "cifar10/10/iid")]
        of(plain).write(project / "results" / "table1.json")
        page = write(project, "results/misses-scaffold.json results/table1.json misses")
        outdated(project, write=True)
        text = page.read_text(encoding="utf-8")
        assert f"| {CELL} | scaffold,clip=0 | 45.00 | 1 | −1.00 |" in text
        assert "cifar10/" not in text

    def test_the_same_runs_as_another_experiment(self, project: Path) -> None:
        page = write(project, "results/fig-stability.json fig-overfitting/final")
        outdated(project, write=True)
        assert "| highest train % (round) |" in page.read_text(encoding="utf-8")

    def test_measured_costs(self, project: Path) -> None:
        shutil.copy(ROOT / "results" / "costs.json", project / "results")
        page = write(project, "results/costs.json communication", "results/costs.json notes")
        outdated(project, write=True)
        costs = MeasuredCosts.read(ROOT / "results" / "costs.json")
        text = page.read_text(encoding="utf-8")
        assert measured_cost_tables(costs)["communication"].markdown() in text
        assert f"- {measured_cost_notes(costs)[0]}\n" in text

    @pytest.mark.parametrize(
        ("block", "problem"),
        [
            ("results/table1.json nothing", "table1 has no 'nothing'; it has headline, comparison, "),
            ("results/missing.json final", "can't read .*missing.json"),
            ("results/table1.json fig-beta/final", "results of table1 can't be shown as fig-beta"),
            ("results/table1.json", "says too little"),
        ],
    )
    def test_a_block_of_what_there_isnt_is_named(self, block: str, problem: str, project: Path) -> None:
        write(project, block)
        with pytest.raises(InputError, match=rf"^docs/results/page\.md: .*{problem}"):
            outdated(project)

    def test_a_block_without_an_end(self, project: Path) -> None:
        page = write(project, "results/table1.json headline", "results/table1.json notes")
        page.write_text(page.read_text(encoding="utf-8").replace("<!-- end -->", "", 1), encoding="utf-8")
        with pytest.raises(InputError, match="has no <!-- end -->"):
            outdated(project)


class TestFigures:
    def test_figures_are_drawn_and_shown(self, project: Path) -> None:
        page = write(project, "results/fig-stability.json fig-stability", "results/table1.json agreement")
        images = [
            f"docs/assets/paper/{name}.{ending}"
            for name in ("fig-stability", "table1-agreement")
            for ending in ("png", "svg")
        ]
        assert outdated(project, write=True) == [
            *(name for name in images if name.endswith("png")),
            "docs/results/page.md",
        ]
        assert "](../assets/paper/fig-stability.png)" in page.read_text(encoding="utf-8")
        assert "](../assets/paper/table1-agreement.png)" in page.read_text(encoding="utf-8")
        assert all((project / name).is_file() for name in images)
        assert imread(project / images[0]).std() > 0.05
        assert outdated(project) == []

    def test_figures_follow_their_results(self, project: Path) -> None:
        write(project, "results/fig-stability.json fig-stability")
        outdated(project, write=True)
        of(everyone(["cifar100"], seeds=2), "fig-stability").write(project / "results" / "fig-stability.json")
        assert outdated(project, write=True) == ["docs/assets/paper/fig-stability.png"]
        (project / "docs/assets/paper/fig-stability.svg").unlink()
        assert outdated(project) == ["docs/assets/paper/fig-stability.png"]

    def test_figures_are_the_same_bytes_every_time(self, project: Path) -> None:
        write(project, "results/fig-stability.json fig-stability")
        written = []
        for _ in range(2):
            outdated(project, write=True)
            written.append([path.read_bytes() for path in sorted((project / "docs/assets/paper").iterdir())])
            for path in (project / "docs/assets/paper").iterdir():
                path.unlink()
        assert written[0] == written[1]

    def test_all_can_be_described(self) -> None:
        for name in specification_names():
            specification = read_specification(name)
            cells = [cell.name for cell in specification.all_cells()][:2]
            runs = everyone(cells, seeds=1, entries=list(specification.entries))
            for figure in render(name, of(runs, name)).figures:
                assert results._image(ROOT / "x.png", ROOT / "README.md", figure).startswith("![")

    @pytest.mark.parametrize(
        ("figure", "words"),
        [
            ("fig-stability", "Test loss, norm"),
            ("fig-stability-emnist", "Test accuracy and norm"),  # which begins like the other, and shows no loss
            ("fig-mu-mnist", "Test accuracy and norm"),
        ],
    )
    def test_each_is_described_by_its_own_words(self, figure: str, words: str) -> None:
        assert results._image(ROOT / "x.png", ROOT / "README.md", figure).startswith(f"![{words} ")


class TestCommand:
    def test_the_tool_checks_or_writes(
        self, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(results, "ROOT", project)
        for arguments, code, said in (
            (["--check"], 1, "docs/results/page.md isn't up to date\n"),
            ([], 0, "wrote docs/results/page.md\n"),
            (["--check"], 0, ""),
        ):
            monkeypatch.setattr("sys.argv", ["results.py", *arguments])
            assert (results.main(), capsys.readouterr().out) == (code, said)
        write(project, "results/missing.json final")
        assert results.main() == 2
        assert "error: docs/results/page.md: " in capsys.readouterr().err


def test_the_site_shows_no_comments() -> None:
    page = dedent("""\
        <!-- generated: results/table1.json comparison -->

        | a |

        <!-- end -->
        """)
    assert re.sub(r"\s", "", on_page_markdown(page, None, None, None)) == "|a|"


class TestFromTheCommandLine:
    def test_results_become_tables_and_figures(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        of(everyone([CELL], seeds=1, rounds=1200)).write(tmp_path / "table1.json")
        of([made(CELL, "adabest", 55.0, seed=7, rounds=1200)]).write(tmp_path / "more.json")
        files = [str(tmp_path / name) for name in ("table1.json", "more.json")]
        assert main(["reproduce", "table1", "--results", *files, "--out", str(tmp_path / "out")]) == 0
        names = {path.name for path in (tmp_path / "out").iterdir()}
        assert {
            "table1.json",
            "table1.md",
            "table1-comparison.csv",
            "table1-agreement.png",
            "table1-curves.svg",
        } <= names
        both = Results.read(tmp_path / "out" / "table1.json")
        assert len(both.runs) == 5
        text = (tmp_path / "out" / "table1.md").read_text(encoding="utf-8")
        assert render("table1", both).tables["ranking"].markdown() in text
        assert "- Within: " in text
        shown = capsys.readouterr().out
        assert "where ours isn't the paper's" in shown
        assert "Not run: " in shown

    def test_the_same_runs_as_another_experiment(self, tmp_path: Path) -> None:
        of(everyone(["cifar100"], seeds=1), "fig-stability").write(tmp_path / "kept.json")
        made_anew = adabest.reproduce("fig-overfitting", results=[tmp_path / "kept.json"], out=tmp_path / "out")
        assert tmp_path / "out" / "fig-overfitting.png" in made_anew.files
        assert list(made_anew.tables) == ["final", "provenance"]
