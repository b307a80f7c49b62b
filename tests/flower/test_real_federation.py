"""Federations with Flower's own processes: a SuperLink, three SuperNodes, TLS and node authentication, on loopback.

They take minutes, and an environment in which Flower is: ``make federation``.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from federations import DATA, assert_equal_runs, models_of, simulated

import adabest

pytest.importorskip("flwr", reason="Flower isn't installed: make federation has an environment with it")

from real_federation import Federation, federation

RUN: dict[str, Any] = {
    "participation": 1.0,
    "rounds": 3,
    "epochs": 1,
    "batch_size": 20,
    "model": "mlp,hidden=8",
    "evaluate_every": 1,
    "learning_rate": 0.1,
    "seed": 3,
    "reply_limit": "10x",
    "state_commit": "confirmed",
}

_TRAINS = "Receiving: train message"


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A federation whose nodes share out the clients of a simulation; supervisors start nodes again that have ended."""
    with federation(tmp_path_factory.mktemp("federation")) as made:
        made.share_out(DATA)
        configure(made, RUN)
        made.start_all()
        yield made


def configure(trial: Federation, settings: dict[str, Any]) -> None:
    """Writes the settings that a run may change."""
    trial.configure(**settings, algorithm="adabest", nodes=trial.nodes, deadline=600, out="")


@pytest.fixture(autouse=True)
def harmless(trial: Federation) -> Iterator[None]:
    yield
    for number in range(trial.nodes):
        trial.harm(number)


def begun(trial: Federation, out: Path, superlink: str = "federation", **changes: Any) -> dict[str, Any]:
    """Begins a run, or goes on with it; returns its settings."""
    trial.submit(f"run {out.name}", superlink, out=str(out), **changes)
    return RUN | {name: value for name, value in changes.items() if name != "deadline"}


def ended(trial: Federation, out: Path) -> adabest.Run:
    """The run after ``flwr run`` has ended."""
    log = f"run {out.name}"
    trial.wait_for_end(log)
    assert out.exists(), trial.log(log)
    run = adabest.load(out)
    assert run.status == "finished", trial.log(log)
    return run


@pytest.mark.parametrize("algorithm", ["adabest", "scaffold"])
def test_a_federation_over_tls_has_the_bits_of_the_reference_engine(
    algorithm: str, trial: Federation, tmp_path: Path
) -> None:
    settings = begun(trial, tmp_path / algorithm, algorithm=algorithm, participation=0.5, rounds=4)
    expected = simulated(tmp_path, settings)
    assert_equal_runs(ended(trial, tmp_path / algorithm), expected)
    sizes = {path.stat().st_size for path in (trial.project / "states").rglob("*.state")}
    assert max(sizes) > expected.identity["parameters"] * 4  # h_i, on the node's disk


def test_flowers_simulation_has_the_same_bits_and_tests_at_nodes(trial: Federation, tmp_path: Path) -> None:
    changes = {"local_test": 0.2, "partition_seed": DATA["partition_seed"]}
    trial.start_simulation()
    configure(trial, RUN | changes)
    try:
        settings = begun(trial, tmp_path / "here", "simulation", algorithm="adabest", **changes)
        found = ended(trial, tmp_path / "here")
    finally:
        configure(trial, RUN)
    expected = simulated(tmp_path, settings)
    assert_equal_runs(found, expected)
    assert found.local_results() == expected.local_results()


def test_a_node_that_is_not_registered_is_refused(trial: Federation) -> None:
    stranger = trial.project / "stranger"
    stranger.mkdir()
    (stranger / "keys.sh").write_text((trial.project / "keys.sh").read_text())
    trial.make_keys(stranger, 1)
    trial.start_node(0, name="stranger", key="stranger/keys/node0")
    assert trial.wait_for_end("stranger") != 0
    assert "305" in trial.log("stranger")


def test_a_wrong_certificate_ends_a_node(trial: Federation) -> None:
    foreign = trial.project / "foreign"
    foreign.mkdir()
    (foreign / "keys.sh").write_text((trial.project / "keys.sh").read_text())
    trial.make_keys(foreign, 1)
    trial.start_node(0, name="misled", certificate="foreign/keys/ca.crt")
    trial.wait_for("certificate verify failed", "misled")


