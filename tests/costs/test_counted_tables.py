"""The tables of costs: what they show, on the command line, on disk and on their page."""

import csv
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import command
from torch import Tensor, nn

import adabest
from adabest.algorithms.base import Replies, ServerContext, Update
from adabest.algorithms.catalog import CORE
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.feddyn import FedDyn
from adabest.costs.cost_file import MeasuredCosts
from adabest.costs.measured_tables import measured_cost_notes, measured_cost_tables
from adabest.errors import InputError

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "costs.md"
HALVES = (
    "compute-client",
    "compute-server",
    "storage-client",
    "storage-server",
    "communication-down",
    "communication-up",
)


@dataclass(frozen=True)
class Halving(FedAvg):
    """FedAvg that looks at every second parameter."""

    def server_step(self, server: Any, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        assert len(cloud[::2] * 2) > 0
        return super().server_step(server, cloud, replies, context)


class TestTables:
    def test_tables_have_one_row_for_each_algorithm(self) -> None:
        found = adabest.round_costs(parameters=10)
        assert tuple(found.tables) == HALVES
        for table in found.tables.values():
            assert [row[0] for row in table.rows] == list(CORE)
        assert found.files == []

    def test_tables_show_formulas_and_their_values(self) -> None:
        """With n = 10, K = 3 and |P| = 4."""
        found = adabest.round_costs(parameters=10, algorithms=["adabest", "fedprox"], steps=3, participants=4)
        rows = {name: table.rows for name, table in found.tables.items()}
        assert rows["compute-client"] == (
            ("adabest", "K(g + 2ns + nm) + ns + nm", "110", "K(g + 2ns + nm) + 2ns + 2nm", "130", "–"),
            ("fedprox", "–", "–", "K(g + 3ns + 2nm) + nm", "160", "–"),
        )
        assert rows["compute-server"] == (
            ("adabest", "|P|ns + 2ns + nm", "70", "|P|(ns + nm) + 2ns + 2nm", "120", "33.3"),
            ("fedprox", "–", "–", "|P|(ns + nm) + nm", "90", "0"),
        )
        assert rows["storage-client"] == (("adabest", "n", "40", "4n + 8", "48"), ("fedprox", "–", "–", "0", "0"))
        assert rows["storage-server"][0] == ("adabest", "n", "40", "4n + 24", "64")
        assert rows["communication-down"][0] == ("adabest", "n", "40", "4n + 4", "44")
        assert rows["communication-up"][1] == ("fedprox", "–", "–", "4n + 4", "44")

    def test_the_papers_numbers_are_as_wide_as_ours(self) -> None:
        found = adabest.round_costs(parameters=10, algorithms=["feddyn"], precision="float64")
        assert found.tables["storage-client"].rows == (("feddyn", "n", "80", "8n", "80"),)

    def test_over_fedavg(self) -> None:
        """Gradients, clipping and weight decay included: (2ns + 2nm)K of our own, (ns + 2nm)K, and Kg on top."""
        found = adabest.round_costs(
            "logistic", algorithms=["fedavg", "adabest"], input_shape="4", classes=2, batch_size=1
        )
        size, gradient, steps = 10, 2 * 2 * 4 * 2, 55
        plain = steps * (gradient + 2 * size + 3 * size)
        more = steps * size + 4 * size
        shares = [row[5] for row in found.tables["compute-client"].rows]
        assert shares == ["0", f"{100 * more / plain:.3g}"]

    def test_an_algorithm_with_full_gradients_can_not_be_compared(self) -> None:
        settings: dict[str, Any] = {"input_shape": "4", "classes": 2}
        found = adabest.round_costs("logistic", algorithms=["feddane"], **settings)
        (row,) = found.tables["compute-client"].rows
        assert row[0] == "feddane"
        assert row[3].startswith("K(g + 3ns + 2nm) + G")
        assert row[5] == "–"

    def test_half_an_operation_for_each_parameter(self) -> None:
        found = adabest.round_costs(parameters=7, algorithms=[Halving()], participants=1)
        (row,) = found.tables["compute-server"].rows
        assert row[3:5] == ("|P|(ns + nm) + 1.5nm", "24.5")

    def test_notes(self) -> None:
        text = "\n".join(adabest.round_costs(parameters=1000, steps=2, participants=3, population=50).notes)
        for part in (
            "appendix “Algorithmic Costs”",
            "n = 1,000 parameters. K = 2 local steps; |P| = 3 of |S| = 50 clients take part in a round; float32.",
            "g isn't known without a model.",
            "add to a client's: K(ns + 2nm), and Kn linalg_vector_norm.\n",
            "n neg (adabest)",
            "2n copy (scaffold, scaffold-m, scaffold-gradient).",
            "12 and 0 (fedavg, fedprox)",
            "1.00 (fedavg, fedprox, feddyn, adabest); 2.00 (scaffold); 1.50 (scaffold-m); 2.50 (scaffold-gradient).",
            "4n bytes of each client that has taken part (200,000 of all |S|) and 8n for their sum",
        ):
            assert part in text


class TestSizes:
    def test_the_papers_network(self) -> None:
        found = adabest.round_costs(algorithms=["fedavg"])
        assert found.sizes.parameters == 797_962
        first, second, dense = 28 * 28 * 64 * 3 * 25, 10 * 10 * 64 * 64 * 25, 1600 * 384 + 384 * 192 + 192 * 10
        # Forward, for the weights, and for the inputs, but for those of the first layer: nobody asks for them.
        assert found.sizes.gradient == 45 * 2 * (3 * (first + second + dense) - first)
        assert found.sizes.described == "cnn, inputs of 3x32x32, 10 classes, batches of 45"

    @pytest.mark.parametrize("shape", ["1x6x6", (1, 6, 6), [36]])
    @pytest.mark.parametrize(
        "model", ["logistic", lambda shape, classes: nn.Sequential(nn.Flatten(), nn.Linear(36, classes))]
    )
    def test_a_linear_model(self, model: Any, shape: Any) -> None:
        found = adabest.round_costs(model, algorithms=["fedavg"], input_shape=shape, classes=3, batch_size=7)
        assert found.sizes.parameters == 37 * 3
        assert found.sizes.gradient == 7 * 2 * 2 * 36 * 3

    def test_a_frozen_layer_has_no_parameters(self) -> None:
        module = nn.Sequential(nn.Flatten(), nn.Linear(36, 5).requires_grad_(False), nn.Linear(5, 3))
        assert adabest.round_costs(module, algorithms=["fedavg"], input_shape="36", classes=3).sizes.parameters == 18

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"steps": 0}, "steps = 0: it must be a whole number above 0"),
            ({"participants": -1}, "participants = -1"),
            ({"population": 2.5}, "population = 2.5"),
            ({"parameters": 0}, "parameters = 0"),
            ({"parameters": True}, "parameters = True"),
            ({"classes": 0}, "classes = 0"),
            ({"batch_size": 0}, "batch_size = 0"),
            ({"participants": 11, "population": 10}, "participants = 11: .* the population of 10"),
            ({"precision": "float16"}, "precision = 'float16' .* Known: float32, float64"),
            ({"precision": "float16", "parameters": 5}, "precision = 'float16'"),
            ({"input_shape": "3x0x32"}, "input_shape = '3x0x32': .* as in 3x32x32"),
            ({"input_shape": ""}, "input_shape = ''"),
            ({"input_shape": "big"}, "input_shape should be a whole number"),
            ({"input_shape": "28x28"}, "cnn needs images"),
            ({"model": "cnm"}, "did you mean 'cnn'"),
            ({"model": 5}, "not something that makes an nn.Module"),
            ({"model": "mlp,hiden=5"}, "did you mean 'hidden'"),
            ({"model": "cnn", "parameters": 5}, "parameters stands for a model .*: drop it, or model"),
            ({"batch_size": 5, "parameters": 5}, "drop it, or batch_size"),
            ({"model": nn.Linear(3, 3), "input_shape": "4", "classes": 3}, "the model can't take inputs of shape"),
            ({"algorithms": []}, "at least one"),
            ({"algorithms": "adabest"}, "a list of names"),
            ({"algorithms": ["adabets"]}, "did you mean 'adabest'"),
            ({"algorithms": ["adabest,bta=1"]}, "did you mean 'beta'"),
            ({"algorithms": ["adabest,beta=2"]}, "beta = 2.0 is out of range"),
            ({"algorithms": ["adabest", "adabest"]}, "'adabest' is named twice"),
            ({"algorithms": [FedDyn]}, "an algorithm should be a name or an Algorithm"),
            ({"algorithms": ["math:pi"]}, "should be a subclass"),
        ],
    )
    def test_mistakes(self, settings: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            adabest.round_costs(**settings)

    def test_mistakes_are_found_before_a_model_is_made(self) -> None:
        def never(input_shape: tuple[int, ...], classes: int) -> nn.Module:
            raise AssertionError

        for wrong in ("steps", "participants", "classes", "batch_size"):
            zero: dict[str, Any] = {wrong: 0}
            with pytest.raises(InputError, match=f"{wrong} = 0"):
                adabest.round_costs(never, **zero)

    def test_a_batch_that_fits_nowhere(self) -> None:
        with pytest.raises(InputError, match=r"would need about .* for 45 inputs of 100000000x100000000"):
            adabest.round_costs("logistic", input_shape="100000000x100000000")


class TestCommand:
    def test_the_command_prints_and_writes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("COLUMNS", "150")
        given = ["--model", "mlp,hidden=5", "--input-shape", "1x6x6", "--classes", "3", "--batch-size", "4"]
        assert command("costs", *given, "--steps", "7", "--out", tmp_path / "costs") == 0
        out = capsys.readouterr().out
        found = adabest.round_costs("mlp,hidden=5", input_shape="1x6x6", classes=3, batch_size=4, steps=7)
        for table in found.tables.values():
            assert table.title in out
            for row in table.rows:
                assert re.search(r"│\s+".join(re.escape(cell) + r"\s+" for cell in row), out), row
        assert all(note in out for note in found.notes)
        for name, table in found.tables.items():
            path = tmp_path / "costs" / f"{name}.csv"
            assert f"Written: {path}\n" in out
            with path.open(encoding="utf-8") as file:
                assert [tuple(row) for row in csv.reader(file)] == [table.head, *table.rows]
        text = (tmp_path / "costs" / "costs.md").read_text(encoding="utf-8")
        assert all(table.markdown() in text for table in found.tables.values())
        assert all(f"- {note}\n" in text for note in found.notes)
        assert not list(tmp_path.rglob("*.partial"))

    def test_figures_stay_in_one_piece_on_a_narrow_terminal(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("COLUMNS", "60")
        assert command("costs", "--parameters", 123456789) == 0
        out = capsys.readouterr().out
        for table in adabest.round_costs(parameters=123456789).tables.values():
            assert all(f" {row[2]} " in out and f" {row[4]} " in out for row in table.rows)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (["--model", "cnm"], "did you mean 'cnn'?"),
            (["--parameters", "5", "--model", "cnn"], "drop it, or model"),
            (["--input-shape", "3,32,32"], "input_shape"),
            (["--participants", "200"], "the population of 100"),
            (["--algorithms", "fedavg", "nowhere:Algorithm"], "nowhere"),
            (["--steps", "many"], "--steps"),
            (["--parameters", "5", "--out", "file/below"], "can't write to the folder file/below: "),
        ],
    )
    def test_mistakes(
        self,
        given: list[str],
        message: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "file").write_text("here")
        assert command("costs", *given) == 2
        out, err = capsys.readouterr()
        assert message in err
        assert "Traceback" not in out + err


