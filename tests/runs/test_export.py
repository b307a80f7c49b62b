"""Exported models: files that say the same as the run, without it."""

import functools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from tiny_runs import DEFAULTS, break_off, command, contents, dropping, run, stripes
from torch import Tensor, nn

import adabest
from adabest import extras
from adabest.errors import InputError
from adabest.runs.files.atomic_files import write_atomically

MODELS = ("scored", "aggregate", "cloud")


@functools.cache
def colours() -> adabest.Dataset:
    """The stripes as images of 3×16×16, each colour normalised by itself."""

    def larger(images: Tensor) -> Tensor:
        scaled = nn.functional.interpolate(images.float(), size=(16, 16))
        return torch.cat([scaled, 255 - scaled, scaled / 2], dim=1).to(torch.uint8)

    mean, std = torch.tensor([110.0, 140.0, 55.0]), torch.tensor([50.0, 60.0, 25.0])
    return replace(
        stripes(),
        x_train=larger(stripes().x_train[:]),
        x_test=larger(stripes().x_test),
        mean=mean.reshape(3, 1, 1),
        std=std.reshape(3, 1, 1),
        defaults=DEFAULTS,
    )


class Network(nn.Module):
    """The stripes' default model, written by someone who has only its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.add_module("1", nn.Linear(36, 8))
        self.add_module("3", nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.get_submodule("3")(self.get_submodule("1")(x.flatten(1)).relu())
        return scores


class WithLogits(nn.Module):
    """A classifier in the manner of libraries whose models give an object."""

    def __init__(self) -> None:
        super().__init__()
        self.end = nn.Linear(36, 3)

    def forward(self, x: Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.end(x.flatten(1)), loss=None)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> adabest.Run:
    """A finished run, to look at only."""
    return run(tmp_path_factory.mktemp("finished") / "mine", algorithm="feddyn")


class TestSafetensors:
    @pytest.mark.parametrize("which", MODELS)
    def test_safetensors_hold_parameters_and_normalisation(
        self, which: str, finished: adabest.Run, tmp_path: Path
    ) -> None:
        path = finished.export("safetensors", which, out=tmp_path / "model.safetensors")
        assert path == tmp_path / "model.safetensors"
        stored, own = load_file(path), finished.load_model(which).state_dict()
        assert stored.keys() == own.keys() | {"input.mean", "input.std"}
        assert all(torch.equal(stored[name], tensor) for name, tensor in own.items())

    def test_safetensors_predict_without_the_run(self, finished: adabest.Run, tmp_path: Path) -> None:
        tensors = load_file(finished.export("safetensors", out=tmp_path / "model.safetensors"))
        mean, std = tensors.pop("input.mean"), tensors.pop("input.std")
        network = Network()
        network.load_state_dict(tensors)
        x = stripes().x_test
        assert torch.equal(network((x - mean) / std), finished.predict(x))

    def test_safetensors_have_settings_as_metadata(self, finished: adabest.Run, tmp_path: Path) -> None:
        with safe_open(finished.export("safetensors", "cloud", out=tmp_path / "m"), "pt") as file:
            metadata = file.metadata()
        settings = {name: str(value) for name, value in finished.config.essence().items()}
        assert metadata.items() >= settings.items()
        assert not metadata.keys() & {"device", "data_dir", "loggers"}
        assert {name: metadata[name] for name in metadata.keys() - settings.keys()} == {
            "which": "cloud",
            "round": "5",
            "accuracy": str(finished.final["cloud_accuracy"]),
            "classes": "3",
            "input_shape": "[1, 6, 6]",
        }
        assert (metadata["dataset"], metadata["algorithm"], metadata["seed"]) == ("stripes", "feddyn", "0")

    def test_double_precision_is_kept(self, tmp_path: Path) -> None:
        done = run(tmp_path / "run", rounds=1, precision="float64")
        stored = load_file(done.export("safetensors", out=tmp_path / "m"))
        assert {tensor.dtype for tensor in stored.values()} == {torch.float64}

    def test_a_python_object_needs_no_module(self, tmp_path: Path) -> None:
        done = run(tmp_path / "run", rounds=1, model=dropping((1, 6, 6), 3))
        assert set(load_file(done.export("safetensors", out=tmp_path / "m"))) >= {"1.weight", "4.bias"}

    def test_a_diverged_run_has_models_too(self, tmp_path: Path) -> None:
        lost = run(tmp_path / "run", algorithm="tiny_runs:Bomb", evaluate_every=1)
        with safe_open(lost.export("safetensors", out=tmp_path / "m"), "pt") as file:
            assert file.metadata()["round"] == "2"


@pytest.fixture(scope="module")
def exported(finished: adabest.Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its scored model as ONNX, to look at only: an export takes more than a second."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    return finished.export("onnx", out=tmp_path_factory.mktemp("exported") / "model.onnx")


class TestOnnx:
    @pytest.fixture(autouse=True)
    def packages(self) -> None:
        self.onnx = pytest.importorskip("onnx")
        self.runtime = pytest.importorskip("onnxruntime")
        pytest.importorskip("onnxscript")

    def scores(self, path: Path, x: Tensor) -> np.ndarray[Any, Any]:
        """What another runtime makes of the file."""
        session = self.runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
        (given,), (wanted,) = session.get_inputs(), session.get_outputs()
        assert (given.name, given.type, wanted.name) == ("inputs", "tensor(float)", "scores")
        return np.asarray(session.run(["scores"], {"inputs": x.to(torch.float32).numpy()})[0])

    def same(self, done: adabest.Run, path: Path, x: Tensor) -> None:
        for size in (1, 2, 7, 60):
            expected = done.predict(x[:size]).numpy()
            np.testing.assert_allclose(self.scores(path, x[:size]), expected, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("model", ["logistic", "mlp,hidden=8", "tiny_runs:dropping"])
    def test_onnx_gives_the_scores_of_the_run(self, model: str, tmp_path: Path) -> None:
        done = run(tmp_path / "run", model=model)
        self.same(done, done.export("onnx", out=tmp_path / "model.onnx"), stripes().x_test)

    @pytest.mark.parametrize("model", ["cnn", "resnet"])
    def test_onnx_gives_the_scores_of_the_run_on_images_in_colour(self, model: str, tmp_path: Path) -> None:
        done = run(tmp_path / "run", dataset=colours(), model=model, rounds=1)
        self.same(done, done.export("onnx", out=tmp_path / "model.onnx"), colours().x_test)

    def test_double_precision_becomes_single(self, tmp_path: Path) -> None:
        """Many runtimes have no convolution of doubles."""
        done = run(tmp_path / "run", precision="float64")
        self.same(done, done.export("onnx", out=tmp_path / "model.onnx"), stripes().x_test)
        assert done.model(torch.zeros(1, 1, 6, 6, dtype=torch.float64)).dtype == torch.float64

    def test_each_model_is_exported_as_itself(self, finished: adabest.Run, exported: Path, tmp_path: Path) -> None:
        x = stripes().x_test
        mean, std = (torch.tensor(finished.identity[name]) for name in ("mean", "std"))
        for which in MODELS:
            path = exported if which == "scored" else finished.export("onnx", which, out=tmp_path / f"{which}.onnx")
            with torch.no_grad():
                expected = finished.load_model(which)((x - mean) / std).numpy()
            np.testing.assert_allclose(self.scores(path, x), expected, rtol=1e-4, atol=1e-4)

    def test_a_python_object_must_be_given(self, tmp_path: Path) -> None:
        module = dropping((1, 6, 6), 3)
        run(tmp_path / "run", model=module, precision="float64")
        done = adabest.load(tmp_path / "run")
        with pytest.raises(InputError, match="was a Python object: pass it again, as module="):
            done.export("onnx", out=tmp_path / "model.onnx")
        blank = dropping((1, 6, 6), 3)
        path = done.export("onnx", out=tmp_path / "model.onnx", module=blank)
        assert next(blank.parameters()).dtype == torch.float64  # filled, as by load_model, and left so
        x = stripes().x_test
        mean, std = (torch.tensor(done.identity[name]) for name in ("mean", "std"))
        with torch.no_grad():
            expected = done.load_model(module=module).float()((x - mean) / std).numpy()
        np.testing.assert_allclose(self.scores(path, x), expected, rtol=1e-4, atol=1e-4)

    def test_a_model_that_gives_logits_is_exported(self, tmp_path: Path) -> None:
        done = run(tmp_path / "run", model=WithLogits())
        path = done.export("onnx", out=tmp_path / "model.onnx")
        self.same(done, path, stripes().x_test)
        again = adabest.load(tmp_path / "run").export("onnx", out=tmp_path / "again.onnx", module=WithLogits())
        assert again.read_bytes() == path.read_bytes()

    def test_onnx_has_metadata_and_nothing_of_this_machine(self, finished: adabest.Run, exported: Path) -> None:
        stored = self.onnx.load(exported)
        self.onnx.checker.check_model(stored, full_check=True)
        metadata = {entry.key: entry.value for entry in stored.metadata_props}
        assert (
            metadata.items()
            >= {
                "dataset": "stripes",
                "algorithm": "feddyn",
                "classes": "3",
                "seed": "0",
                "which": "scored",
                "accuracy": str(finished.final["scored_accuracy"]),
            }.items()
        )
        content = exported.read_bytes()
        assert not any(place in content for place in (b".py", str(Path.home()).encode() + b"/", b"stack_trace"))

    def test_export_prints_one_line_and_writes_one_file(self, finished: adabest.Run, tmp_path: Path) -> None:
        """In a process of its own, since much is said only once."""
        line = [sys.executable, "-m", "adabest", "export", str(finished.folder), "--format", "onnx", "--out", "m"]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "Written: m\n", "")
        assert [path.name for path in tmp_path.iterdir()] == ["m"]

    def test_a_model_that_onnx_cannot_express_is_refused(
        self, finished: adabest.Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        class Moody(Network):
            def forward(self, x: Tensor) -> Tensor:
                print("let me think")
                scores = super().forward(x)
                return scores if float(scores.sum()) > 0 else -scores

        with pytest.raises(InputError, match="torch can't express the model as ONNX: ") as caught:
            finished.export("onnx", out=tmp_path / "m", module=Moody())
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "m").exists()
        assert capfd.readouterr() == ("", "")

    def test_a_model_for_batches_of_one_size_is_refused(self, finished: adabest.Run, tmp_path: Path) -> None:
        class Pairs(Network):
            def forward(self, x: Tensor) -> Tensor:
                return super().forward(x.reshape(2, 36))

        with pytest.raises(InputError, match="torch can't express the model as ONNX: "):
            finished.export("onnx", out=tmp_path / "m", module=Pairs())

    @pytest.mark.parametrize("missing", ["onnx", "onnxscript"])
    def test_missing_packages_are_named(
        self, missing: str, finished: adabest.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(extras, "is_installed", lambda package: package != missing)
        with pytest.raises(InputError, match=r'isn\'t installed: pip install "adabest\[onnx\]"'):
            finished.export("onnx", out=tmp_path / "m")
        assert finished.export("safetensors", out=tmp_path / "m").is_file()


class TestPlace:
    def test_the_default_is_named_after_the_run(
        self, finished: adabest.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert command("export", finished.folder, "--format", "safetensors") == 0
        assert capsys.readouterr().out == "Written: mine.safetensors\n"
        assert command("export", finished.folder, "--format", "safetensors", "--which", "cloud") == 0
        assert sorted(path.name for path in tmp_path.iterdir()) == ["mine-cloud.safetensors", "mine.safetensors"]

    def test_a_file_that_is_there_stays(
        self, finished: adabest.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "m").write_text("mine")
        given = ["export", finished.folder, "--format", "safetensors", "--out", tmp_path / "m"]
        assert command(*given) == 2
        assert "is there already; choose another file, or pass --overwrite" in capsys.readouterr().err
        assert (tmp_path / "m").read_text() == "mine"
        assert command(*given, "--overwrite") == 0
        assert load_file(tmp_path / "m")

    def test_folders_are_made(self, finished: adabest.Run, tmp_path: Path) -> None:
        assert finished.export("safetensors", out=tmp_path / "a" / "b" / "m").is_file()

    @pytest.mark.parametrize("name", ["model.safetensors", "metrics.jsonl", "config.toml"])
    def test_the_runs_own_files_are_never_replaced(self, name: str, tmp_path: Path) -> None:
        done = run(tmp_path / "run", rounds=1)
        before = contents(done.folder)
        with pytest.raises(InputError, match="is a file of the run itself"):
            done.export("safetensors", "cloud", out=tmp_path / "run" / ".." / "run" / name, overwrite=True)
        assert contents(done.folder) == before
        assert done.export("safetensors", out=done.folder / "exported.safetensors").is_file()

    def test_places_where_nothing_can_be_written_are_refused(self, finished: adabest.Run, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("here")
        with pytest.raises(InputError, match="is a folder; name a file in it"):
            finished.export("safetensors", out=tmp_path, overwrite=True)
        with pytest.raises(InputError, match="can't make the folder"):
            finished.export("safetensors", out=tmp_path / "file" / "m")

    def test_a_full_disk_leaves_nothing_behind(
        self, finished: adabest.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*given: Any) -> None:
            raise OSError(28, "No space left on device")

        (tmp_path / "m").write_text("mine")
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match=r"can't write .*m: No space left on device"):
            finished.export("safetensors", out=tmp_path / "m", overwrite=True)
        with pytest.raises(OSError, match="No space"):
            write_atomically(tmp_path / "n", lambda file: file.write(b"half"))
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"m": "mine"}


class TestMistakes:
    def test_a_run_that_is_not_finished_is_refused(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        break_off(tmp_path / "run", 30)
        for form in ("safetensors", "onnx"):
            assert command("export", tmp_path / "run", "--format", form, "--out", tmp_path / "m") == 2
            assert "has no scored model: the run is killed" in capsys.readouterr().err
        assert not (tmp_path / "m").exists()

    def test_a_model_that_was_not_made_is_refused(self, finished: adabest.Run) -> None:
        with pytest.raises(InputError, match="has no averaged model: it wasn't asked for"):
            finished.export("safetensors", "averaged")
        with pytest.raises(InputError, match="a run has no 'best' model; it has scored, aggregate, cloud"):
            finished.export("safetensors", "best")

    def test_the_averaged_model_is_exported(self, tmp_path: Path) -> None:
        done = run(tmp_path / "run", average_from=0.5)
        given = ["export", done.folder, "--format", "safetensors", "--which", "averaged", "--out", tmp_path / "m"]
        assert command(*given) == 0
        stored = load_file(tmp_path / "m")
        assert all(torch.equal(stored[k], v) for k, v in done.load_model("averaged").state_dict().items())

    def test_an_unknown_format_is_refused(self, finished: adabest.Run, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(InputError, match="no format 'tflite'; a model can be exported as safetensors or onnx"):
            finished.export("tflite")
        assert command("export", finished.folder, "--format", "tflite") == 2
        assert "onnx" in capsys.readouterr().err

    def test_export_refuses_a_folder_without_a_run(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert command("export", tmp_path, "--format", "onnx") == 2
        assert f"there is no run in {tmp_path}" in capsys.readouterr().err


def test_an_export_of_a_diverged_run_tells_its_own_round(tmp_path: Path) -> None:
    diverged = run(tmp_path / "run", algorithm="tiny_runs:Bomb", fuse=4, rounds=6, evaluate_every=2)
    assert (diverged.status, diverged.round) == ("diverged", 4)
    path = diverged.export("safetensors", "cloud", out=tmp_path / "cloud.safetensors")
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    assert metadata["round"] == "3"
    assert "accuracy" not in metadata  # the last evaluated round is 2
