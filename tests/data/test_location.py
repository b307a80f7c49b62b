"""Where data lie is a setting of a run, but no part of what it is: data may move, and runs go on."""

import dataclasses
import functools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_data as tiny
from tiny_data import MNIST_FILES
from tiny_runs import Killed, arguments, command, ends_after, results

import adabest
from adabest.data.catalog import OFFICIAL
from adabest.data.dataset import Dataset, from_arrays
from adabest.data.loading import DATASETS, findable, load_dataset
from adabest.data.official import load_official
from adabest.errors import InputError
from adabest.runs.settings.resolution import resolve
from adabest.runs.settings.toml_file import read_toml

SHORT: dict[str, Any] = {
    "dataset": "mnist",
    "clients": 2,
    "validation_clients": 0,
    "partition": "iid",
    "participation": 1.0,
    "rounds": 3,
    "epochs": 1,
    "batch_size": 2,
    "model": "logistic",
}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a tiny MNIST, which is what ``mnist`` stands for meanwhile."""
    monkeypatch.delenv("ADABEST_DATA", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_path", lambda *_, **__: tmp_path / "cache")
    monkeypatch.setitem(OFFICIAL, "mnist", tiny.TINY_MNIST)
    monkeypatch.setitem(vars(DATASETS)["builtin"], "mnist", functools.partial(load_official, tiny.TINY_MNIST))
    tiny.write(tmp_path / "data" / "MNIST" / "raw", MNIST_FILES)
    return tmp_path / "data"


def no_download(*_: Any, **__: Any) -> None:
    raise AssertionError("nothing should be downloaded")


class TestRuns:
    def test_a_run_is_the_same_from_every_folder(
        self, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        by_python = adabest.run(data_dir=str(data), out=tmp_path / "python", show=False, **SHORT)
        assert command("run", *arguments(**SHORT, data_dir=data, out=tmp_path / "option")) == 0
        (tmp_path / "run.toml").write_text(f"data_dir = {str(data)!r}\n")
        assert command("run", tmp_path / "run.toml", *arguments(**SHORT, out=tmp_path / "file")) == 0
        monkeypatch.setenv("ADABEST_DATA", str(data))
        by_variable = adabest.run(out=tmp_path / "variable", show=False, **SHORT)
        for place in ("option", "file", "variable"):
            assert results(tmp_path / place) == results(tmp_path / "python")
        assert by_python.config.data_dir == adabest.load(tmp_path / "option").config.data_dir == str(data)
        assert by_variable.config.data_dir is None, "what wasn't set isn't made up"
        assert by_python.config.digest() == by_variable.config.digest()

    def test_a_relative_data_folder_is_that_of_the_beginning(
        self, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        config, _ = resolve({**SHORT, "data_dir": "data"})
        assert config.data_dir == str(data)

    def test_partition_finds_data_in_the_data_folder(
        self, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        settings = arguments(dataset="mnist", data_dir=data, clients=2, validation_clients=0, partition="iid")
        assert command("partition", *settings) == 0
        assert (tmp_path / "partition.png").is_file()

    def test_a_run_goes_on_after_its_data_have_moved(
        self, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        straight = adabest.run(data_dir=str(data), out=tmp_path / "straight", show=False, **SHORT)
        for folder in ("option", "object"):
            with ends_after(5, Killed), pytest.raises(Killed):
                adabest.run(data_dir=str(data), out=tmp_path / folder, show=False, **SHORT)
        moved = data.rename(tmp_path / "moved")
        assert command("resume", tmp_path / "option") == 2
        assert f"data_dir = {data}: there is no such folder" in capsys.readouterr().err
        assert command("resume", tmp_path / "option", "--data-dir", moved) == 0
        assert results(tmp_path / "option") == results(straight.folder)
        assert read_toml(tmp_path / "option" / "config.toml")["data_dir"] == str(moved), "and it is remembered"
        adabest.resume(tmp_path / "object", show=False, dataset=load_dataset("mnist", str(moved)))
        assert results(tmp_path / "object") == results(straight.folder)

    def test_a_run_does_not_go_on_with_other_data(
        self, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with ends_after(5, Killed), pytest.raises(Killed):
            adabest.run(data_dir=str(data), out=tmp_path / "run", show=False, **SHORT)
        other = dataclasses.replace(load_dataset("mnist", str(data)), y_train=torch_labels([1, 1, 1, 1, 1, 1]))
        with pytest.raises(InputError, match="the dataset isn't the one that this run began with"):
            adabest.resume(tmp_path / "run", show=False, dataset=other)

    def test_moved_data_may_lie_in_a_relative_folder(
        self, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with ends_after(5, Killed), pytest.raises(Killed):
            adabest.run(data_dir=str(data), out=tmp_path / "run", show=False, **SHORT)
        moved = data.rename(tmp_path / "moved")
        monkeypatch.chdir(tmp_path)
        adabest.resume("run", data_dir="moved", show=False)
        assert read_toml(tmp_path / "run" / "config.toml")["data_dir"] == str(moved)


def torch_labels(labels: list[int]) -> Any:
    return from_arrays(np.zeros((len(labels), 2)), labels, np.zeros((1, 2)), [0]).y_train


@pytest.mark.usefixtures("no_figure")
class TestComparisons:
    def compare(self, folder: Path, data_dir: Path) -> adabest.Comparison:
        own: dict[str, Any] = {"data_dir": str(data_dir), "lanes": 1, "engine": "reference"}  # heartbeats are counted
        return adabest.compare(algorithms=["fedavg", "adabest"], out=folder, show=False, **own, **SHORT)

    @pytest.mark.filterwarnings("ignore:data_dir has no effect")  # the data set is a function of the test
    def test_all_runs_share_one_data_set(self, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        loaded: list[Dataset] = []

        def load() -> Dataset:
            loaded.append(load_official(tiny.TINY_MNIST, str(data)))
            return loaded[-1]

        monkeypatch.setitem(vars(DATASETS)["builtin"], "mnist", load)
        self.compare(tmp_path / "all", data)
        assert len(loaded) == 1

    def test_finished_runs_stay_when_data_have_moved(self, data: Path, tmp_path: Path) -> None:
        straight = self.compare(tmp_path / "straight", data)
        with ends_after(25, Killed), pytest.raises(Killed):
            self.compare(tmp_path / "pieces", data)
        status = {
            path.parent.name: json.loads(path.read_text())["status"] for path in tmp_path.glob("pieces/*/status*")
        }
        assert status == {"fedavg": "finished", "adabest": "running"}
        done = (tmp_path / "pieces" / "fedavg" / "log.txt").read_bytes()
        moved = data.rename(tmp_path / "moved")
        assert command("resume", tmp_path / "pieces") == 2
        assert command("resume", tmp_path / "pieces", "--data-dir", moved) == 0
        assert (tmp_path / "pieces" / "fedavg" / "log.txt").read_bytes() == done
        for label in straight.runs:
            assert results(tmp_path / "pieces" / label) == results(tmp_path / "straight" / label)

    def test_comparisons_are_resumed_from_another_folder(
        self, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        x = np.random.default_rng(0).random((20, 4)).astype(np.float32)
        np.savez(tmp_path / "mine.npz", x_train=x, y_train=np.arange(20) % 2, x_test=x, y_test=np.arange(20) % 2)
        (tmp_path / "elsewhere").mkdir()
        for name in ("mnist", "mine.npz"):
            monkeypatch.chdir(tmp_path)
            settings = SHORT | {"dataset": name} | ({"data_dir": "data"} if name == "mnist" else {})
            adabest.compare(algorithms=["fedavg"], out=f"runs-{name}", show=False, **settings)
            shutil.rmtree(tmp_path / f"runs-{name}" / "fedavg")
            monkeypatch.chdir(tmp_path / "elsewhere")
            assert command("resume", f"../runs-{name}") == 0

    def test_the_default_folder_does_not_depend_on_the_data_folder(
        self, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        one = adabest.compare(algorithms=["fedavg"], data_dir=str(data), show=False, **SHORT)
        moved = data.rename(tmp_path / "moved")
        assert adabest.compare(algorithms=["fedavg"], data_dir=str(moved), show=False, **SHORT).folder == one.folder


class TestListing:
    def test_data_sets_that_are_there_are_listed(self, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("adabest.data.download._download", no_download)
        listings = {listing.name: listing for listing in adabest.datasets(str(data))}
        assert [*listings][:6] == ["digits", "mnist", "emnist-l", "emnist-letters", "cifar10", "cifar100"]
        assert {"huggingface", "leaf"} <= listings.keys()
        mnist = listings["mnist"]
        assert (mnist.here, mnist.where, mnist.layout) == (True, data / "MNIST" / "raw", "idx")
        assert mnist.bytes_on_disk == sum(map(len, MNIST_FILES.values()))
        assert (mnist.shape, mnist.classes, mnist.train, mnist.test) == ((1, 28, 28), 10, 6, 4)
        cifar = listings["cifar100"]
        assert (cifar.here, cifar.where, cifar.layout, cifar.bytes_on_disk) == (False, None, None, None)
        assert (cifar.shape, cifar.classes, cifar.train, cifar.test) == ((3, 32, 32), 100, 50_000, 10_000)
        digits = listings["digits"]
        assert (digits.here, digits.shape, digits.classes, digits.train, digits.test) == (
            True,
            (1, 8, 8),
            10,
            1437,
            360,
        )
        assert listings["leaf"].here is None

    def test_the_command_lists_data_sets(self, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert command("datasets", "--data-dir", data) == 0
        out = capsys.readouterr().out
        lines = {line.split("│")[1].strip(): line for line in out.splitlines() if line.startswith("│")}
        assert [cell.strip() for cell in lines["mnist"].split("│")[2:8]] == [
            "yes: idx", "0.0", "1×28×28", "10", "6", "4",
        ]  # fmt: skip
        assert [cell.strip() for cell in lines["cifar10"].split("│")[2:4]] == ["no", "–"]
        assert f"mnist: {data / 'MNIST' / 'raw'}\n" in out
        assert out.endswith(f"Data folder: {data}\n")
        assert max(map(len, lines.values())) <= 80

    def test_an_empty_cache_is_no_error(self, data: Path, tmp_path: Path) -> None:
        assert not any(listing.here for listing in adabest.datasets() if listing.name != "digits")
        assert not (tmp_path / "cache").exists()

    def test_bad_data_folders_are_refused(self, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert command("datasets", "--data-dir", data / "none") == 2
        assert "none: there is no such folder" in capsys.readouterr().err
        assert command("datasets", "--data-dir", data, "--fetch", "cifar") == 2
        assert "no data set 'cifar' to be downloaded; did you mean 'cifar10'" in capsys.readouterr().err


MODULE = """
from pathlib import Path
import numpy as np
from adabest import from_arrays

