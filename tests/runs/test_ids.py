"""Inputs that are ids, such as those of tokens: looked up as they are, on every engine, in lanes and after a resume."""

import functools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import ends_after
from torch import Tensor, nn

import adabest
from adabest.data.dataset import Dataset, from_arrays
from adabest.engine.gpu.trainer import GpuTrainer, Precision
from adabest.errors import InputError, Interrupted
from adabest.runs import build
from adabest.runs.files.records import check_identity

LOWEST, HIGHEST, LENGTH = 900, 999, 6
FILES = ("metrics.jsonl", "model.safetensors", "aggregate.safetensors", "cloud.safetensors")


@functools.cache
def parities(kind: str = "int64") -> Dataset:
    """Six ids of 900 to 999, whose first decides: odd or even. bfloat16 knows only each fourth of them."""
    generator = np.random.default_rng(0)
    ids = generator.integers(LOWEST, HIGHEST + 1, size=(2400, LENGTH))
    ids[:2, 0] = LOWEST, HIGHEST
    labels, ids = ids[:, 0] % 2, ids.astype(kind)
    return from_arrays(ids[:2000], labels[:2000], ids[2000:], labels[2000:], name="parities")


class Embedded(nn.Module):
    """Looks ids up, and judges the first of them."""

    def __init__(self, rows: int = HIGHEST + 1) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, 4)
        self.out = nn.Linear(4, 2)

    def forward(self, ids: Tensor) -> Tensor:
        scores: Tensor = self.out(self.table(ids.long())[:, 0])
        return scores


class Recurrent(nn.Module):
    """Looks ids up, and reads them one after another."""

    def __init__(self, layer: type[nn.LSTM | nn.GRU]) -> None:
        super().__init__()
        self.table, self.layer, self.out = nn.Embedding(HIGHEST + 1, 4), layer(4, 5, batch_first=True), nn.Linear(5, 2)

    def forward(self, ids: Tensor) -> Tensor:
        scores: Tensor = self.out(self.layer(self.table(ids))[0][:, -1])
        return scores


class Deciding(Embedded):
    """Looks at its inputs before it answers, which can't be done for many clients at once."""

    def forward(self, ids: Tensor) -> Tensor:
        scores = super().forward(ids)
        return scores if ids.sum() >= 0 else -scores


class Attending(nn.Module):
    """A small transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(HIGHEST + 1, 8), nn.Linear(8, 2)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        scores: Tensor = self.out(self.layer(self.table(ids)).mean(dim=1))
        return scores


def embedded(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return Embedded()


MODELS: dict[str, Any] = {
    "embedding": embedded,
    "lstm": lambda shape, classes: Recurrent(nn.LSTM),
    "gru": lambda shape, classes: Recurrent(nn.GRU),
    "transformer": lambda shape, classes: Attending(),
}


def run(folder: Path, **settings: Any) -> adabest.Run:
    common: dict[str, Any] = {
        "dataset": parities(),
        "model": embedded,
        "clients": 6,
        "participation": 0.5,
        "partition": "iid",
        "rounds": 3,
        "epochs": 1,
        "learning_rate": 0.3,
        "show": False,
        "overwrite": True,
    }
    return adabest.run(out=folder, **(common | settings))


def results(of: adabest.Run) -> list[bytes]:
    return [(of.folder / name).read_bytes() for name in FILES]


@pytest.mark.parametrize("kind", ["int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_whole_numbers_of_any_type_are_ids(kind: str) -> None:
    ids = np.array([[1, 2], [3, 100]], dtype=kind)
    dataset = from_arrays(ids, [0, 1], ids, [0, 1])
    assert dataset.holds_ids
    assert dataset.id_range == (1, 100)
    assert dataset.x_train.dtype == torch.int64
    assert torch.equal(dataset.x_train[:], torch.from_numpy(ids.astype("int64")))
    assert dataset.example().tolist() == [[1, 1], [100, 100]]


def test_bytes_are_pixels_and_no_ids() -> None:
    pixels = np.array([[1, 2], [3, 100]], dtype="uint8")
    dataset = from_arrays(pixels, [0, 1], pixels, [0, 1])
    assert not dataset.holds_ids
    assert dataset.id_range is None
    assert dataset.example().mean().item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_engines_agree(name: str, tmp_path: Path) -> None:
    settings = {"model": MODELS[name], "precision": "float64", "algorithm": "adabest", "rounds": 2}
    reference = run(tmp_path / "reference", engine="reference", **settings)
    batched = run(tmp_path / "batched", engine="batched", **settings)
    for which in ("aggregate", "cloud"):
        one, other = (of.load_model(which, MODELS[name]((), 0)).state_dict() for of in (reference, batched))
        for key, value in one.items():
            torch.testing.assert_close(value, other[key], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["embedding", "transformer"])
def test_clients_side_by_side_look_up_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"model": MODELS[name], "precision": "float64", "rounds": 2}
    reference = run(tmp_path / "reference", engine="reference", **settings)
    monkeypatch.setattr(build, "CpuTrainer", lambda task, *others: GpuTrainer(task, Precision(), None))
    stacked = run(tmp_path / "stacked", **settings)
    assert stacked.final["scored_loss"] == pytest.approx(reference.final["scored_loss"], rel=1e-9)
    assert stacked.final["cloud_norm"] == pytest.approx(reference.final["cloud_norm"], rel=1e-9)


def test_bfloat16_doesnt_touch_ids(tmp_path: Path) -> None:
    longer = {"rounds": 6, "epochs": 5, "participation": 1.0, "batch_size": 10}
    exact = run(tmp_path / "exact", precision="float32", **longer)
    half = run(tmp_path / "half", precision="bf16", **longer)
    assert exact.final["scored_accuracy"] > 0.9
    assert half.final["scored_accuracy"] == pytest.approx(exact.final["scored_accuracy"], abs=0.03)


def test_clients_one_after_another_arent_in_bfloat16_and_that_is_said(tmp_path: Path) -> None:
    shared: dict[str, Any] = {"model": lambda shape, classes: Deciding(), "rounds": 1}
    with pytest.warns(UserWarning, match="one after another.*precision bf16 has no effect on their training then"):
        half = run(tmp_path / "half", precision="bf16", **shared)
    full = run(tmp_path / "full", engine="reference", **shared)
    assert results(half)[1:] == results(full)[1:]


def test_ids_as_floats_are_kept_in_float32_and_that_is_said(tmp_path: Path) -> None:
    floats = {"dataset": parities("float32")}
    exact = run(tmp_path / "exact", precision="float32", **floats)
    with pytest.warns(UserWarning, match=r"parities holds whole numbers .* training is in float32 instead"):
        half = run(tmp_path / "half", precision="bf16", **floats)
    assert results(half) == results(exact)


@pytest.mark.parametrize("kind", ["thirds", "small"])
def test_bfloat16_stays_where_it_changes_no_whole_number(kind: str, tmp_path: Path) -> None:
    """Thirds of ids aren't whole, and no remainder of 256 is changed."""
    ids = parities().x_train[:200]
    inputs = (ids / 3 if kind == "thirds" else ids % 256).float()
    dataset = from_arrays(inputs, parities().y_train[:200], inputs, parities().y_train[:200])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(tmp_path / "run", precision="bf16", dataset=dataset, model="logistic", rounds=1)


