"""Local tests: what clients hold out, and the models that are judged on it client by client."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_runs import ends_after

import adabest
from adabest.data.loading import load_dataset
from adabest.errors import InputError, Interrupted
from adabest.federation.partition import Partition, Scheme, cut

pytest.importorskip("pandas", reason="pandas isn't installed")
SMALL: dict[str, Any] = {
    "dataset": "digits",
    "model": "logistic",
    "clients": 8,
    "validation_clients": 2,
    "participation": 0.25,
    "rounds": 3,
    "epochs": 1,
    "local_test": 0.25,
    "show": False,
}


def held(samples: int, clients: int, share: float, seed: int = 0) -> tuple[Partition, Partition]:
    labels = np.arange(samples) % 3
    scheme = Scheme(clients, 1, "iid", alpha=1.0, unbalance=0.4, seed=seed)
    plain = cut(labels, 3, scheme)
    return plain, cut(labels, 3, Scheme(**{**vars(scheme), "local_test": share}))


@settings(deadline=None, max_examples=40)
@given(samples=st.integers(60, 300), clients=st.integers(1, 9), share=st.floats(0.01, 0.99), seed=st.integers(0, 2**40))
def test_clients_keep_what_they_do_not_hold_out(samples: int, clients: int, share: float, seed: int) -> None:
    plain, cut_again = held(samples, clients, share, seed)
    assert cut_again.held_out is not None
    for client in range(clients + 1):
        trained, tested = cut_again.of(client).tolist(), cut_again.held_out.of(client).tolist()
        own = plain.of(client).tolist()
        assert sorted([*trained, *tested]) == sorted(own)
        assert trained == [sample for sample in own if sample not in set(tested)]  # in their order
        expected = 0 if client in plain.validation else min(max(round(share * len(own)), 1), len(own) - 1)
        assert len(tested) == expected
    assert np.array_equal(cut_again.label_counts + cut_again.held_out.label_counts, plain.label_counts)
    assert cut_again.fingerprint != plain.fingerprint


def test_what_is_held_out_depends_on_the_client_alone() -> None:
    _, few = held(200, 4, 0.25)
    _, again = held(200, 4, 0.25)
    assert few.held_out is not None
    assert again.held_out is not None
    assert np.array_equal(few.held_out.indices, again.held_out.indices)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> adabest.Run:
    return adabest.run(out=tmp_path_factory.mktemp("local") / "run", metrics=["f1_macro"], **SMALL)


class Keeping(adabest.Callback):
    """Keeps the models of all clients, and the scored one."""

    def __init__(self) -> None:
        self.own: dict[int, torch.nn.Module] = {}

    def end(self, run: adabest.RunView, ending: adabest.Ending) -> None:
        self.scored = run.module()
        self.own = {client: run.module(client=client) for client in run.simulation.clients_with_models()}


def test_numbers_are_those_of_the_models(tmp_path: Path) -> None:
    keeping = Keeping()
    done = adabest.run(out=tmp_path / "run", callbacks=[keeping], **SMALL)
    frame = done.per_client().set_index("client")
    data = load_dataset("digits", None)
    settings = {name: SMALL[name] for name in ("dataset", "clients", "validation_clients", "local_test")}
    partition = adabest.partition(**settings).clients
    assert partition.held_out is not None
    assert frame.index.tolist() == partition.training.tolist()
    for client, row in frame.iterrows():
        chosen = torch.from_numpy(partition.held_out.of(client))
        x, y = (data.x_train[chosen].float() - data.mean) / data.std, data.y_train[chosen]
        assert row["held_out"] == len(chosen)
        assert row["samples"] == len(partition.of(client))
        assert row["global_accuracy"] == pytest.approx(float((keeping.scored(x).argmax(1) == y).double().mean()))
        if client in keeping.own:
            right = float((keeping.own[client](x).argmax(1) == y).double().mean())
            assert row["own_accuracy"] == pytest.approx(right)
        else:
            assert np.isnan(row["own_accuracy"])
    assert 0 < len(keeping.own) < 8
    own = frame["own_accuracy"].dropna()
    assert done.final["local_global_accuracy"] == pytest.approx(frame["global_accuracy"].mean())
    assert done.final["local_own_accuracy"] == pytest.approx(own.mean())
    assert done.final["local_own_spread"] == pytest.approx(own.std(ddof=0))
    assert done.final["local_own_worst_tenth"] == own.min()
    assert done.final["local_own_best_tenth"] == own.max()


@pytest.mark.parametrize("algorithm", ["fedper", "ditto"])
def test_personal_models_are_the_clients_own(tmp_path: Path, algorithm: str) -> None:
    """They are judged, given to callbacks, and the same after a resumption."""

    class Comparing(Keeping):
        def after_evaluation(self, run: adabest.RunView, metrics: Any) -> None:
            clients = run.simulation.clients_with_models()
            assert clients
            for client in clients:
                flat = torch.cat([value.flatten() for value in run.parameters(client=client).values()])
                assert torch.equal(flat, run.simulation.personal_model(client))
                assert not torch.equal(flat, run.simulation.client_model(client))

    settings = {**SMALL, "model": "mlp,hidden=8", "algorithm": algorithm}
    keeping = Comparing()
    done = adabest.run(out=tmp_path / "run", callbacks=[keeping], **settings)
    frame = done.per_client().set_index("client")
    data = load_dataset("digits", None)
    for client, module in keeping.own.items():
        held_out = done.partition.clients.held_out
        assert held_out is not None
        chosen = torch.from_numpy(held_out.of(client))
        x, y = (data.x_train[chosen].float() - data.mean) / data.std, data.y_train[chosen]
        right = float((module(x).argmax(1) == y).double().mean())
        assert frame.loc[client, "own_accuracy"] == pytest.approx(right)
    with pytest.raises(Interrupted), ends_after(5):
        adabest.run(out=tmp_path / "cut", checkpoint_every=1, **settings)
    resumed = adabest.resume(tmp_path / "cut", show=False)
    assert isinstance(resumed, adabest.Run)
    for name in ("metrics.jsonl", "clients.json", "model.safetensors"):
        assert (resumed.folder / name).read_bytes() == (done.folder / name).read_bytes()


def test_a_private_part_without_local_tests_is_a_warning(tmp_path: Path) -> None:
    settings = SMALL | {"model": "mlp,hidden=8", "local_test": None, "rounds": 1}
    with pytest.warns(UserWarning, match=r"^with fedper, the server's models have the .*--local-test"):
        adabest.run(out=tmp_path / "run", algorithm="fedper", **settings)
    adabest.run(out=tmp_path / "ditto", algorithm="ditto", **settings)  # its cloud model is whole


def test_a_mistyped_private_part_is_refused_before_any_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the private part of FedPer: '1\.wieght' is the name of no parameter"):
        adabest.run(out=tmp_path / "run", **SMALL | {"algorithm": "fedper,private=1.wieght"})
    assert not (tmp_path / "run").exists()


def test_nobody_trains_on_what_is_held_out(done: adabest.Run) -> None:
    # n_i and with it the number of steps is that of the rest.
    frame = done.per_client()
    assert done.identity["partition"]["samples_held_out"] == frame["held_out"].sum()
    assert done.identity["partition"]["samples_per_client"][2] >= frame["samples"].max()


def test_own_metrics_are_told_by_client(done: adabest.Run) -> None:
    assert done.per_client()["global_f1_macro"].between(0, 1).all()


def test_the_table_is_proven(done: adabest.Run, tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(done.folder, copied)
    assert [finding.state for finding in adabest.verify(copied)] == ["whole"]
    table = copied / "clients.json"
    table.write_text(table.read_text(encoding="utf-8").replace("0.", "1.", 1), encoding="utf-8")
    assert "clients.json" in {finding.path.name for finding in adabest.verify(copied) if finding.state == "damaged"}
    with pytest.raises(InputError, match=r"clients\.json isn't the file that this run wrote"):
        adabest.load(copied).per_client()


def test_a_run_is_resumed_exactly(tmp_path: Path) -> None:
    whole = adabest.run(out=tmp_path / "whole", **SMALL)
    with pytest.raises(Interrupted), ends_after(5):
        adabest.run(out=tmp_path / "cut", checkpoint_every=1, **SMALL)
    resumed = adabest.resume(tmp_path / "cut", show=False)
    assert isinstance(resumed, adabest.Run)
    for name in ("metrics.jsonl", "clients.json", "model.safetensors"):
        assert (resumed.folder / name).read_bytes() == (whole.folder / name).read_bytes()


def test_engines_agree(tmp_path: Path) -> None:
    rows = [
        adabest.run(out=tmp_path / engine, engine=engine, precision="float64", **SMALL).final
        for engine in ("reference", "batched")
    ]
    assert rows[0]["local_own_accuracy"] == rows[1]["local_own_accuracy"]


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, 2.0])
def test_shares_that_leave_nothing(tmp_path: Path, share: float) -> None:
    with pytest.raises(InputError, match="local_test"):
        adabest.run(out=tmp_path / "run", **SMALL | {"local_test": share})


def test_clients_of_a_single_sample_have_nothing_to_hold_out(tmp_path: Path) -> None:
    inputs, labels = np.zeros((9, 4), np.float32), np.arange(9) % 2
    dataset = adabest.from_arrays(inputs, labels, inputs, labels, clients=np.arange(9), name="singles")
    with pytest.raises(InputError, match="every training client has a single sample"):
        adabest.run(dataset=dataset, model="logistic", local_test=0.2, out=tmp_path / "run", show=False)


def test_a_run_without_it_has_no_table(tmp_path: Path) -> None:
    plain = adabest.run(out=tmp_path / "run", **SMALL | {"local_test": None})
    with pytest.raises(InputError, match="it had no --local-test"):
        plain.per_client()
    assert not any(name.startswith("local_") and name != "local_steps" for name in plain.final)


def test_callbacks_may_ask_for_any_model(tmp_path: Path) -> None:
    seen: list[str] = []

    class Asking(adabest.Callback):
        def after_round(self, run: adabest.RunView) -> None:
            names = ("scored", "aggregate", "cloud")
            assert all(not torch.equal(run.parameters(name)["1.weight"], torch.zeros(10, 64)) for name in names)
            (client,) = run.simulation.clients_with_models()[:1]
            assert run.parameters(client=client).keys() == run.parameters().keys()
            for stranger in (0, 99):  # one to validate with, and nobody
                with pytest.raises(
                    InputError, match=f"client {stranger} doesn't train; clients that do are 1, 2, 3, 4, 5, 6, 7, 9$"
                ):
                    run.parameters(client=stranger)
            seen.append("round")

    adabest.run(out=tmp_path / "run", callbacks=[Asking()], **SMALL)
    assert len(seen) == 3
