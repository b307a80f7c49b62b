"""Samples that are made up when they are asked for."""

import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_runs
import torch

import adabest
from adabest import random
from adabest.data.dataset import Dataset, _check
from adabest.data.loading import load_dataset
from adabest.data.synthetic import SyntheticInputs, synthetic
from adabest.errors import InputError
from adabest.random import Purpose
from adabest.tasks import classification


def inputs_of(dataset: Dataset) -> SyntheticInputs:
    assert isinstance(dataset.x_train, SyntheticInputs)
    return dataset.x_train


@pytest.mark.parametrize("shape", [(5,), (3, 32, 32), (2, 3, 4, 5)])
def test_a_sample_by_hand(shape: tuple[int, ...]) -> None:
    """Written out byte by byte, in plain Python."""
    data = synthetic(samples=30, shape=shape, classes=4, test=3)
    for sample in (0, 17, 31):
        label = (int(random.bits(0, Purpose.SYNTHETIC, 0, sample)[0]) % 2**64 >> 32) * 4 >> 32
        expected = []
        for pixel in range(int(np.prod(shape))):
            prototype = (int(random.bits(0, Purpose.SYNTHETIC, 1, label, pixel)[0]) % 2**64 >> 32) * 64 >> 32
            word = int(random.bits(0, Purpose.SYNTHETIC, 2, sample, pixel // 8)[0]) % 2**64
            noise = word.to_bytes(8, "little")[pixel % 8]
            expected.append(prototype + noise - noise // 4)
        x, y = (data.x_train, data.y_train) if sample < 30 else (data.x_test, data.y_test)
        place = torch.tensor(sample if sample < 30 else sample - 30)
        assert x[place].flatten().tolist() == expected
        assert y[place].item() == label


def test_samples_do_not_depend_on_how_they_are_asked_for() -> None:
    inputs = inputs_of(synthetic(samples=9000, shape=(2, 3), classes=3))
    whole = inputs[:]
    assert (whole.shape, whole.dtype) == (inputs.shape, inputs.dtype) == ((9000, 2, 3), torch.uint8)
    chosen = torch.tensor([[8999, 0, 4096], [5, 5, 17]])
    assert torch.equal(inputs[chosen], whole[chosen])
    assert torch.equal(inputs[torch.arange(9000)], whole)
    assert torch.equal(inputs[3:17:2], whole[3:17:2])
    assert inputs[torch.arange(0)].shape == (0, 2, 3)
    assert torch.equal(inputs.to("cpu")[chosen], whole[chosen])
    assert len(inputs) == len(whole)


@pytest.mark.parametrize("samples", [1, 4096, 4097, 9000])
def test_samples_made_at_once_are_those_made_on_access(samples: int) -> None:
    inputs = inputs_of(synthetic(samples=samples, shape=(2, 3), classes=3))
    made = inputs.made()
    assert (made.shape, made.dtype) == (inputs.shape, inputs.dtype)
    assert torch.equal(made, inputs[torch.arange(samples)])
    assert inputs.stored_bytes == made.numel() * made.element_size()


def test_samples_are_stored_on_a_device_with_memory_to_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    data = synthetic(samples=50, shape=(3, 4), classes=3)
    cpu = torch.device("cpu")
    assert isinstance(classification.on_device(data, cpu).x_train, SyntheticInputs)
    for spare, kind in ((50 * 12, torch.Tensor), (50 * 12 - 1, SyntheticInputs)):
        monkeypatch.setattr(classification, "_bytes_to_spare", lambda device, spare=spare: spare)
        found = classification.on_device(data, cpu).x_train
        assert isinstance(found, kind)
        assert torch.equal(found[torch.arange(50)], inputs_of(data)[:])


def test_a_gpu_spares_an_eighth_of_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all of it, whoever else uses it."""
    for total, spare in ((8 * 2**20, 2**20), (2**40, 4 * 2**30)):
        facts = types.SimpleNamespace(total_memory=total)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device, facts=facts: facts)
        assert classification._bytes_to_spare(torch.device("cuda")) == spare


def test_stored_samples_train_as_those_made_on_access(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for spare in (0, 10**9):
        monkeypatch.setattr(classification, "_bytes_to_spare", lambda device, spare=spare: spare)
        settings: dict[str, Any] = {"dataset": "synthetic,samples=200,shape=6,classes=3,test=20", "model": "logistic"}
        results.append(tiny_runs.results(tiny_runs.run(tmp_path / str(spare), **settings).folder))
    assert results[0] == results[1]


def test_more_samples_leave_the_first_as_they_are() -> None:
    few, many = (synthetic(samples=samples, shape=(4,), classes=3) for samples in (50, 80))
    assert torch.equal(few.x_train[:], many.x_train[:50])
    assert torch.equal(few.y_train, many.y_train[:50])
    assert torch.equal(few.x_test[:30], many.x_train[50:]), "the test set comes behind the training set"


def test_a_million_samples_are_a_handful_of_bytes() -> None:
    data = synthetic(samples=10**6)
    inputs = inputs_of(data)
    assert data.input_shape == (3, 32, 32)
    assert inputs.shape == (10**6, 3, 32, 32)
    assert inputs.prototypes.numel() == 10 * 3 * 32 * 32
    assert inputs[torch.tensor([10**6 - 1])].shape == (1, 3, 32, 32)
    counts = torch.bincount(data.y_train)
    assert counts.min() > 99_000
    assert data.fingerprint() != synthetic(samples=10**6 - 1).fingerprint()


def test_the_fingerprint_asks_for_no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    data = synthetic(samples=100, shape=(4,), classes=3)
    fingerprint = data.fingerprint()
    others = [synthetic(samples=100, shape=(2, 2), classes=3), synthetic(samples=100, shape=(4,), classes=4)]
    assert fingerprint not in {other.fingerprint() for other in others}

    def refuse(*given: Any) -> None:
        raise AssertionError("a sample was made")

    monkeypatch.setattr(SyntheticInputs, "_make", refuse)
    assert data.fingerprint() == fingerprint
    _check(
        "synthetic", {"x_train": data.x_train, "y_train": data.y_train, "x_test": data.x_test, "y_test": data.y_test}
    )


def test_synthetic_data_are_found_by_name() -> None:
    data = load_dataset("synthetic,samples=20,shape=1x4x4,classes=3,test=7")
    assert data.x_train.shape == (20, 1, 4, 4)
    assert (len(data.y_test), data.classes, data.defaults.model) == (7, 3, "mlp,hidden=100x100")
    assert load_dataset("synthetic").defaults.model == "cnn"
    assert len(load_dataset("synthetic").y_train) == 10_000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("samples=0", "samples = 0: it must be at least 1"),
        ("classes=1", "classes = 1: it must be at least 2"),
        ("test=0", "test = 0: it must be at least 1"),
        ("shape=3x0x3", "shape = 0: it must be at least 1"),
        ("shape=x", "shape = 0: it must be at least 1"),
        ("shape=threes", "shape should be a whole number"),
        ("size=3", "has no option 'size'"),
    ],
)
def test_bad_options_are_refused(options: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        load_dataset(f"synthetic,{options}")


def test_synthetic_data_can_be_learnt(tmp_path: Path) -> None:
    """From clients with one sample each, to a test set they have never seen."""
    settings: dict[str, Any] = {"dataset": "synthetic,samples=2000,shape=64,classes=4,test=400", "model": "logistic"}
    settings |= {"clients": 2000, "validation_clients": 0, "participation": 0.02, "batch_size": 1, "rounds": 40}
    done = adabest.run(out=tmp_path, show=False, algorithm="fedavg", epochs=1, evaluate_every=40, **settings)
    assert done.final["aggregate_accuracy"] > 0.8
    assert done.final["local_steps"] == 1600


def test_runs_are_resumed_on_synthetic_data(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"dataset": "synthetic,samples=200,shape=6,classes=3,test=20", "model": "logistic"}
    straight = tiny_runs.run(tmp_path / "straight", **settings)
    tiny_runs.break_off(tmp_path / "broken", 14, checkpoint_every=1, **settings)
    tiny_runs.resume(tmp_path / "broken")
    assert tiny_runs.results(tmp_path / "broken") == tiny_runs.results(straight.folder)