def test_answers_that_cannot_be_used_are_quarantined_with_the_name_of_their_node(
    trial: Federation, tmp_path: Path
) -> None:
    trial.harm(1, round_2="nan", round_3="shape")
    trial.harm(2, round_2="type", round_3="huge")
    begun(trial, tmp_path / "spoiled", algorithm="adabest")
    run = ended(trial, tmp_path / "spoiled")
    told = {(one.round, one.client % 3): one.reason for one in run.rejections}
    assert told.keys() == {(2, 1), (2, 2), (3, 1), (3, 2)}
    assert "node 1: " in told[2, 1]
    assert "isn't finite" in told[2, 1]
    assert told[2, 2].startswith("node 2: its field model is of type float64")
    assert told[3, 1].startswith("node 1: its field model has the shape")
    assert told[3, 2].startswith("node 2: ")
    assert "norm" in told[3, 2]
    assert all(value.isfinite().all() for model in models_of(run).values() for value in model.values())


def test_a_node_that_never_answers_holds_a_round_up_until_the_deadline(trial: Federation, tmp_path: Path) -> None:
    trial.harm(2, round_2="silence")
    begun(trial, tmp_path / "silent", algorithm="scaffold", deadline=30)
    run = ended(trial, tmp_path / "silent")
    assert {one.reason for one in run.rejections} == {"node 2: no answer within 30 s"}
    assert {one.client for one in run.rejections if one.round == 2} == {2, 5, 8}
    trial.kill_below("node2", "clientapp")


def second_round(trial: Federation, out: Path) -> dict[str, Any]:
    """Begins a run, and waits until a node trains in its second round; returns its settings."""
    before = trial.log("node1").count(_TRAINS)
    settings = begun(trial, out, algorithm="scaffold")
    trial.wait_for(_TRAINS, "node1", times=before + 2)
    return settings


def test_a_node_that_is_killed_comes_back_and_nothing_is_lost(trial: Federation, tmp_path: Path) -> None:
    settings = second_round(trial, tmp_path / "killed")
    trial.kill_below("node1")
    assert_equal_runs(ended(trial, tmp_path / "killed"), simulated(tmp_path, settings))
    assert "node 1: Flower's error 5" in trial.log("run killed")
    assert "Exit Code: 305" in trial.log("node1")  # for a minute its old connection blocked it


def test_a_server_that_is_killed_goes_on_from_its_checkpoint(trial: Federation, tmp_path: Path) -> None:
    settings = second_round(trial, tmp_path / "server")
    trial.kill_below("superlink", "serverapp")
    trial.wait_for_end("run server")
    assert adabest.load(tmp_path / "server").status not in ("finished", "diverged")
    begun(trial, tmp_path / "server", algorithm="scaffold")
    assert_equal_runs(ended(trial, tmp_path / "server"), simulated(tmp_path, settings))
    assert "goes on with the run" in trial.log("run server")


def test_a_run_that_is_stopped_goes_on_from_its_checkpoint(trial: Federation, tmp_path: Path) -> None:
    settings = second_round(trial, tmp_path / "stopped")
    trial.stop("run stopped")
    trial.wait_for_end("run stopped")
    assert adabest.load(tmp_path / "stopped").status not in ("finished", "diverged")
    begun(trial, tmp_path / "stopped", algorithm="scaffold")
    assert_equal_runs(ended(trial, tmp_path / "stopped"), simulated(tmp_path, settings))


def test_a_superlink_that_is_restarted_finds_its_nodes_again(trial: Federation, tmp_path: Path) -> None:
    settings = second_round(trial, tmp_path / "link")
    trial.kill("superlink")
    trial.start_superlink()
    trial.kill("run link")
    begun(trial, tmp_path / "link", algorithm="scaffold")
    assert_equal_runs(ended(trial, tmp_path / "link"), simulated(tmp_path, settings))
