"""Mistakes that reviews of populations, data and trackers found; each stays found."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from tiny_runs import as_old_version, contents, run, stripes, tiny

import adabest
from adabest.data.dataset import from_arrays
from adabest.data.loading import load_dataset
from adabest.errors import InputError
from adabest.runs.build import _first_averaged_round
from adabest.runs.files import folder as files
from adabest.runs.settings.resolution import resolve


class Unreachable:
    """A tracker that can't be reached."""

    def start(self, run: Any) -> None:
        raise ConnectionError("nobody there")

    def after_evaluation(self, run: Any, metrics: Any) -> None:
        """Never comes to it."""

    def end(self, run: Any, ending: Any) -> None:
        """Nor to this."""


class TestReplacing:
    def test_a_run_survives_a_successor_that_can_not_begin(self, tmp_path: Path) -> None:
        run(tmp_path / "run")
        before = contents(tmp_path / "run")
        with pytest.raises(InputError, match="can't begin: nobody there"):
            run(tmp_path / "run", overwrite=True, seed=1, loggers=[f"{__name__}:Unreachable"])
        assert contents(tmp_path / "run") == before
        assert not (tmp_path / "run" / ".replaced").exists()

    def test_what_a_killed_replacement_left_goes(self, tmp_path: Path) -> None:
        run(tmp_path / "run")
        (tmp_path / "run" / ".replaced").mkdir()
        (tmp_path / "run" / ".replaced" / files.CONFIG).write_text("x")
        with pytest.warns(UserWarning, match="a run was being replaced; the new one had begun, and is here"):
            again = run(tmp_path / "run", overwrite=True, seed=1)
        assert again.config.seed == 1
        assert not (tmp_path / "run" / ".replaced").exists()


@pytest.mark.parametrize("clients", [1, 2, 11, 12, 13, 23, 34, 110])
def test_by_default_nobody_of_a_natural_data_set_is_left_out(clients: int) -> None:
    owner = np.repeat(np.arange(clients), 3)
    x, y = np.zeros((len(owner), 2), dtype=np.float32), np.arange(len(owner)) % 2
    config, _ = resolve({"dataset": from_arrays(x, y, x, y, clients=owner)})
    assert config.clients is not None
    assert config.validation_clients is not None
    assert config.clients + config.validation_clients == clients
    assert config.clients >= 1
    assert config.validation_clients == (0 if clients == 1 else -(-clients // 11))


def test_an_export_of_a_diverged_run_tells_its_own_round(tmp_path: Path) -> None:
    diverged = run(tmp_path / "run", algorithm="tiny_runs:Bomb", fuse=4, rounds=6, evaluate_every=2)
    assert (diverged.status, diverged.round) == ("diverged", 4)
    path = diverged.export("safetensors", "cloud", out=tmp_path / "cloud.safetensors")
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    assert metadata["round"] == "3"
    assert "accuracy" not in metadata  # the last evaluated round is 2


@pytest.mark.parametrize("share", ["0", "0.29", "0.57", "0.58", "0.999", "0.5", "0.333"])
@pytest.mark.parametrize("rounds", [1, 7, 100, 1000])
def test_the_averaged_part_begins_where_the_decimal_number_says(share: str, rounds: int) -> None:
    config, _ = resolve(tiny(average_from=float(share), rounds=rounds))
    assert _first_averaged_round(config) == int(Fraction(share) * rounds) + 1


def test_a_finished_run_of_an_earlier_version_counts_in_a_comparison(tmp_path: Path) -> None:
    settings = {**tiny(rounds=1), "algorithms": ["adabest"], "show": False}
    adabest.compare(out=tmp_path, **settings)
    as_old_version(tmp_path / "adabest")
    config = tmp_path / "adabest" / files.CONFIG
    lines = config.read_text(encoding="utf-8").splitlines()
    config.write_text("\n".join(line for line in lines if not line.startswith(("beta_decay", "patience"))) + "\n")
    before = contents(tmp_path / "adabest")
    adabest.compare(out=tmp_path, **settings)
    assert contents(tmp_path / "adabest") == before


@pytest.mark.parametrize("data", ['{"x": 5, "y": 3}', '{"x": [[1.0]], "y": 3}', '{"x": 2.5, "y": [1]}'])
def test_leaf_wants_lists(data: str, tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / "data" / split).mkdir(parents=True)
        content = f'{{"users": ["u"], "num_samples": [1], "user_data": {{"u": {data}}}}}'
        (tmp_path / "data" / split / "all.json").write_text(content)
    with pytest.raises(InputError, match="x should be a list of inputs and y one of labels"):
        load_dataset(f"leaf,path={tmp_path}")


@pytest.mark.parametrize(
    ("partition", "words"),
    [
        ("dirichlet", "dirichlet α = 0.3"),
        ("shards", "shards, 2 each"),
        ("iid", "iid"),
        ("dirichlet-legacy", "dirichlet-legacy α = 0.3"),
    ],
)
def test_a_title_names_what_counts(partition: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    titles: list[str] = []
    original = adabest.report.figure.comparison_figure

    def figure(runs: Any, title: str = "") -> Any:
        titles.append(title)
        return original(runs, title)

    monkeypatch.setattr("adabest.experiments.comparison.comparison_figure", figure)
    adabest.compare(
        algorithms=["fedavg"], dataset=stripes(), clients=8, rounds=1, partition=partition, out=tmp_path, show=False
    )
    assert f", {words}, seed" in titles[0]
    assert ("α" in titles[0]) == partition.startswith("dirichlet")


def test_a_target_that_a_stopped_run_did_not_reach_is_not_never(tmp_path: Path) -> None:
    done = adabest.compare(
        algorithms=["fedavg"], dataset=stripes(), clients=8, epochs=1, rounds=9, evaluate_every=1, stop_at=0.01,
        target=1.0, out=tmp_path, show=False,
    )  # fmt: skip
    assert done.table.rows[0][2] == "> 1"


def test_the_decay_of_beta_can_be_seen(tmp_path: Path) -> None:
    finished = run(
        tmp_path / "run", beta=0.5, beta_decay=0.1, patience=1, rounds=30, evaluate_every=1, learning_rate=1e-9
    )
    betas = finished.curve("beta")[1]
    assert betas[0] == 0.5
    assert betas[-1] < 0.1
    assert "beta" not in run(tmp_path / "plain").final


def test_natural_is_among_the_known_partitions(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"unknown partition 'shard'; did you mean 'shards'\? Known: .*natural, shards"
    ):
        run(tmp_path / "run", partition="shard")


def test_a_folder_of_runs_is_not_a_run_and_says_so(tmp_path: Path) -> None:
    run(tmp_path / "one")
    with pytest.raises(InputError, match=r"there is no run in .*; there are some below it, such as .*one"):
        adabest.load(tmp_path)


def test_an_incomplete_data_set_is_listed_as_such(tmp_path: Path) -> None:
    (tmp_path / "MNIST" / "raw").mkdir(parents=True)
    (tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte").write_bytes(b"x")
    listing = next(listing for listing in adabest.datasets(str(tmp_path)) if listing.name == "mnist")
    assert listing.here is False
    assert any("lacks" in words for words in listing.lacks)
