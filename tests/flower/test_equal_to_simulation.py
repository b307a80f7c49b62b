"""A federation's numbers are those of the reference engine, to the last bit, wherever its clients live."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import DATA, RUN, assert_equal_runs, federated, make_normalised, project_on, simulated, wires
from recording import VARIANTS

import adabest
from adabest.cli import main
from adabest.cli.exit_codes import DONE
from adabest.flower.orders import ANNOUNCE, TEST, TRAIN
from adabest.flower.project import ClientData


def both(folder: Path, settings: dict[str, Any], **changes: Any) -> tuple[adabest.Run, adabest.Run]:
    """A federation's run, and the same run of the reference engine."""
    network = wires(folder, settings, project=project_on(DATA, **changes))
    return federated(network), simulated(folder, settings | changes)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_algorithm_has_the_numbers_of_the_reference_engine(name: str, tmp_path: Path) -> None:
    settings = RUN | {"algorithm": name, "local_test": 0.2}
    del settings["model"]
    if name == "scaffnew":
        del settings["epochs"]  # which has no effect there, and a warning says so
    found, expected = both(tmp_path, settings, model=make_normalised)
    assert_equal_runs(found, expected)
    assert found.local_results() == expected.local_results()


@pytest.mark.parametrize(
    "changes",
    [
        {"local_steps": "uniform:1:5", "algorithm": "fednova"},
        {"local_steps": "mean", "algorithm": "scaffold"},
        {"local_optimizer": "adam", "learning_rate": 0.01},
        {"batching": "replacement", "batch_size": 7},
        {"learning_rate_decay": 0.9, "weight_decay": 0.01, "clip": 0.5},
        {"precision": "float64"},
        {"state_commit": "confirmed", "algorithm": "feddane"},
        {"participation": 1.0, "algorithm": "feddyn"},
        {"average_from": 0.5, "score": "averaged"},
        {"metrics": ["f1_macro"], "local_test": 0.25},
    ],
    ids=str,
)
def test_settings_mean_the_same_at_nodes(changes: dict[str, Any], tmp_path: Path) -> None:
    settings = RUN | {"algorithm": "adabest"} | changes
    if "uniform" in str(settings.get("local_steps")):
        del settings["epochs"]  # which has no effect there, and a warning says so
    found, expected = both(tmp_path, settings)
    assert_equal_runs(found, expected)


@pytest.mark.parametrize("nodes", [1, 10])
def test_numbers_do_not_depend_on_which_clients_share_a_node(nodes: int, tmp_path: Path) -> None:
    settings = RUN | {"algorithm": "scaffold"}
    found = federated(wires(tmp_path, settings, nodes=nodes))
    assert_equal_runs(found, simulated(tmp_path, settings))


def test_a_round_takes_one_order_to_each_node_with_clients_in_it(tmp_path: Path) -> None:
    network = wires(tmp_path, RUN | {"algorithm": "adabest"})
    run = federated(network)
    orders = [facts for kind, _, facts in network.sent if kind == TRAIN]
    by_round = {number: [set(facts["clients"]) for facts in orders if facts["round"] == number] for number in (1, 2)}
    for cohort in by_round.values():
        assert 1 <= len(cohort) <= 3
        assert len(set.union(*cohort)) == sum(map(len, cohort)) == 5
    assert [kind for kind, _, _ in network.sent].count(ANNOUNCE) == 3
    assert not any(kind == TEST for kind, _, _ in network.sent)  # the server has test samples
    assert run.final["cohort"] == 5


@pytest.mark.parametrize(("name", "down", "up"), [("adabest", 1, 1), ("scaffold", 2, 2), ("feddane", 3, 2)])
def test_no_more_is_sent_than_the_algorithm_declares(name: str, down: int, up: int, tmp_path: Path) -> None:
    network = wires(tmp_path, RUN | {"algorithm": name, "rounds": 1, "participation": 1.0})
    run = federated(network)
    model = run.identity["parameters"] * 4
    # Each client is told of in the costs, but a message goes to its node once.
    assert network.bytes == [3 * down * model, 10 * up * model]
    assert run.final["bytes_up"] - network.bytes[1] <= 10 * 64  # the numbers beside the vectors


def test_nodes_test_models_where_the_server_has_no_samples(tmp_path: Path) -> None:
    settings = RUN | {"algorithm": "adabest", "local_test": 0.2}
    network = wires(tmp_path, settings, project=project_on(DATA, tested=False))
    found, expected = federated(network), simulated(tmp_path, settings)
    results = found.local_results()
    assert results == expected.local_results()
    pooled = np.average(results["global_accuracy"], weights=results["held_out"])
    assert math.isclose(found.final["scored_accuracy"], pooled, rel_tol=1e-12)
    assert found.final["scored_accuracy"] != expected.final["scored_accuracy"]  # other samples
    assert [row["h_norm"] for row in found.metrics] == [row["h_norm"] for row in expected.metrics]
    assert [kind for kind, _, _ in network.sent].count(TEST) == 3 * 2  # one to each node in an evaluated round


def test_nodes_test_with_samples_that_clients_bring(tmp_path: Path) -> None:
    project = project_on(DATA, tested=False)

    def clients(node: Any) -> dict[int, Any]:
        found = {}
        for client, data in project.clients(node).items():
            found[client] = ClientData(data.x[5:], data.y[5:], data.x[:5], data.y[:5])
        return found

    own = project_on(DATA, tested=False)
    object.__setattr__(own, "clients", clients)
    run = federated(wires(tmp_path, RUN | {"algorithm": "fedavg"}, project=own))
    assert set(run.local_results()["held_out"]) == {5}
    assert 0 <= run.final["scored_accuracy"] <= 1


def test_the_folder_is_read_as_that_of_a_simulation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A report compares federations with other algorithms, and with simulations."""
    for name in ("adabest", "scaffold"):
        federated(wires(tmp_path, RUN | {"algorithm": name}))
        (tmp_path / "run").rename(tmp_path / name)
    simulated(tmp_path, RUN | {"algorithm": "adabest"})
    monkeypatch.chdir(tmp_path)
    for command in (["show", "scaffold"], ["list", "."], ["report", "."]):
        assert main(command) == DONE, command
    told = capsys.readouterr().out
    assert "scaffold" in told
    assert "finished" in told
    page = Path("report.html").read_text()
    entries = ("adabest,dataset=python-object:federation", "scaffold,dataset=python-object:federation")
    assert all(entry in page for entry in (*entries, "adabest,dataset=digits"))


def test_a_federation_of_integers_and_one_of_quantities_equal_the_simulation(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    ids, labels = rng.integers(0, 300, (120, 6)), rng.integers(0, 3, 120)
    dataset = adabest.from_arrays(ids, labels, ids[:30], labels[:30])
    data = {"dataset": dataset, "clients": 6, "validation_clients": 0, "partition_seed": 7}
    settings = RUN | {"algorithm": "adabest", "model": make_embedding, "batch_size": 8}
    model = settings.pop("model")
    project = project_on(data, model=model)
    found = federated(wires(tmp_path / "ids", settings, project=project))
    assert_equal_runs(found, simulated(tmp_path / "ids", settings | {"model": model}, data))


def make_embedding(input_shape: tuple[int, ...], classes: int) -> Any:
    """A model of ids."""
    from torch import nn

    return nn.Sequential(nn.Embedding(300, 4), nn.Flatten(), nn.Linear(4 * input_shape[0], classes))
