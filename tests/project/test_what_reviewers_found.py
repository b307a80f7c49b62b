"""Ways to go wrong that were found by reading and trying, none of which may come back."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import torch
from quadratics import random_quadratics, simulate
from tiny_runs import HELPERS, break_off, command, contents, resume, run, stripes, tiny
from torch import Tensor, nn

import adabest
from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.base import (
    Algorithm,
    ClientContext,
    Correction,
    Population,
    Replies,
    ServerContext,
    Update,
    Work,
)
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.feddyn import FedDyn
from adabest.algorithms.scaffold import Scaffold
from adabest.engine.local_step import LocalTraining, local_step
from adabest.errors import InputError
from adabest.runs import run_loop as runs_lane
from adabest.runs.build import build_federation
from adabest.runs.files.atomic_files import write_text
from adabest.runs.files.folder import RunFolder


def other_stripes() -> adabest.Dataset:
    """Another data set under the same name."""
    data = stripes()
    return dataclasses.replace(data, x_train=data.x_train[:].flip(0))


class TestStaleResults:
    """A name is not a fingerprint: what lies in a folder may have been made of other things."""

    def test_another_data_set_under_the_same_name(self, tmp_path: Path) -> None:
        given: dict[str, Any] = {"algorithms": ["fedavg"], "out": tmp_path / "all", "show": False}
        adabest.compare(**given, **tiny(rounds=1, dataset=stripes()))
        with pytest.raises(InputError, match="the dataset isn't the one that this run began with"):
            adabest.compare(**given, **tiny(rounds=1, dataset=other_stripes()))
        assert adabest.compare(**given, **tiny(rounds=1, dataset=stripes())).runs

    def test_another_model_of_the_same_shape(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        folders = set()
        for seed in (0, 1):
            torch.manual_seed(seed)
            model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
            done = adabest.compare(algorithms=["fedavg"], show=False, **tiny(rounds=1, model=model))
            folders.add(done.folder)
        assert len(folders) == 2

    def test_a_file_that_was_rewritten(self, tmp_path: Path) -> None:
        path = tmp_path / "data.npz"
        given: dict[str, Any] = {"algorithms": ["fedavg"], "out": tmp_path / "all", "show": False}
        settings = tiny(rounds=1, dataset=str(path), model="logistic", batch_size=4)
        for shift in (0, 1):
            x = np.arange(400, dtype=np.float32).reshape(100, 4) + shift
            np.savez(path, x_train=x, y_train=np.arange(100) % 3, x_test=x, y_test=np.arange(100) % 3)
            if shift == 0:
                adabest.compare(**given, **settings)
        with pytest.raises(InputError, match="the dataset isn't the one"):
            adabest.compare(**given, **settings)


class TestFolders:
    def test_a_failed_overwriting_changes_nothing_at_all(self, tmp_path: Path) -> None:
        given: dict[str, Any] = {"algorithms": ["fedavg"], "out": tmp_path / "all", "show": False}
        adabest.compare(**given, **tiny(rounds=1))
        (tmp_path / "all" / "fedavg" / "thesis.tex").write_text("ten years of work")
        before = contents(tmp_path / "all")
        with pytest.raises(InputError, match=r"thesis\.tex"):
            adabest.compare(**given, overwrite=True, **tiny(rounds=2))
        assert contents(tmp_path / "all") == before

    def test_two_comparisons_in_one_folder(self, tmp_path: Path) -> None:
        other = RunFolder(tmp_path / "all")
        other.acquire()
        try:
            with pytest.raises(InputError, match="another process is working on"):
                adabest.compare(algorithms=["fedavg"], out=tmp_path / "all", show=False, **tiny(rounds=1))
        finally:
            other.release()

    def test_someone_was_faster(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        build = build_federation

        def slow_build(*given: Any) -> Any:
            monkeypatch.setattr(runs_lane, "build_federation", build)
            run(tmp_path / "run", rounds=1)
            return build(*given)

        monkeypatch.setattr(runs_lane, "build_federation", slow_build)
        with pytest.raises(InputError, match="holds a finished run"):
            run(tmp_path / "run", rounds=2)
        assert adabest.load(tmp_path / "run").round == 1

    def test_a_last_bit_of_a_statistic_is_no_other_partition(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A run may go on on another machine, which computes the statistics anew."""
        break_off(tmp_path / "run", 30, checkpoint_every=1)
        before = json.loads((tmp_path / "run" / "identity.json").read_text())["partition"]["mean_label_entropy"]
        found = []

        def build_elsewhere(*given: Any) -> Any:
            federation = build_federation(*given)
            statistics = federation.identity["partition"]
            statistics["mean_label_entropy"] = float(np.nextafter(statistics["mean_label_entropy"], 9.0))
            found.append(statistics["mean_label_entropy"])
            return federation

        monkeypatch.setattr(runs_lane, "build_federation", build_elsewhere)
        assert resume(tmp_path / "run").status == "finished"
        assert found == [np.nextafter(before, 9.0)]

    def test_a_damaged_run_does_not_hide_the_others(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        for name in ("good", "bad"):
            run(tmp_path / name, rounds=1)
        (tmp_path / "bad" / "status.json").write_text("{")
        assert command("list", tmp_path) == 0
        printed = capsys.readouterr()
        assert "finished" in printed.out
        assert "status.json is damaged" in printed.err

    def test_a_file_that_is_read_just_now(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """On Windows a file can't be replaced while someone reads it."""
        replace, refusals = Path.replace, [PermissionError(13, "in use")] * 3

        def busy(self: Path, target: Path) -> Path:
            if refusals:
                raise refusals.pop()
            return replace(self, target)

        monkeypatch.setattr(Path, "replace", busy)
        write_text(tmp_path / "file", "new")
        assert (tmp_path / "file").read_text() == "new"
        refusals.extend([PermissionError(13, "in use")] * 1000)
        with pytest.raises(PermissionError):
            write_text(tmp_path / "file", "newer")
        assert (tmp_path / "file").read_text() == "new"


def test_a_code_page_without_greek_letters(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("name", ["out", "show", "target", "config", "overwrite", "algorithms", "hyperparameters"])
def test_names_that_are_taken(name: str) -> None:
    kind = dataclasses.make_dataclass("Own", [(name, float, 1.0)], bases=(FedAvg,), frozen=True)
    with pytest.raises(InputError, match=f"names a hyper-parameter '{name}', which is a setting of every run"):
        adabest.run(algorithm=kind())


class WithCounter(nn.Module):
    """A classifier with a constant of whole numbers, as an embedding of positions has."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a_position", torch.arange(4))
        self.linear = nn.Linear(36, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.linear(x.flatten(1))
        return scores


def test_models_with_whole_numbers_are_loaded(tmp_path: Path) -> None:
    done = run(tmp_path / "run", rounds=1, model=WithCounter())
    module = done.load_model(module=WithCounter())
    assert next(module.parameters()).dtype == torch.float32


def test_predictions_on_inputs_as_they_are(tmp_path: Path) -> None:
    done = run(tmp_path / "run", rounds=2)
    data = stripes()
    right = (done.predict(data.x_test).argmax(dim=1) == data.y_test).double().mean()
    assert float(right) == done.final["scored_accuracy"]
    assert torch.equal(done.predict(data.x_test.numpy()), done.predict(data.x_test))


def test_a_data_set_is_checked_however_it_is_made() -> None:
    data = stripes()
    with pytest.raises(InputError, match="there is a label 2, but only 2 classes"):
        dataclasses.replace(data, classes=2)
    with pytest.raises(InputError, match="should have the same"):
        dataclasses.replace(data, y_train=data.y_train[:-1])


def test_an_augmentation_that_does_not_fit(tmp_path: Path) -> None:
    flat = adabest.from_arrays(np.zeros((40, 4), dtype=np.float32), np.arange(40) % 2, np.zeros((4, 4)), [0, 1, 0, 1])
    with pytest.raises(InputError, match=r"the augmentation can't be used on inputs of shape \(4,\)"):
        run(tmp_path / "run", dataset=flat, model="logistic", augmentation="flip-crop")
    assert not (tmp_path / "run").exists()


def test_a_file_is_found_from_any_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    x = np.zeros((40, 4), dtype=np.float32)
    np.savez("data.npz", x_train=x, y_train=np.arange(40) % 2, x_test=x, y_test=np.arange(40) % 2)
    done = run(tmp_path / "run", rounds=1, dataset="data.npz", model="logistic")
    assert Path(done.config.dataset).is_absolute()


def test_a_norm_too_large_for_a_number_is_no_step_of_length_zero() -> None:
    huge = torch.full((4,), 1e30)
    stepped = local_step(torch.ones(4), huge, Correction(torch.ones(4)), 0.1, LocalTraining(clip=10.0))
    assert stepped.isnan().all()


class TestLanes:
    """Several runs at once may differ in all numbers, which then have the shape [lanes, 1]."""

    @pytest.mark.parametrize("algorithm", [FedDyn(mu=0.1), Scaffold(), AdaBest()], ids=str)
    def test_populations_and_rates_that_differ(self, algorithm: Algorithm) -> None:
        lanes, size = 3, 4
        cloud = torch.randn(lanes, size, dtype=torch.float64)
        column = torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64)

        def contexts(population: Population, eta: Any) -> ServerContext:
            known = population if algorithm.needs_population else None
            return ServerContext(round=1, phase=0, eta=eta, base_eta=eta, known_population=known)

        together = algorithm.downlink(
            algorithm.server_init(cloud), cloud, contexts(Population(10 * column, 7 * column), 0.1 * column)
        )
        for lane in range(lanes):
            number = float(column[lane])
            one = contexts(Population(10 * number, 7 * number), 0.1 * number)
            alone = algorithm.downlink(algorithm.server_init(cloud[lane]), cloud[lane], one)
            for field, value in alone._asdict().items():
                torch.testing.assert_close(getattr(together, field)[lane], value)


@dataclasses.dataclass(frozen=True)
class TwoKinds(FedAvg):
    """A plain mean of gradients first, then a sample-weighted mean of models: replies of two kinds."""

    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"gradient": ("one",), "model": ("samples",)}
    phases: ClassVar[tuple[Work, ...]] = (Work.GRADIENT, Work.TRAIN)

    class Gradient(NamedTuple):
        gradient: Tensor

    def client_finish(self, client: Any, message: Any, model: Tensor, context: ClientContext) -> tuple[Any, Any]:
        if context.phase == 0:
            return client, self.Gradient(model)
        return super().client_finish(client, message, model, context)

    def server_step(self, server: Any, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        if context.phase == 0:
            return Update(server, cloud, cloud, h=replies.mean("gradient"))
        return super().server_step(server, cloud, replies, context)


def test_exchanges_of_a_round_may_have_replies_of_different_kinds() -> None:
    task = random_quadratics(0, 3, dim=4, unbalanced=True)
    two, one = simulate(TwoKinds(), task), simulate(FedAvg(), task)
    two.step(cohort=np.arange(3))
    one.step(cohort=np.arange(3))
    assert torch.equal(two.state.cloud, one.state.cloud)
    samples_sent = 3 * 8
    assert two.state.bytes_up == one.state.bytes_up + 3 * 4 * 8
    assert one.state.bytes_up == 3 * 4 * 8 + samples_sent


def test_a_cohort_names_each_client_once() -> None:
    with pytest.raises(InputError, match="each once"):
        simulate(FedAvg(), random_quadratics(0, 3, dim=2)).step(cohort=np.array([1, 1]))


def test_a_trusted_runs_modules_are_found_from_any_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "faraway.py").write_text("from adabest import FedAvg as Mine\n")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.syspath_prepend(str(tmp_path / "work"))
    break_off(tmp_path / "run", 30, algorithm="faraway:Mine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(tmp_path / "work")])
    monkeypatch.delitem(sys.modules, "faraway")
    with pytest.raises(InputError, match="can't import module 'faraway'"):
        resume(tmp_path / "run", allow=["faraway:Mine"])
    assert resume(tmp_path / "run", trust=True).status == "finished"


def test_a_folder_of_runs_is_not_taken_for_nothing(tmp_path: Path) -> None:
    run(tmp_path / "all" / "one", rounds=1)
    with pytest.raises(InputError, match="there are runs below it"):
        adabest.resume(tmp_path / "all")


def test_layers_of_an_open_size_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="layers whose size is still open"):
        run(tmp_path / "run", model=nn.Sequential(nn.Flatten(), nn.LazyLinear(3)))
