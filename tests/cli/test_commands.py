"""The command line: what it takes, what it prints, what it exits with."""

import csv
import dataclasses
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread
from tiny_runs import HELPERS, arguments, break_off, command, contents, ends_after, results, run, stripes, tiny

import adabest
from adabest import Config
from adabest.algorithms.catalog import CORE
from adabest.runs.settings.algorithm_specification import algorithm_options

COMMANDS = (
    "run",
    "compare",
    "sweep",
    "resume",
    "list",
    "show",
    "export",
    "report",
    "algorithms",
    "datasets",
    "partition",
    "costs",
    "illustrate",
    "layers",
)
EXAMPLES = Path(__file__).parents[2] / "examples"

MY_ALGORITHM = '''
from dataclasses import dataclass
from adabest import FedAvg

@dataclass(frozen=True)
class MyAlgorithm(FedAvg):
    """FedAvg that goes a part of the way.

    Attributes:
        gamma: How much of the way the cloud model goes.
    """

    gamma: float = 0.5

    def server_step(self, server, cloud, replies, context):
        update = super().server_step(server, cloud, replies, context)
        return update._replace(cloud=cloud + self.gamma * (update.cloud - cloud))
'''

MY_MODEL = """
from torch import nn

def network(input_shape, classes, width: int = 4):
    return nn.Sequential(nn.Flatten(), nn.Linear(36, width), nn.GroupNorm(2, width), nn.Linear(width, classes))

def normed(input_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 4), nn.BatchNorm1d(4), nn.Linear(4, classes))
"""

MY_DATA = """
import numpy as np
from adabest import from_arrays

def points():
    generator = np.random.default_rng(0)
    y = generator.integers(2, size=200)
    x = (generator.normal(size=(200, 2)) + 4 * y[:, None]).astype(np.float32)
    return from_arrays(x[:150], y[:150], x[150:], y[150:])
"""


