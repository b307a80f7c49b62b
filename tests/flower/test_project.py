"""Projects: settings and samples that can't be used are told of, where they stand, before anyone trains."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from federations import DATA, RUN, federated, make_normalised, project_on, wires

from adabest.algorithms.fedavg import FedAvg
from adabest.errors import InputError
from adabest.flower.node import Node
from adabest.flower.orders import ANNOUNCE, TEST, TRAIN, Announcement, AnnounceOrder, read
from adabest.flower.parcels import Parcel
from adabest.flower.project import ClientData, Project, Terms, checked_clients, simulated
from adabest.flower.rehearsal import rehearse
from adabest.runs.build import cut_partition
from adabest.runs.settings.resolution import resolve

X, Y = np.random.default_rng(3).normal(size=(40, 5)).astype(np.float32), np.arange(40) % 3
PLAIN = {"algorithm": "fedavg"}


def small(**changes: Any) -> Project:
    """A project with two clients."""
    given: dict[str, Any] = {
        "clients": lambda node: {0: ClientData(X[:20], Y[:20]), 1: ClientData(X[20:], Y[20:])},
        "example": (X[:2], Y[:2]),
        "classes": 3,
        "model": "logistic",
        "test": lambda: (X, Y),
    }
    return Project(**{**given, **changes})


def rehearsed(folder: Path, project: Project, **settings: Any) -> Any:
    import adabest

    given = {"algorithm": "fedavg", "rounds": 2, "batch_size": 5, **settings}
    return adabest.load(rehearse(project, given, [{}], out=folder / "run", say=lambda words: None))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clients": 5}, r"clients isn't a setting of a federation, .*; remove it from \[tool\.flwr\.app\.config\]"),
        ({"dataset": "digits"}, "dataset isn't a setting of a federation"),
        ({"engine": "batched"}, "engine isn't a setting of a federation"),
        ({"validation-clients": 3}, "validation_clients isn't a setting of a federation"),
        ({"algorithm": "mine:Algorithm"}, "mine:Algorithm names code, and settings travel over the network"),
        ({"task": "mine:Task"}, "mine:Task names code"),
        ({"metrics": "mine:f1"}, "mine:f1 names code"),
        ({"learning-rat": 0.1}, "learning_rat"),
        ({"algorithm": "fedavgg"}, "fedavg"),
        ({"learning-rate": "fast"}, "learning_rate"),
        ({"rounds": 0}, "rounds"),
        ({"nodes": 0}, "nodes = 0: it should be a whole number from 1"),
        ({"nodes": True}, "nodes = True"),
        ({"deadline": 0.0}, "deadline = 0.0: it should be a number of seconds above 0"),
        ({"deadline": float("inf")}, "deadline = inf"),
        ({"out": ""}, "out = ''"),
    ],
)
def test_a_setting_that_cannot_be_used_is_an_error(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        small().plan(settings)


def test_settings_are_written_with_dashes_or_underscores() -> None:
    plans = [small().plan({name: 0.5, "metrics": "f1_macro"}) for name in ("learning-rate", "learning_rate")]
    assert plans[0].config == plans[1].config
    assert plans[0].config.metrics == ("f1_macro",)
    assert plans[0].terms == Terms()


@pytest.mark.parametrize(
    ("project", "settings"),
    [
        (small(), {"learning_rate": 0.2}),
        (small(), {"algorithm": "scaffold"}),
        (small(), {"seed": 5}),
        (small(), {"algorithm": "adabest", "beta": 0.5}),
        (small(), {"state_commit": "confirmed"}),
        (small(classes=4), {}),
        (small(mean=0.5), {}),
        (small(std=2.0), {}),
        (small(model="mlp,hidden=3"), {}),
        (small(example=(X[:2, :4], Y[:2])), {}),
        (small(algorithm=FedAvg()), {"algorithm": "adabest"}),
    ],
)
def test_the_digest_tells_plans_apart(project: Project, settings: dict[str, Any]) -> None:
    assert project.plan(settings).digest() != small().plan({}).digest()


@pytest.mark.parametrize("settings", [{"rounds": 7}, {"out": "elsewhere"}, {"nodes": 9}, {"evaluate_every": 2}, {}])
def test_the_digest_does_not_depend_on_what_nodes_need_not_know(settings: dict[str, Any]) -> None:
    assert small().plan(settings, clients=9, tested=True).digest() == small().plan({}).digest()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1, 2], "clients gave a list; it should give a dict of ClientData by client number"),
        ({"a": ClientData(X, Y)}, "clients gave the number 'a'; it should be a whole number from 0"),
        ({True: ClientData(X, Y)}, "clients gave the number True"),
        ({-1: ClientData(X, Y)}, "clients gave the number -1"),
        ({10**7: ClientData(X, Y)}, "clients gave the number 10000000"),
        ({0: (X, Y)}, "clients gave a tuple for client 0; it should be a ClientData"),
    ],
)
def test_clients_of_another_form_are_an_error(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        checked_clients(given)


def test_clients_go_by_ascending_numbers() -> None:
    one, two = ClientData(X, Y), ClientData(X, Y)
    assert list(checked_clients({np.int64(5): one, 2: two})) == [2, 5]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (ClientData(X[:4], Y[:3]), "client 4 has 4 inputs in x and 3 targets in y"),
        (ClientData(X[:4, :3], Y[:4]), r"x of client 4 has samples of shape \[3\] and type torch\.float32; .*\[5\]"),
        (
            ClientData(X[:4].astype(int), Y[:4]),
            "x of client 4 has samples of shape .*int64; the project's example says",
        ),
        (ClientData(X[:4], Y[:4].astype(np.float32)), "y of client 4 has samples of .* type torch.float32"),
        (ClientData(X[:0], Y[:0]), "client 4 has no samples to train on; leave it out"),
        (ClientData(X[:4], Y[:4], X[:2]), "client 4 has only one of x_test and y_test; give both or none"),
        (ClientData(X[:4], Y[:4], X[:2], Y[:3]), "client 4 has 2 inputs in x_test and 3 targets in y_test"),
        (ClientData(X[:4], Y[:4], X[:2, :1], Y[:2]), "x_test of client 4 has samples of shape"),
        (ClientData(X[:4], Y[:4] + 3), "3"),
        (ClientData("x", Y[:4]), "x of client 4"),
    ],
)
def test_samples_that_are_not_as_declared_are_an_error_of_their_node(
    data: ClientData, message: str, tmp_path: Path
) -> None:
    project = small(clients=lambda node: {1: ClientData(X, Y), 4: data})
    with pytest.raises(InputError, match=rf"a node can't take part: .*{message}"):
        rehearsed(tmp_path, project)


def test_a_node_without_clients_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="it has no clients; a node needs at least one"):
        rehearsed(tmp_path, small(clients=lambda node: {}))


def test_an_error_of_the_users_own_code_names_its_place(tmp_path: Path) -> None:
    def clients(node: Any) -> Mapping[int, ClientData]:
        raise ValueError("no such disk")

    with pytest.raises(InputError, match=r"ValueError: no such disk \(test_project\.py, line \d+\)"):
        rehearsed(tmp_path, small(clients=clients))


def test_a_federation_in_which_nobody_tests_is_an_error(tmp_path: Path) -> None:
    project = small(test=lambda: None)
    with pytest.raises(InputError, match="nothing tests the models: give the Project a function `test`"):
        rehearsed(tmp_path, project)
    assert rehearsed(tmp_path, project, local_test=0.2).status == "finished"


def test_a_project_names_its_model_or_brings_it(tmp_path: Path) -> None:
    for number, model in enumerate(("mlp,hidden=4", make_normalised, torch.nn.Linear(5, 3))):
        run = rehearsed(tmp_path / str(number), small(model=model))
        assert run.status == "finished"
    assert rehearsed(tmp_path, small(model=None), model="mlp,hidden=4").status == "finished"
    own = rehearsed(tmp_path / "own", small(model=make_normalised), model="logistic")
    assert "LayerNorm" in str(own.load_model(module=make_normalised((5,), 3)))


def test_an_algorithm_with_undeclared_fields_is_refused(tmp_path: Path) -> None:
    class Vague(FedAvg):
        class Reply(NamedTuple):
            model: Any

        def client_finish(self, client: Any, message: Any, model: Any, context: Any) -> Any:
            return client, self.Reply(model)

    with pytest.raises(
        InputError, match=r"algorithm Vague doesn't say what model of its Reply is, so it can't be sent"
    ):
        rehearsed(tmp_path, small(algorithm=Vague()))


def test_nodes_share_out_a_data_set_as_a_simulation_does() -> None:
    config, components = resolve(DATA)
    partition = cut_partition(config, components)
    found: dict[int, ClientData] = {}
    for place in range(3):
        found |= simulated(DATA).clients({"partition-id": place, "num-partitions": 3})
    assert sorted(found) == partition.training.tolist()
    assert all(torch.equal(found[client].y, components.dataset.y_train[partition.of(client)]) for client in found)


@pytest.mark.parametrize("node", [{}, {"partition-id": "one", "num-partitions": 3}, {"partition-id": 1}])
def test_a_node_that_does_not_say_which_one_it_is_is_an_error(node: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="start it with --node-config 'partition-id=0 num-partitions=3'"):
        simulated(DATA).clients(node)


@pytest.mark.parametrize("place", [-1, 3])
def test_a_node_whose_number_is_not_among_them_is_an_error(place: int) -> None:
    with pytest.raises(
        InputError, match=rf"partition-id = {place}: it should be from 0 to 2, since num-partitions = 3"
    ):
        simulated(DATA).clients({"partition-id": place, "num-partitions": 3})


def test_a_federation_cannot_have_validation_clients() -> None:
    with pytest.raises(InputError, match="leave validation_clients out"):
        simulated({**DATA, "validation_clients": 2})


def order(kind: str, changes: Mapping[str, Any]) -> Parcel:
    """What a node of the small project answers to an order."""
    plan = small().plan(PLAIN).digest()
    every: dict[str, dict[str, Any]] = {
        ANNOUNCE: {"plan": plan},
        TRAIN: {
            "plan": plan,
            "run": "0" * 32,
            "round": 1,
            "phase": 0,
            "clients": [0],
            "after": [[0, 0]],
            "common_steps": None,
        },
        TEST: {
            "plan": plan,
            "run": "0" * 32,
            "round": 1,
            "models": 1,
            "own": False,
            "clients": [0],
            "after": [[0, 0]],
        },
    }
    return Parcel({**every[kind], **changes}, [torch.zeros(18)])


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (ANNOUNCE, {"plan": "00"}, "it has other settings, or another version of adabest, than the server"),
        (ANNOUNCE, {"more": 1}, "more"),
        (TRAIN, {"plan": "00"}, "it has other settings"),
        (TRAIN, {"run": "../x"}, "32 hexadecimal digits"),
        (TRAIN, {"round": 0}, "the order is for round 0, exchange 1, which there isn't"),
        (TRAIN, {"phase": 1}, "the order is for round 1, exchange 2, which there isn't"),
        (TRAIN, {"phase": -1}, "exchange 0, which there isn't"),
        (TRAIN, {"after": []}, "after should hold a round and a phase for each client"),
        (TRAIN, {"after": [[-1, 0]]}, "after should hold a round and a phase"),
        (TRAIN, {"clients": [0, 0], "after": [[0, 0]] * 2}, "a client stands there twice"),
        (TRAIN, {"clients": "all"}, "clients"),
        (TEST, {}, "it is asked to test models with samples that its clients don't hold out"),
        (TEST, {"clients": [99]}, "it is asked to test models with samples that its clients don't hold out"),
    ],
)
def test_an_order_that_cannot_be_carried_out_is_refused(
    kind: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    node = Node(small(), PLAIN, {"state-dir": str(tmp_path)})
    answer = node.answer(kind, order(kind, changes))
    assert answer.facts.keys() == {"refused"}
    assert message in answer.facts["refused"]
    assert not answer.vectors
    assert not any(tmp_path.iterdir())


def test_a_client_that_is_elsewhere_is_a_fault_of_its_own(tmp_path: Path) -> None:
    node = Node(small(), PLAIN, {"state-dir": str(tmp_path)})
    answer = node.answer(TRAIN, order(TRAIN, {"clients": [0, 5], "after": [[0, 0]] * 2}))
    assert answer.facts["clients"] == [0]
    assert answer.facts["faults"] == {"5": "it has no client 5"}


def test_a_node_tells_its_own_name(tmp_path: Path) -> None:
    names = []
    for config in ({"name": "hospital"}, {"partition-id": 4}, {}):
        answer = Node(small(), PLAIN, {**config, "state-dir": str(tmp_path)}).answer(ANNOUNCE, order(ANNOUNCE, {}))
        names.append(read("an announcement", answer.facts, Announcement)["node"])
    assert names[:2] == ["hospital", "node 4"]
    assert names[2]
    assert AnnounceOrder(plan="x") == {"plan": "x"}


def test_a_node_may_have_another_engine(tmp_path: Path) -> None:
    settings = RUN | {"algorithm": "adabest", "rounds": 2}
    project = project_on(DATA)
    network = wires(tmp_path, settings, project=project)
    started_with = [{**one, "engine": "batched"} for one in network._nodes]
    network._nodes = started_with
    found, expected = federated(network), federated(wires(tmp_path / "other", settings, project=project))
    assert abs(found.final["cloud_loss"] - expected.final["cloud_loss"]) < 1e-4
    assert replace(project).plan({}, machine={"engine": "batched"}).digest() == project.plan({}).digest()