def test_lanes_agree_with_single_runs(tmp_path: Path) -> None:
    lanes = adabest.compare(
        algorithms=["fedavg", "adabest"],
        out=tmp_path / "lanes",
        dataset=parities(),
        model=embedded,
        clients=6,
        participation=0.5,
        partition="iid",
        rounds=3,
        epochs=1,
        learning_rate=0.3,
        show=False,
    )
    for of in lanes.runs.values():
        alone = run(tmp_path / "alone", algorithm=of.config.algorithm)
        assert results(of) == results(alone)


def test_a_run_on_ids_is_resumed_exactly(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", rounds=4)
    with pytest.raises(Interrupted), ends_after(60):  # a round has 24 local steps
        run(tmp_path / "cut", rounds=4, checkpoint_every=1)
    resumed = adabest.resume(tmp_path / "cut", dataset=parities(), model=embedded, show=False)
    assert isinstance(resumed, adabest.Run)
    assert results(resumed) == results(whole)


def test_a_finished_run_takes_ids(tmp_path: Path) -> None:
    done = run(tmp_path / "run")
    assert done.identity["ids"] == [LOWEST, HIGHEST]
    module = done.load_model(module=Embedded())
    right = (module(parities().x_test).argmax(dim=1) == parities().y_test).double().mean().item()
    assert right == pytest.approx(done.final["scored_accuracy"])


def test_onnx_takes_ids(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    done = run(tmp_path / "run")
    path = done.export("onnx", out=tmp_path / "model.onnx", module=Embedded())
    (scores,) = onnxruntime.InferenceSession(path).run(None, {"inputs": parities().x_test[:7].numpy()})
    expected = done.load_model(module=Embedded())(parities().x_test[:7]).detach().numpy()
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-6)


def test_a_table_without_the_highest_id_is_refused_before_any_training(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"can't take ids from 900 to 999, int64 of shape \(2, 6\): .*nn.Embedding"):
        run(tmp_path / "run", model=lambda shape, classes: Embedded(rows=HIGHEST))


def test_ids_in_bytes_are_refused_with_what_would_be_right(tmp_path: Path) -> None:
    ids = (parities().x_train[:] % 256).to(torch.uint8)
    dataset = from_arrays(ids, parities().y_train, ids, parities().y_train)
    with pytest.raises(InputError, match="ids are whole numbers of a type wider than bytes, such as int64"):
        run(tmp_path / "run", dataset=dataset, model=lambda shape, classes: nn.Embedding(256, 2))


def test_a_model_that_looks_nothing_up_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="numbers to compute with should be floating-point"):
        run(tmp_path / "run", model="mlp,hidden=8")


@pytest.mark.parametrize("ids", [[1], [5, 1], "ab"])
def test_a_range_of_ids_that_is_none_is_refused(ids: Any) -> None:
    identity = {
        "dataset": "a",
        "classes": 2,
        "mean": 0.0,
        "std": 1.0,
        "input_shape": [2],
        "initial_model": "b",
        "parameters": 3,
        "partition": {"fingerprint": "c"},
    }
    assert check_identity("identity.json", identity) == identity
    with pytest.raises(InputError, match=r"identity.json.ids"):
        check_identity("identity.json", identity | {"ids": ids})


def test_a_model_of_numbers_is_told_to_be_replaced(tmp_path: Path) -> None:
    ids = np.arange(8).reshape(4, 2)
    data = from_arrays(ids, [0, 1, 0, 1], ids, [0, 1, 0, 1])
    with pytest.raises(InputError, match=r"model 'mlp', which was named or is the default.*--model my_module:my_model"):
        adabest.run(dataset=data, clients=2, partition="iid", rounds=1, out=tmp_path / "run", show=False)