class Printed:
    """What a command printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def both(self) -> tuple[str, str]:
        captured = self._capsys.readouterr()
        return captured.out, captured.err

    def out(self) -> str:
        return self.both()[0]

    def err(self) -> str:
        return self.both()[1]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    return Printed(capsys)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in; modules that were found in it are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


class TestHelp:
    def test_version_is_printed(self, printed: Printed) -> None:
        assert command("--version") == 0
        assert printed.out() == f"adabest {version('adabest')}\n"

    @pytest.mark.parametrize("given", [[], ["--help"], ["-h"]])
    def test_the_commands_are_listed(self, given: list[str], printed: Printed) -> None:
        assert command(*given) == 0
        text = printed.out()
        assert all(f"• {name} " in text for name in COMMANDS)
        assert "--version" in text

    @pytest.mark.parametrize("name", COMMANDS)
    def test_every_command_has_help(self, name: str, printed: Printed) -> None:
        assert command(name, "--help") == 0
        out, err = printed.both()
        assert out.startswith(f"usage: adabest {name} ")
        assert err == ""

    @pytest.mark.parametrize("name", ["run", "compare"])
    def test_help_mentions_every_setting(self, name: str, printed: Printed) -> None:
        command(name, "--help")
        text = printed.out()
        for field in dataclasses.fields(Config):
            if field.name not in ("hyperparameters", "algorithm"):
                assert re.search(f"--{field.name.replace('_', '-')}[ ,]", text), field.name
        for option in ("--out", "--overwrite", "CONFIG.TOML", "--mu", "--beta"):
            assert option in text
        assert ("--algorithms " if name == "compare" else "--algorithm ") in text
        assert "--hyperparameters" not in text

    def test_partition_takes_what_a_partition_depends_on(self, printed: Printed) -> None:
        command("partition", "--help")
        text = printed.out()
        for name in ("dataset", "clients", "validation-clients", "partition", "alpha", "unbalance", "partition-seed"):
            assert f"--{name} " in text
        assert "--rounds" not in text

    @pytest.mark.parametrize("algorithm", [*CORE, "fedyogi", "fedacg"])
    def test_help_mentions_the_settings_of_the_algorithm(self, algorithm: str, printed: Printed) -> None:
        command("run", "--algorithm", algorithm, "--help")
        text = printed.out()
        options = algorithm_options(algorithm)
        for name in options:
            assert f"--{name.replace('_', '-')}" in text
        for name in {"mu", "beta"} - options.keys():
            assert f"--{name} " not in text

    def test_every_setting_is_explained(self, printed: Printed) -> None:
        """An option without a word of explanation would be followed by another one."""
        command("run", "--help")
        lines = [line.strip("│ ") for line in printed.out().splitlines()]
        options = [number for number, line in enumerate(lines) if re.match(r"--\w", line)]
        assert len(options) > 40
        for number in options:
            words = lines[number].split(maxsplit=2)[2:] or [lines[number + 1]]
            assert not words[0].startswith(("--", "(default", "╰")), lines[number]

    @pytest.mark.parametrize(
        ("option", "value", "words"),
        [
            ("beta", "automatic", "it should be a number or 'auto', not 'automatic'"),
            ("rounds", "1.5", "it should be a whole number, not '1.5'"),
            ("clients", "many", "it should be a whole number, not 'many'"),
            ("clip", "none", "it should be a number, not 'none'"),
        ],
    )
    def test_a_value_that_is_no_number_is_told_in_words(
        self, option: str, value: str, words: str, printed: Printed
    ) -> None:
        assert command("run", f"--{option}", value) == 2
        err = printed.both()[1]
        assert f"Error parsing --{option}: {words}" in err
        assert "typing." not in err

    @pytest.mark.parametrize("words", [["compare"], ["reproduce", "table1"]])
    def test_a_word_among_numbers_is_told_in_words(self, words: list[str], printed: Printed) -> None:
        assert command(*words, "--seeds", "0", "first") == 2
        err = " ".join(printed.both()[1].replace("│", "").split())
        assert "Error parsing --seeds: it should be a whole number, not 'first'" in err

    def test_completion_prints_a_script_for_the_shell(self, printed: Printed) -> None:
        assert command("--tyro-print-completion", "bash") == 0
        script = printed.out()
        assert "complete -F" in script
        assert "partition-seed" in script


class TestRun:
    def test_run_trains_and_says_where_its_results_are(self, tmp_path: Path, printed: Printed) -> None:
        assert command("run", *arguments(**tiny(), out=tmp_path / "run")) == 0
        done = adabest.load(tmp_path / "run")
        out, err = printed.both()
        assert f"Round 5: accuracy {100 * done.final['scored_accuracy']:.2f} % (scored)" in out
        assert f"{100 * done.final['cloud_accuracy']:.2f} % (cloud)" in out
        assert out.splitlines()[-1] == f"Written to {tmp_path / 'run'}"
        assert "run: round 5/5, accuracy" in err  # progress, where a pipe doesn't see it
        assert results(tmp_path / "run") == results(run(tmp_path / "python").folder)

    def test_run_prints_metrics_of_ones_own_and_client_by_client(self, tmp_path: Path, printed: Printed) -> None:
        given = arguments(**tiny(), local_test=0.2, out=tmp_path / "run")
        assert command("run", *given, "--metrics", "f1_macro") == 0
        final, out = adabest.load(tmp_path / "run").final, printed.out()
        assert re.search(rf"Round 5: f1 macro {final['scored_f1_macro']:.3g}\d* \(scored\)", out)
        assert f"on average: accuracy {100 * final['local_global_accuracy']:.2f} % (the same model for all), " in out
        assert f"{100 * final['local_own_accuracy']:.2f} % (each client's own)" in out

    def test_a_folder_with_brackets_is_named_rightly(self, workplace: Path, printed: Printed) -> None:
        assert command("run", *arguments(**tiny(rounds=1), out="runs/[best]")) == 0
        assert "Written to runs/[best]\n" in printed.out()
        assert command("list") == 0
        assert "[best]" in printed.out()

    def test_a_diverged_run_ends_with_its_own_code(self, tmp_path: Path, printed: Printed) -> None:
        lost = tiny(algorithm="tiny_runs:Bomb", fuse=3, out=tmp_path / "lost")
        for given in (["run", *arguments(**lost)], ["resume", tmp_path / "lost"]):
            assert command(*given) == 3
            out, err = printed.both()
            assert "Diverged in round 3: the cloud model isn't finite." in out
            assert "Traceback" not in out + err
            assert str(tmp_path / "lost") in out.replace("\n", "")

    def test_a_long_folder_is_not_broken_when_diverged(self, workplace: Path, printed: Printed) -> None:
        place = "a-folder-whose-name-fills-more-than-half-of-a-line/" * 2 + "run"
        assert command("run", *arguments(**tiny(algorithm="tiny_runs:Bomb", fuse=1), out=place)) == 3
        assert f"are in {place}\n" in printed.out()

    def test_an_interrupted_run_is_resumed_by_the_command_it_names(self, tmp_path: Path, printed: Printed) -> None:
        place = tmp_path / "run"
        with ends_after(30):
            assert command("run", *arguments(**tiny(), out=place)) == 130
        out, err = printed.both()
        assert out == ""
        assert err.splitlines()[-1].endswith(f"interrupted after round 2; resume with: adabest resume {place}")
        with ends_after(20):
            assert command("resume", place) == 130
        assert command("resume", place) == 0
        assert "Round 5: accuracy" in printed.out()
        assert results(place) == results(run(tmp_path / "straight").folder)

    def test_a_second_ctrl_c_ends_the_command(self, tmp_path: Path, printed: Printed) -> None:
        with ends_after(30, KeyboardInterrupt):
            assert command("run", *arguments(**tiny(), out=tmp_path / "run")) == 130
        assert "interrupted; a run that was begun can be resumed" in printed.err()

    def test_run_refuses_a_folder_that_is_taken(self, tmp_path: Path, printed: Printed) -> None:
        place = run(tmp_path / "run", rounds=1).folder
        assert command("run", *arguments(**tiny(rounds=1), out=place)) == 2
        assert "holds a finished run" in printed.err()
        assert command("run", *arguments(**tiny(rounds=2), out=place, overwrite=True)) == 0
        assert adabest.load(place).round == 2

    def test_run_refuses_a_folder_that_can_not_be_written(self, tmp_path: Path, printed: Printed) -> None:
        (tmp_path / "file").write_text("here")
        assert command("run", *arguments(**tiny(), out=tmp_path / "file" / "run")) == 2
        assert printed.err().startswith(f"adabest: can't write to the folder {tmp_path / 'file' / 'run'}: ")


class TestConfigurationFile:
    def test_a_configuration_file_comes_before_options(self, tmp_path: Path, printed: Printed) -> None:
        path = tmp_path / "settings.toml"
        path.write_text("rounds = 1\n")
        assert command("run", "--seed", 1, path) == 2
        assert f"the configuration file {path} must come first: adabest run {path} ..." in printed.err()

    def test_a_missing_configuration_file_is_refused(self, printed: Printed) -> None:
        assert command("run", "nowhere.toml") == 2
        assert "can't read the configuration nowhere.toml: No such file" in printed.err()

    def test_a_setting_of_another_algorithm_in_a_file_is_refused(self, tmp_path: Path, printed: Printed) -> None:
        path = tmp_path / "settings.toml"
        path.write_text("beta = 0.9\n")
        assert command("run", path, "--algorithm", "fedavg") == 2
        assert "unknown setting 'beta'" in printed.err()

    @pytest.mark.parametrize("value", ["5", '"fedavg"', "[5]"])
    def test_algorithms_that_are_no_list_of_names_are_refused(
        self, value: str, tmp_path: Path, printed: Printed
    ) -> None:
        path = tmp_path / "settings.toml"
        path.write_text(f"algorithms = {value}\n")
        assert command("compare", path, "--out", tmp_path / "out") == 2
        assert "algorithms" in printed.err()
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("name", ["run", "compare"])
    def test_a_file_for_the_other_command_is_refused(self, name: str, tmp_path: Path, printed: Printed) -> None:
        wrong = {"run": 'algorithms = ["fedavg"]', "compare": 'algorithm = "fedavg"'}[name]
        (tmp_path / "settings.toml").write_text(wrong)
        assert command(name, tmp_path / "settings.toml") == 2
        right = {"run": "algorithm", "compare": "algorithms"}[name]
        assert f"did you mean {right!r}?" in printed.err()


class TestMistakes:
    def test_an_unknown_option_is_refused(self, printed: Printed) -> None:
        assert command("run", "--particiption", 0.5) == 2
        err = printed.err()
        assert "--particiption" in err
        assert "--participation" in err

    def test_an_unknown_command_is_refused(self, printed: Printed) -> None:
        assert command("runn") == 2
        assert "runn" in printed.err()

    @pytest.mark.parametrize("name", ["resume", "show"])
    def test_commands_refuse_a_folder_without_a_run(self, name: str, tmp_path: Path, printed: Printed) -> None:
        assert command(name, tmp_path) == 2
        assert printed.err() == f"adabest: there is no run in {tmp_path} (it has no config.toml)\n"

    def test_a_command_without_its_folder_is_refused(self, printed: Printed) -> None:
        assert command("resume") == 2
        assert "FOLDER" in printed.err()

    @pytest.mark.parametrize(
        "algorithm", ["nowhere:Algorithm", "tiny_runs:Nothing", ":Algorithm", "tiny_runs:", "math:pi", "adabest,beta"]
    )
    def test_an_object_that_is_no_algorithm_is_refused(self, algorithm: str, printed: Printed) -> None:
        for given in (["run", "--algorithm", algorithm], ["compare", "--algorithms", "fedavg", algorithm]):
            assert command(*given) == 2
            assert algorithm.rpartition(",")[2] in printed.err()


class TestOwnThings:
    def test_an_algorithm_in_the_working_directory_is_run(self, workplace: Path, printed: Printed) -> None:
        (workplace / "my_module.py").write_text(MY_ALGORITHM)
        own = ["--algorithm", "my_module:MyAlgorithm"]
        assert command("run", *own, "--help") == 0
        text = " ".join(printed.out().replace("│", " ").split())
        assert "--gamma FLOAT How much of the way the cloud model goes. (default: 0.5)" in text
        assert command("run", *own, "--gamma", 0.3, *arguments(**tiny(), out="one")) == 0
        assert adabest.load("one").config.algorithm == "my_module:MyAlgorithm"
        assert adabest.load("one").config.hyperparameters == {"gamma": 0.3}
        # Which is what the server's rate would do.
        run(Path("two"), algorithm="fedavg", server_rate=0.3)
        assert results(Path("one")) == results(Path("two"))
        assert command("run", *own, "--gama", 0.3) == 2
        assert "--gamma" in printed.err()

    def test_an_own_algorithm_is_compared_and_resumed(self, workplace: Path) -> None:
        (workplace / "my_module.py").write_text(MY_ALGORITHM)
        given = ["--algorithms", "fedavg", "my_module:MyAlgorithm,gamma=0.3", *arguments(**tiny(), out="both")]
        with ends_after(100):
            assert command("compare", *given) == 130
        assert command("resume", "both", "--allow", "my_module:MyAlgorithm") == 0
        assert adabest.load("both/my_module.MyAlgorithm,gamma=0.3").config.hyperparameters == {"gamma": 0.3}

    def test_hyper_parameters_of_every_type_are_parsed(self, workplace: Path) -> None:
        several = ["--rates", 0.3, 0.4, "--often", "--how", "thus", "--count", 4]
        assert command("run", *arguments(**tiny(rounds=1, algorithm="tiny_runs:Several"), out="run"), *several) == 0
        expected = {**vars(adabest.AdaBest()), "rates": [0.3, 0.4], "often": True, "how": "thus", "count": 4}
        assert adabest.load("run").config.flat().items() >= expected.items()

    def test_a_comparison_with_several_numbers_is_resumed(self, workplace: Path) -> None:
        given = [*arguments(**tiny(), out="both"), "--algorithms", "fedavg", "tiny_runs:Several", "--rates", 0.3, 0.4]
        with ends_after(100):
            assert command("compare", *given) == 130
        assert command("resume", "both", "--allow", "tiny_runs:Several") == 0
        assert adabest.load("both/tiny_runs.Several").config.flat()["rates"] == [0.3, 0.4]

    @pytest.mark.parametrize("command_name", ["run --algorithm", "compare --algorithms"])
    def test_a_switch_is_written_the_same_way_everywhere(self, command_name: str, workplace: Path) -> None:
        given = [*command_name.split(), "feddyn", "--no-clip-proximal", *arguments(**tiny(rounds=1), out="out")]
        assert command(*given) == 0
        place = "out/feddyn" if command_name.startswith("compare") else "out"
        assert adabest.load(place).config.hyperparameters["clip_proximal"] is False

    def test_an_own_model_is_trained(self, workplace: Path, printed: Printed) -> None:
        (workplace / "my_model.py").write_text(MY_MODEL)
        assert command("run", *arguments(**tiny(rounds=1, model="my_model:network,width=6"), out="run")) == 0
        loaded = adabest.load("run", allow="my_model:network")
        shapes = [tuple(p.shape) for p in loaded.model.parameters()]
        assert shapes[0] == (6, 36)
        assert command("run", *arguments(**tiny(model="my_model:network,widht=6"), out="other")) == 2
        assert "model 'my_model:network' has no option 'widht'; did you mean 'width'?" in printed.err()

    def test_a_model_with_batch_norm_is_refused(self, workplace: Path, printed: Printed) -> None:
        (workplace / "my_model.py").write_text(MY_MODEL)
        assert command("run", *arguments(**tiny(model="my_model:normed"), out="run")) == 2
        err = printed.err()
        assert "layer '2' (BatchNorm1d)" in err
        assert "nn.GroupNorm" in err
        assert not Path("run").exists()

    def test_an_own_data_set_is_used(self, workplace: Path) -> None:
        (workplace / "my_data.py").write_text(MY_DATA)
        settings = tiny(dataset="my_data:points", model="logistic", rounds=20, batch_size=5)
        assert command("run", *arguments(**settings, out="run")) == 0
        assert adabest.load("run").final["scored_accuracy"] > 0.9

    def test_a_file_of_arrays_is_a_data_set(self, workplace: Path, printed: Printed) -> None:
        names = ("x_train", "y_train", "x_test", "y_test")
        arrays = {name: getattr(stripes(), name).numpy() for name in names}
        np.savez("my data.npz", **arrays)
        settings = tiny(dataset="my data.npz", model="mlp,hidden=8", batch_size=8, weight_decay=1e-3)
        assert command("run", *arguments(**settings)) == 0
        (folder,) = Path("runs").iterdir()
        assert folder.name.startswith("my-data-adabest-")
        assert results(folder) == results(run(Path("other")).folder)
        del arrays["x_test"]
        np.savez("half.npz", **arrays)
        assert command("run", *arguments(**tiny(dataset="half.npz"))) == 2
        assert "half.npz lacks x_test" in printed.err()

    def test_an_own_loss_is_used(self, workplace: Path) -> None:
        (workplace / "my_loss.py").write_text(
            "from torch.nn import functional\n\n"
            "def doubled(scores, y):\n    return 2 * functional.cross_entropy(scores, y)\n"
        )
        assert command("run", *arguments(**tiny(rounds=1, loss="my_loss:doubled"), out="run")) == 0
        assert adabest.load("run").config.loss == "my_loss:doubled"

    def test_an_algorithm_is_found_as_an_entry_point(
        self, workplace: Path, monkeypatch: pytest.MonkeyPatch, printed: Printed
    ) -> None:
        """What a package that is installed offers is used by name."""
        site = workplace / "site"
        (site / "fancy-1.0.dist-info").mkdir(parents=True)
        (site / "fancy-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: fancy\nVersion: 1.0\n")
        (site / "fancy-1.0.dist-info" / "entry_points.txt").write_text(
            "[adabest.algorithms]\nfancy = fancy_package:MyAlgorithm\n\n[adabest.models]\nwide = fancy_models:network\n"
        )
        (site / "fancy_package.py").write_text(MY_ALGORITHM)
        (site / "fancy_models.py").write_text(MY_MODEL)
        monkeypatch.syspath_prepend(site)
        given = arguments(**tiny(rounds=1, algorithm="fancy", gamma=0.3, model="wide,width=8"), out="run")
        assert command("run", *given) == 0
        assert adabest.load("run").config.hyperparameters == {"gamma": 0.3}
        assert command("run", "--algorithm", "fanci") == 2
        assert "did you mean 'fancy'?" in printed.err()


class TestLooking:
    def test_list_shows_all_runs(self, workplace: Path, printed: Printed) -> None:
        assert command("list") == 2
        assert printed.err() == "adabest: there are no runs below runs\n"
        done = run(Path("runs/done"))
        run(Path("runs/lost"), algorithm="tiny_runs:Bomb", fuse=2)
        break_off(Path("runs/gone"), 30)
        before = contents(workplace)
        assert command("list") == 0
        rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.out().splitlines() if "│" in line]
        accuracy = f"{100 * done.final['scored_accuracy']:.1f}"
        assert rows[0][1:3] == ["finished", "5/5"]
        assert rows[0][5] == accuracy
        assert [row[1] for row in rows if row[1]] == ["finished", "killed", "diverged"]
        assert contents(workplace) == before

    def test_list_names_data_in_a_few_words(self, workplace: Path, printed: Printed) -> None:
        """Paths and options would fill ten lines for each run."""
        lines = [f"{number % 7},{number % 2}" for number in range(60)]
        (workplace / "homes.csv").write_text("\n".join(["age,label", *lines]))
        run(
            Path("runs/homes"),
            dataset="table,path=homes.csv,label=label,test_share=0.2,standardise=yes",
            model="logistic",
        )
        printed.out()
        assert command("list") == 0
        assert " table homes.csv " in printed.out()

    def test_show_prints_a_run(self, tmp_path: Path, printed: Printed) -> None:
        done = run(tmp_path / "run", beta=0.7)
        assert command("show", done.folder) == 0
        rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.out().splitlines() if "│" in line]
        facts = {row[0]: row[1] for row in rows if len(row) == 2}
        assert facts["beta"] == "0.7"
        assert facts["dataset"] == "stripes"
        assert facts["status"] == "finished"
        assert facts["training clients"] == "8"
        assert facts["scored loss"] == f"{done.final['scored_loss']:.4g}"

    def test_show_prints_a_run_that_has_just_begun(self, tmp_path: Path, printed: Printed) -> None:
        break_off(tmp_path / "run", 0)
        assert command("show", tmp_path / "run") == 0
        assert "killed" in printed.out()

    def test_partition_prints_its_statistics(self, workplace: Path, printed: Printed) -> None:
        settings: dict[str, Any] = {"dataset": "stripes", "clients": 8, "alpha": 0.2, "partition_seed": 4}
        assert command("partition", *arguments(**settings), "--out", "figures/p") == 0
        out = printed.out()
        assert "training clients" in out
        assert "mean label entropy" in out
        assert out.splitlines()[-2:] == ["Written: figures/p.png", "Written: figures/p.svg"]
        assert np.ptp(imread("figures/p.png")[..., :3]) > 0.5
        expected = run(Path("run"), rounds=1, alpha=0.2, partition_seed=4).identity["partition"]
        assert f"{expected['mean_label_entropy']:.4g}" in out

    def test_partition_files_of_two_settings_do_not_collide(self, workplace: Path) -> None:
        for alpha in (0.3, 0.5):
            options = arguments(dataset="stripes", clients=8, alpha=alpha, out=f"alpha-{alpha}")
            assert command("partition", *options) == 0
        assert {path.name for path in workplace.glob("*.png")} == {"alpha-0.3.png", "alpha-0.5.png"}

    def test_partition_refuses_bad_settings(self, workplace: Path, printed: Printed) -> None:
        assert command("partition", "--alpha", -1) == 2
        assert "alpha = -1.0" in printed.err()
        (workplace / "file").write_text("here")
        given = arguments(dataset="stripes", clients=8, out="file/partition")
        assert command("partition", *given) == 2
        assert "can't write the figure file/partition: " in printed.err()


class TestDemo:
    def test_the_demo_works_with_few_rounds(self, tmp_path: Path, printed: Printed) -> None:
        demo = EXAMPLES / "demo.toml"
        settings = tomllib.loads(demo.read_text(encoding="utf-8"))
        assert command("compare", demo, "--rounds", 2, "--epochs", 1, "--out", tmp_path / "demo") == 0
        assert f"rounds to {100 * settings['target']:g} %" in printed.out()
        with (tmp_path / "demo" / "table.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert [row["algorithm"] for row in rows] == ["fedavg", "fedprox", "scaffold", "feddyn", "adabest"]
        config = adabest.load(tmp_path / "demo" / "adabest").config
        assert config.hyperparameters["beta"] == settings["beta"]
        assert (config.clients, config.validation_clients, config.rounds) == (100, 10, 2)


def test_the_package_runs_as_a_module_of_python() -> None:
    done = subprocess.run([sys.executable, "-m", "adabest", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"adabest {version('adabest')}\n", "")


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_the_completion_script_is_sound(printed: Printed) -> None:
    command("--tyro-print-completion", "bash")
    checked = subprocess.run(["bash", "-n"], input=printed.out(), capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_list_shows_the_other_runs_beside_a_damaged_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("good", "bad"):
        run(tmp_path / name, rounds=1)
    (tmp_path / "bad" / "status.json").write_text("{")
    assert command("list", tmp_path) == 0
    printed = capsys.readouterr()
    assert "finished" in printed.out
    assert "status.json is damaged" in printed.err


def test_compare_prints_on_a_code_page_without_greek_letters(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252", "PYTHONPATH": str(HELPERS)}
    arguments = [f"--{key.replace('_', '-')}={value}" for key, value in tiny(rounds=1).items()]
    words = [
        sys.executable,
        "-m",
        "adabest",
        "compare",
        "--algorithms",
        "fedavg",
        *arguments,
        "--out",
        str(tmp_path / "all"),
    ]
    done = subprocess.run(words, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert b"algorithm" in done.stdout