class TestPage:
    def test_the_pages_tables_are_those_of_the_command(self, tmp_path: Path) -> None:
        assert command("costs", "--model", "cnn", "--out", tmp_path) == 0
        made = (tmp_path / "costs.md").read_text(encoding="utf-8")
        _, _, rest = PAGE.read_text(encoding="utf-8").partition("a test compares. -->\n\n")
        shown, mark, _ = rest.partition("\n<!-- End of costs.md. -->")
        assert mark
        assert shown == made, (
            "run `adabest costs --model cnn --out costs` and put costs.md into docs/explanation/costs.md"
        )

    def test_the_pages_commands_work(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        lines = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
        assert len(lines) == 4
        for program, *given in lines:
            assert program == "adabest"
            assert command(*given) == 0
        assert {path.name for path in Path("costs").iterdir()} == {"costs.md", *(f"{name}.csv" for name in HALVES)}

    def test_the_pages_python_works(self, capsys: pytest.CaptureFixture[str]) -> None:
        (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        exec(block, {})
        out = capsys.readouterr().out
        assert "| adabest | K(g + 2ns + nm) + ns + nm |" in out
        assert out.splitlines()[-1] == block.splitlines()[-1].partition("# ")[2]


def test_the_page_of_measured_costs_is_made_of_their_file() -> None:
    measured = MeasuredCosts.read(ROOT / "results" / "costs.json")
    text = (ROOT / "docs" / "results" / "costs.md").read_text(encoding="utf-8")
    found = re.findall(r"<!-- generated: results/costs\.json (\S+) -->\n(.*?)<!-- end -->", text, re.DOTALL)
    tables = {name: table.markdown() for name, table in measured_cost_tables(measured).items()}
    assert dict(found) == {**tables, "notes": "".join(f"- {note}\n" for note in measured_cost_notes(measured))}
    younger = {"scaffold-gradient"}  # than the measurement
    assert list(measured.algorithms) == [name for name in CORE if name not in younger]
    assert all(of.agrees for of in measured.algorithms.values())  # as the page says