def made(path: Path, scale: float = 1.0, data_dir: str | None = None):
    x = np.loadtxt(path, dtype=np.float32).reshape(-1, 2) * scale
    return from_arrays(x, np.arange(len(x)) % 2, x, np.arange(len(x)) % 2, name=str(data_dir))

ready = from_arrays(np.zeros((2, 3)), [0, 1], np.zeros((2, 3)), [0, 1])
"""


class TestSpecifications:
    @pytest.fixture(autouse=True)
    def module(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(__import__("sys").modules, "own_sets", raising=False)
        monkeypatch.chdir(tmp_path)
        (tmp_path / "own_sets.py").write_text(MODULE)
        np.savetxt("numbers.txt", np.arange(40).reshape(20, 2))

    @pytest.mark.usefixtures("trusting")
    def test_an_own_data_set_takes_options(self) -> None:
        data = load_dataset("own_sets:made,path=numbers.txt,scale=2", "somewhere")
        assert data.x_train[1].tolist() == [4.0, 6.0]
        assert data.name == "somewhere", "who asks for the folder is told it"

    @pytest.mark.usefixtures("trusting")
    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("own_sets:made", "data set 'own_sets:made' needs a value for path, as in own_sets:made,path=..."),
            ("own_sets:made,path=numbers.txt,scal=2", "has no option 'scal'; did you mean 'scale'"),
            ("own_sets:made,path=numbers.txt,scale=x", "scale should be a number, not 'x'"),
            ("own_sets:made,path=numbers.txt,data_dir=x", "has no option 'data_dir'"),
            ("own_sets:ready,path=x", "data set 'own_sets:ready' has no option 'path'; it has none"),
            ("digits,path=x", "data set 'digits' has no option 'path'; it has none"),
            ("mnist,data_dir=x", "data set 'mnist' has no option 'data_dir'; it has none"),
            ("digits,x", "'x' should be an option of the form key=value"),
        ],
    )
    def test_bad_options_are_refused(self, name: str, words: str) -> None:
        with pytest.raises(InputError) as refusal:
            load_dataset(name)
        assert words in str(refusal.value)

    @pytest.mark.usefixtures("trusting")
    def test_paths_are_found_from_anywhere(self, tmp_path: Path) -> None:
        assert findable("digits") == "digits"
        assert findable("mine.npz") == str(tmp_path / "mine.npz")
        assert findable("a,b.npz") == str(tmp_path / "a,b.npz")
        assert findable("leaf,path=femnist,shape=1x28x28") == f"leaf,path={tmp_path / 'femnist'},shape=1x28x28"
        assert findable("huggingface,path=a/../b,label=c") == f"huggingface,path={tmp_path / 'b'},label=c"
        assert findable("huggingface,name=a/b") == "huggingface,name=a/b"
        assert findable("own_sets:made,path=x.npz") == f"own_sets:made,path={tmp_path / 'x.npz'}"

    def test_a_path_may_have_a_comma(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "a,b").mkdir()
        monkeypatch.chdir(tmp_path / "a,b")
        with pytest.raises(InputError, match="a path with a comma in it can't be used"):
            findable("leaf,path=femnist")

    def test_a_run_of_a_specification_goes_on_elsewhere(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        settings = SHORT | {"dataset": "own_sets:made,path=numbers.txt", "data_dir": "unused"}
        straight = adabest.run(out=tmp_path / "straight", show=False, **settings)
        with ends_after(5, Killed), pytest.raises(Killed):
            adabest.run(out=tmp_path / "pieces", show=False, **settings)
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        adabest.resume(tmp_path / "pieces", allow=["own_sets:made"], show=False)
        assert results(tmp_path / "pieces") == results(straight.folder)

    def test_the_default_folder_has_a_short_name(self) -> None:
        run = adabest.run(show=False, **(SHORT | {"rounds": 1, "dataset": "own_sets:made,path=numbers.txt"}))
        assert run.folder == Path("runs") / f"own_sets-made-adabest-{run.config.digest()}"


def test_an_incomplete_data_set_is_listed_with_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "MNIST" / "raw").mkdir(parents=True)
    (tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte").write_bytes(b"x")
    listing = next(listing for listing in adabest.datasets(str(tmp_path)) if listing.name == "mnist")
    assert listing.here is False
    assert any("lacks" in words for words in listing.lacks)
