"""What goes wrong at nodes and on the way: it is told with the node's name, and the run ends as it should."""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import DATA, RUN, Harm, Wires, assert_equal_runs, federated, models_of, project_on, simulated, wires
from spoiled import HARMS, spoiled

import adabest
from adabest.algorithms.catalog import ALGORITHMS
from adabest.errors import InputError, how_to_go_on
from adabest.flower.network import Failure, NodesLost
from adabest.flower.orders import ANNOUNCE, TEST, TRAIN
from adabest.flower.parcels import Parcel
from adabest.flower.server import make_run
from adabest.runs.build import build_parts
from adabest.runs.settings.resolution import resolve

SETTINGS = RUN | {"algorithm": "scaffold"}
Answer = Callable[[Parcel], Parcel]


def harmed_in(round_number: int, names: Collection[str], harm: Callable[[Parcel], Parcel | Failure | None]) -> Harm:
    """Harms what nodes answer in a round."""

    def harmed(kind: str, name: str, order: Parcel, node: Answer) -> Parcel | Failure | None:
        answer = node(order)
        return harm(answer) if kind == TRAIN and order.facts["round"] == round_number and name in names else answer

    return harmed


def changed(answer: Parcel, vectors: Callable[[torch.Tensor], torch.Tensor]) -> Parcel:
    return Parcel(answer.facts, [vectors(vector) for vector in answer.vectors], answer.numbers)


BAD_ANSWERS: dict[str, tuple[Callable[[Parcel], Parcel | Failure | None], str]] = {
    "NaN": (lambda answer: changed(answer, lambda own: own * torch.nan), "isn't finite"),
    "huge": (lambda answer: changed(answer, lambda own: own * 1e12), "has the norm"),
    "a wrong shape": (lambda answer: changed(answer, lambda own: own[:, :-1]), "its field model has the shape"),
    "a wrong type": (lambda answer: changed(answer, lambda own: own.double()), "is of type float64"),
    "too few vectors": (lambda answer: Parcel(answer.facts, answer.vectors[:1], answer.numbers), "it has 1 vectors"),
    "foreign numbers": (lambda answer: Parcel(answer.facts, answer.vectors, {"x": [1.0]}), "it has the numbers x"),
    "numbers whose name a terminal would act on": (
        lambda answer: Parcel(answer.facts, answer.vectors, {"\x1b[2J" * 999: [1.0]}),
        "it has the numbers  [2J",
    ),
    "a fault whose name a terminal would act on": (
        lambda answer: Parcel({**answer.facts, "faults": {"\x1b[2J": 1}}, answer.vectors, answer.numbers),
        "its answer.faults. [2J should be text, not 1",
    ),
    "more local steps than there can be": (
        lambda answer: Parcel(
            {**answer.facts, "steps": [2**62 for _ in answer.facts["steps"]]}, answer.vectors, answer.numbers
        ),
        "made 4611686018427387904 local steps; with the samples that the node has announced there should be ",
    ),
    "foreign clients": (
        lambda answer: Parcel({**answer.facts, "clients": [99]}, answer.vectors, answer.numbers),
        "about other clients",
    ),
    "a list too short": (
        lambda answer: Parcel({**answer.facts, "steps": []}, answer.vectors, answer.numbers),
        "should have steps and scores for each client",
    ),
    "facts of another type": (
        lambda answer: Parcel({**answer.facts, "steps": "many"}, answer.vectors, answer.numbers),
        "steps",
    ),
    "an accuracy that can't be": (
        lambda answer: Parcel(
            {**answer.facts, "scores": [[one[0], 7.0, *one[2:]] for one in answer.facts["scores"]]},
            answer.vectors,
            answer.numbers,
        ),
        "its answer has an accuracy of 7; it should be between 0 and 1",
    ),
    "no facts": (lambda answer: Parcel({}, answer.vectors, answer.numbers), "lacks"),
    "a refusal": (lambda answer: Parcel({"refused": "the disk\x1b[2J is full"}), "the disk [2J is full"),
    "an error of the network": (lambda answer: Failure("Flower's error 2: no app", is_final=True), "no app"),
}


@pytest.mark.parametrize("what", BAD_ANSWERS)
def test_a_bad_answer_is_left_out_with_the_name_of_its_node(what: str, tmp_path: Path) -> None:
    harm, reason = BAD_ANSWERS[what]
    settings = SETTINGS | {"participation": 1.0, "reply_limit": "1e6"}
    run = federated(wires(tmp_path, settings, harm=harmed_in(2, ["node 1"], harm)))
    assert run.status == "finished"
    assert {(one.round, one.client) for one in run.rejections} == {(2, client) for client in (1, 4, 7)}
    for one in run.rejections:
        assert one.reason.startswith("node 1: ")
        assert reason in one.reason
        assert one.reason.isprintable()
        assert len(one.reason) < 520
    assert all(value.isfinite().all() for model in models_of(run).values() for value in model.values())


@pytest.mark.parametrize("commit", ["sent", "confirmed"])
@pytest.mark.parametrize("name", ["adabest", "scaffold", "feddane"])
def test_replies_that_the_gate_refuses_mean_what_they_mean_in_a_simulation(
    name: str, commit: str, tmp_path: Path
) -> None:
    settings = RUN | {"state_commit": commit, "participation": 1.0}
    config, components = resolve({**DATA, **settings, "algorithm": name})
    task = build_parts(config, components).task
    algorithm = spoiled(ALGORITHMS.find(name)(), task, HARMS["nan"], {2: [4, 5], 3: [0]})
    found = federated(wires(tmp_path, settings, project=project_on(DATA, algorithm=algorithm)))
    expected = simulated(tmp_path, settings | {"algorithm": algorithm})
    told = [[(one.round, one.client, one.reason) for one in run.rejections] for run in (found, expected)]
    assert told[0] == [(number, client, f"node {client % 3}: {reason}") for number, client, reason in told[1]]
    assert len(told[0]) == 3
    models, wanted = models_of(found), models_of(expected)
    for which, model in wanted.items():
        assert all(torch.equal(models[which][part], value) for part, value in model.items())


NONSENSE: tuple[Any, ...] = (
    None,
    -1,
    0,
    2**62,
    2**80,
    1.5,
    1e200,
    -1e308,
    float("nan"),
    "\x1b[2J",
    "x" * 999,
    [],
    [[]],
)
NONSENSE += ([None], [[1e200] * 4] * 3, {}, {"\x1b": 1}, {"4": "\x1b" * 999}, True)


def spoiled_somewhere(value: Any, draw: random.Random) -> Any:
    """A value of JSON with nonsense in one place."""
    if not isinstance(value, dict | list) or not value or draw.random() < 0.2:
        return draw.choice(NONSENSE)
    places = list(value) if isinstance(value, dict) else range(len(value))
    place = draw.choice(places)
    spoiled_copy = value.copy()
    if draw.random() < 0.15:
        del spoiled_copy[place]
    else:
        spoiled_copy[place] = spoiled_somewhere(value[place], draw)
    return spoiled_copy


@pytest.mark.soak
@pytest.mark.parametrize("name", ["adabest", "scaffold", "fednova", "feddane"])
@pytest.mark.parametrize("seed", range(25))
def test_an_answer_with_nonsense_in_it_neither_ends_a_run_nor_spoils_its_folder(
    seed: int, name: str, tmp_path: Path
) -> None:
    draw = random.Random(seed)

    def harm(kind: str, node: str, order: Parcel, obey: Answer) -> Parcel:
        answer = obey(order)
        if kind == ANNOUNCE or node != "node 1":
            return answer
        if draw.random() < 0.7:
            return Parcel(spoiled_somewhere(dict(answer.facts), draw), answer.vectors, answer.numbers)
        values = draw.choice(([], [1.0], [float("nan")] * 3, [1e308] * 3, [-1.0] * 3, [2**1030] * 3))
        numbers: dict[str, Sequence[float]] = {**answer.numbers, draw.choice([*answer.numbers, "\x1b"]): values}
        return Parcel(answer.facts, answer.vectors, numbers)

    said: list[str] = []
    settings = RUN | {"algorithm": name, "participation": 1.0, "rounds": 2, "local_test": 0.2, "model": "logistic"}
    run = federated(quick(wires(tmp_path, settings, project=project_on(DATA, tested=False), harm=harm)), said)
    assert run.status == "finished"
    assert run.final["round"] == 2
    assert run.local_results()["client"] == list(range(10))
    assert all(one.isprintable() for one in [*said, *(one.reason for one in run.rejections)])


def losing(lost: Callable[[str, str, Parcel], bool], *, obeyed: bool = True) -> Harm:
    """A network that loses answers, or orders."""

    def harm(kind: str, name: str, order: Parcel, node: Answer) -> Parcel | None:
        if not lost(kind, name, order):
            return node(order)
        if obeyed:
            node(order)
        return None

    return harm


def in_round(number: int, name: str) -> Callable[[str, str, Parcel], bool]:
    return lambda kind, node, order: kind == TRAIN and order.facts["round"] == number and node == name


def models_equal(found: adabest.Run, expected: adabest.Run) -> bool:
    models, wanted = models_of(found), models_of(expected)
    pairs = [(models[which][part], value) for which, model in wanted.items() for part, value in model.items()]
    return models.keys() == wanted.keys() and all(torch.equal(one, two) for one, two in pairs)


def quick(network: Wires) -> Wires:
    """A federation that waits for nobody long."""
    network.run_config = {**network.run_config, "deadline": 0.3}
    return network


@pytest.mark.parametrize("name", ["adabest", "scaffold"])
def test_a_lost_answer_leaves_the_state_before_only_if_states_are_confirmed(name: str, tmp_path: Path) -> None:
    """A simulation says what should come of it: there, a reply that can't be used stands for one that is lost."""
    for commit in ("sent", "confirmed"):
        settings = RUN | {"state_commit": commit, "participation": 1.0}
        config, components = resolve({**DATA, **settings, "algorithm": name})
        task = build_parts(config, components).task
        # The reply alone is spoiled, and the state stays what the client has made of the round.
        algorithm = spoiled(ALGORITHMS.find(name)(), task, HARMS["renamed"], {2: [0, 3, 6, 9]})
        expected = simulated(tmp_path / commit, settings | {"algorithm": algorithm})
        network = quick(wires(tmp_path / commit, settings | {"algorithm": name}, harm=losing(in_round(2, "node 0"))))
        found = federated(network)
        assert [(one.round, one.client) for one in found.rejections] == [(2, 0), (2, 3), (2, 6), (2, 9)]
        assert all(one.reason == "node 0: no answer within 0.3 s" for one in found.rejections)
        assert models_equal(found, expected)


def test_a_lost_order_changes_no_state(tmp_path: Path) -> None:
    harm = losing(in_round(2, "node 1"), obeyed=False)
    runs = []
    for commit in ("sent", "confirmed"):
        settings = SETTINGS | {"state_commit": commit, "participation": 1.0}
        runs.append(federated(quick(wires(tmp_path / commit, settings, harm=harm))))
    assert models_equal(*runs)


class Refusing(Wires):
    """A network that takes no training orders for one node."""

    def send(self, kind: str, parcels: Mapping[int, Parcel], seconds: float) -> dict[str, int]:
        return super().send(kind, {at: own for at, own in parcels.items() if (kind, at) != (TRAIN, 2)}, seconds)


def test_an_order_that_the_network_does_not_take_is_told_of(tmp_path: Path) -> None:
    run = federated(quick(wires(tmp_path, SETTINGS | {"participation": 1.0, "rounds": 1}, kind=Refusing)))
    assert {one.client for one in run.rejections} == {2, 5, 8}
    (reason,) = {one.reason for one in run.rejections}
    assert reason == "node 2: no answer within 0.3 s: the network hasn't taken the message"


def test_a_node_that_never_answers_holds_a_round_up_until_the_deadline_only(tmp_path: Path) -> None:
    harm = losing(lambda kind, name, order: kind == TRAIN and name == "node 2")
    network = quick(wires(tmp_path, SETTINGS | {"participation": 1.0}, harm=harm))
    run = federated(network)
    assert run.status == "finished"
    assert {one.client for one in run.rejections} == {2, 5, 8}
    assert {one.round for one in run.rejections} == {1, 2, 3, 4}


def test_a_node_that_comes_back_at_another_address_is_asked_again(tmp_path: Path) -> None:
    said: list[str] = []

    def harm(kind: str, name: str, order: Parcel, node: Answer) -> Parcel | Failure:
        if kind == TRAIN and name == "node 1" and order.facts["round"] == 2 and network.addresses[1] == 1:
            node(order)  # it has trained, and is killed before its answer is sent
            network.addresses[1] = 17
            return Failure("Flower's error 5: node unavailable", is_final=False)
        return node(order)

    settings = SETTINGS | {"participation": 1.0, "state_commit": "confirmed"}
    network = wires(tmp_path, settings, harm=harm)
    run = federated(network, said)
    assert_equal_runs(run, simulated(tmp_path, settings))  # nothing is lost
    assert "node 1: Flower's error 5: node unavailable" in said
    assert "node 1 is back" in said


def test_without_confirmation_a_node_refuses_to_train_twice_in_a_round(tmp_path: Path) -> None:
    def harm(kind: str, name: str, order: Parcel, node: Answer) -> Parcel | Failure:
        if kind == TRAIN and name == "node 1" and order.facts["round"] == 2 and network.addresses[1] == 1:
            node(order)
            network.addresses[1] = 17
            return Failure("Flower's error 5: node unavailable", is_final=False)
        return node(order)

    network = wires(tmp_path, SETTINGS | {"participation": 1.0}, harm=harm)
    run = federated(network)
    assert run.status == "finished"
    assert {(one.round, one.client) for one in run.rejections} == {(2, 1), (2, 4), (2, 7)}
    assert all("state-commit = confirmed" in one.reason for one in run.rejections)


def test_a_node_that_is_away_for_a_round_takes_part_in_the_next(tmp_path: Path) -> None:
    def harm(kind: str, name: str, order: Parcel, node: Answer) -> Parcel | Failure:
        if kind == TRAIN and order.facts["round"] == 2 and name == "node 0":
            network.addresses[1] = None
        if kind == TRAIN and order.facts["round"] == 3:
            network.addresses[1] = 9
        return node(order)

    network = quick(wires(tmp_path, SETTINGS | {"participation": 1.0, "state_commit": "confirmed"}, harm=harm))
    run = federated(network)
    assert {(one.round, one.client) for one in run.rejections} == {(3, 1), (3, 4), (3, 7)}


def test_a_federation_without_nodes_ends_and_goes_on_when_they_are_back(tmp_path: Path) -> None:
    settings = SETTINGS | {"state_commit": "confirmed"}

    def harm(kind: str, name: str, order: Parcel, node: Answer) -> Parcel | None:
        return None if kind == TRAIN and order.facts["round"] == 3 else node(order)

    with pytest.raises(NodesLost, match=r"^no node has answered in round 3: node \d: no answer within 0\.3 s") as lost:
        federated(quick(wires(tmp_path, settings, harm=harm)))
    assert "once nodes are back, flwr run goes on from the last round" in str(lost.value)
    broken = adabest.load(tmp_path / "run")
    assert broken.status not in ("finished", "diverged")
    said: list[str] = []
    assert_equal_runs(federated(wires(tmp_path, settings), said), simulated(tmp_path, settings))
    assert f"goes on with the run in {tmp_path / 'run'}" in said


@pytest.mark.parametrize("commit", ["sent", "confirmed"])
def test_a_round_whose_clients_are_all_at_a_silent_node_changes_nothing(commit: str, tmp_path: Path) -> None:
    settings = SETTINGS | {"participation": 0.1, "rounds": 6, "evaluate_every": 1, "state_commit": commit}
    harm = losing(lambda kind, name, order: kind == TRAIN and name == "node 1")
    run = federated(quick(wires(tmp_path, settings, harm=harm)))
    assert run.status == "finished"
    alone = {one.round for one in run.rejections}
    assert alone
    losses = [row["cloud_loss"] for row in run.metrics]
    changed_in = {number + 1 for number in range(1, 6) if losses[number] != losses[number - 1]}
    assert changed_in == {2, 3, 4, 5, 6} - alone


class Killed(BaseException):
    """The end of a server, without a word."""


@pytest.mark.parametrize("name", ["adabest", "scaffold", "feddane", "ditto"])
@pytest.mark.parametrize("when", ["before", "after", "in the last exchange"])
def test_a_server_that_is_killed_goes_on_from_its_checkpoint(name: str, when: str, tmp_path: Path) -> None:
    settings = RUN | {"algorithm": name, "state_commit": "confirmed", "local_test": 0.2}
    last = len(ALGORITHMS.find(name)().phases) - 1

    def harm(kind: str, node: str, order: Parcel, obey: Answer) -> Parcel:
        if (
            kind != TRAIN
            or order.facts["round"] != 3
            or (when == "in the last exchange" and order.facts["phase"] < last)
        ):
            return obey(order)
        if when != "before":
            obey(order)
        raise Killed

    with pytest.raises(Killed):
        federated(wires(tmp_path, settings, harm=harm))
    found, expected = federated(wires(tmp_path, settings)), simulated(tmp_path, settings)
    assert_equal_runs(found, expected)
    assert found.local_results() == expected.local_results()


@pytest.mark.parametrize("commit", ["sent", "confirmed"])
def test_an_order_that_is_carried_out_too_late_takes_no_state_away(commit: str, tmp_path: Path) -> None:
    """A slow node may still be at an order that the server has gone on without."""

    def run(name: str, *, late: bool) -> adabest.Run:
        held_up: list[Parcel] = []

        def harm(kind: str, node: str, order: Parcel, obey: Answer) -> Parcel | None:
            if kind == TRAIN and node == "node 1" and order.facts["round"] == 2:
                held_up.append(order)
                return None
            answer = obey(order)
            if kind == TRAIN and node == "node 1" and order.facts["round"] == 3 and late:
                faults = obey(*held_up).facts["faults"].values()
                assert len(faults) == 3
                assert all("is of round 3 already, so this order has come too late" in one for one in faults)
            return answer

        settings = SETTINGS | {"participation": 1.0, "state_commit": commit}
        return federated(quick(wires(tmp_path / name, settings, harm=harm)))

    found, expected = run("late", late=True), run("lost", late=False)
    assert {one.round for one in found.rejections} == {2}
    assert models_equal(found, expected)


def test_an_exchange_that_is_carried_out_twice_takes_no_state_away(tmp_path: Path) -> None:
    """A node that came back may have been asked once more, while its old process is still at work."""
    first: list[Parcel] = []

    def harm(kind: str, name: str, order: Parcel, node: Answer) -> Parcel:
        answer = node(order)
        if kind == TRAIN and name == "node 1" and order.facts["round"] == 3:
            first.append(order)
            if order.facts["phase"] == 1:
                assert not node(first[0]).facts["faults"]
        return answer

    settings = RUN | {"algorithm": "feddane", "participation": 1.0, "state_commit": "confirmed"}
    run = federated(wires(tmp_path, settings, harm=harm))
    assert len(first) == 2
    assert_equal_runs(run, simulated(tmp_path, settings))


def test_a_finished_run_is_neither_repeated_nor_overwritten(tmp_path: Path) -> None:
    federated(wires(tmp_path, SETTINGS))
    network = wires(tmp_path, SETTINGS)
    with pytest.raises(InputError, match="holds a finished run; set out to another folder"):
        federated(network)
    assert not network.sent


def test_a_broken_run_with_other_settings_is_not_gone_on_with(tmp_path: Path) -> None:
    def harm(kind: str, name: str, order: Parcel, node: Answer) -> Parcel:
        if kind == TRAIN and order.facts["round"] == 2:
            raise Killed
        return node(order)

    with pytest.raises(Killed):
        federated(wires(tmp_path, SETTINGS, harm=harm))
    with pytest.raises(InputError, match=r"other settings: clip, learning_rate; give it those to go on, or set out to"):
        federated(wires(tmp_path, SETTINGS | {"learning_rate": 0.05, "clip": 3.0}))


@pytest.mark.parametrize("silent", [["node 1"], ["node 0", "node 1", "node 2"]], ids=["one", "all"])
def test_nodes_that_do_not_test_are_left_out_of_the_tests(silent: list[str], tmp_path: Path) -> None:
    harm = losing(lambda kind, name, order: kind == TEST and name in silent)
    settings = SETTINGS | {"local_test": 0.2}
    network = quick(wires(tmp_path, settings, project=project_on(DATA, tested=False), harm=harm))
    if len(silent) == 3:
        with pytest.raises(NodesLost, match="no node has tested the models"):
            federated(network)
        return
    said: list[str] = []
    run = federated(network, said)
    assert "node 1 has not tested the models: no answer within 0.3 s" in said
    results = run.local_results()
    untested = [
        client for client, value in zip(results["client"], results["global_accuracy"], strict=True) if value is None
    ]
    assert untested == [1, 4, 7]
    assert 0 <= run.final["scored_accuracy"] <= 1


@pytest.mark.parametrize(
    "spoil",
    [
        lambda facts: {**facts, "weight": -1.0},
        lambda facts: {**facts, "values": facts["values"][:-1]},
        lambda facts: {**facts, "losses": []},
        lambda facts: {**facts, "sums": [[1.0]] * 3 + [[1.0, 2.0]]},
        lambda facts: {**facts, "sums": [[one[0] + 1e6, *one[1:]] for one in facts["sums"]]},
        lambda facts: {**facts, "sums": [[-number for number in one] for one in facts["sums"]]},
        lambda facts: {**facts, "sums": [[*one, 1.0] for one in facts["sums"]]},
        lambda facts: {**facts, "values": [[[7.0] for _ in one] for one in facts["values"]]},
        lambda facts: {},
    ],
)
def test_tests_of_another_form_are_left_out(spoil: Callable[[Any], Any], tmp_path: Path) -> None:
    def harm(kind: str, name: str, order: Parcel, node: Answer) -> Parcel:
        answer = node(order)
        return Parcel(spoil(answer.facts)) if kind == TEST and name == "node 1" else answer

    said: list[str] = []
    network = wires(
        tmp_path, SETTINGS | {"local_test": 0.2, "rounds": 2}, project=project_on(DATA, tested=False), harm=harm
    )
    assert federated(network, said).status == "finished"
    assert any(line.startswith("node 1 has not tested the models: its answer") for line in said)


@pytest.mark.parametrize("nodes", [["node 1"], ["node 0", "node 1", "node 2"]], ids=["one", "all"])
def test_a_loss_that_is_not_finite_at_one_node_does_not_end_the_run_of_all(nodes: list[str], tmp_path: Path) -> None:
    def harm(kind: str, name: str, order: Parcel, node: Answer) -> Parcel:
        answer = node(order)
        if kind != TEST or name not in nodes:
            return answer
        sums = [[None for _ in one] for one in answer.facts["sums"]]
        return Parcel({**answer.facts, "losses": [None for _ in sums], "sums": sums})

    said: list[str] = []
    settings = SETTINGS | {"local_test": 0.2, "rounds": 2}
    run = federated(wires(tmp_path, settings, project=project_on(DATA, tested=False), harm=harm), said)
    assert run.status == ("finished" if len(nodes) == 1 else "diverged")
    assert "node 1: the loss or a metric of the cloud model isn't finite there" in said
    if len(nodes) == 1:
        assert 0 <= run.final["cloud_accuracy"] <= 1
        assert run.final["cloud_loss"] > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clients": [0, 1, 2]}, "nodes node 0 and node 1 both have a client 0"),
        ({"clients": [4, 1, 7]}, "should announce one client or more by ascending numbers"),
        ({"clients": []}, "should announce one client or more"),
        ({"samples": [0, 5, 5]}, "every client needs at least one sample"),
        ({"node": "node 0"}, "there are two nodes node 0, with different clients; give each a name of its own"),
        ({"model": "00"}, "node node 1 has another model than the server"),
        ({"node": 7}, "node"),
        ({"samples": [2**62, 5, 5]}, "node node 1 announces more than 1,000,000,000 samples, which no node may have"),
        ({"held_out": [10**9, 5, 5]}, "node node 1 announces more than 1,000,000,000 samples"),
        ({"\x1b[2J": 7}, r"^a node can't take part: [\x20-\x7e]+$"),
    ],
)
def test_a_node_that_cannot_take_part_is_an_error_before_the_first_round(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    def harm(kind: str, name: str, order: Parcel, node: Answer) -> Parcel:
        answer = node(order)
        return Parcel({**answer.facts, **change}) if kind == ANNOUNCE and name == "node 1" else answer

    with pytest.raises(InputError, match=message):
        federated(wires(tmp_path, SETTINGS, harm=harm))
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_two_nodes_of_one_name_and_the_same_clients_are_told_of_once(tmp_path: Path) -> None:
    said: list[str] = []
    announced: list[Parcel] = []

    def harm(kind: str, name: str, order: Parcel, node: Answer) -> Parcel:
        announced.append(node(order))
        return announced[0] if name == "node 1" else announced[-1]

    def heard(words: str) -> None:
        said.append(words)
        if "waiting" in words:
            raise Killed

    network = wires(tmp_path, SETTINGS, harm=harm)
    with pytest.raises(Killed):
        make_run(network.project, network.run_config, network, heard)
    assert [line.partition(",")[0] for line in said if "node 0" in line] == [
        "node 0 has 4 clients with 569 samples",
        "node 0 is at two addresses",
    ]


def test_a_node_that_cannot_write_states_cannot_take_part(tmp_path: Path) -> None:
    (tmp_path / "states-1").write_text("a file in the folder's place")
    with pytest.raises(
        InputError, match=r"node 1: it can't write the states of its clients to .*states-1: .*; start it"
    ):
        federated(wires(tmp_path, SETTINGS))


def test_a_node_with_other_settings_is_refused(tmp_path: Path) -> None:
    network = wires(tmp_path, SETTINGS)
    network.run_config = {**network.run_config, "learning_rate": 0.2}
    with pytest.raises(
        InputError, match="node 0: it has other settings, or another version of adabest, than the server"
    ):
        federated(network)


def test_a_broken_run_is_not_gone_on_with_while_a_node_is_away(tmp_path: Path) -> None:
    def harm(kind: str, name: str, order: Parcel, node: Answer) -> Parcel:
        if kind == TRAIN and order.facts["round"] == 2:
            raise Killed
        return node(order)

    with pytest.raises(Killed):
        federated(wires(tmp_path, SETTINGS, harm=harm))
    network = wires(tmp_path, SETTINGS)
    network.run_config, network.addresses = {**network.run_config, "nodes": 2}, [0, 1, None]
    with pytest.raises(InputError, match="had other clients than the 7 of the nodes that are there; start all of its"):
        federated(network)


class WithMute(Wires):
    """A network with one node more, which never answers."""

    def present(self) -> list[int]:
        return [*super().present(), 99]

    def send(self, kind: str, parcels: Mapping[int, Parcel], seconds: float) -> dict[str, int]:
        known = {address: parcel for address, parcel in parcels.items() if address != 99}
        return super().send(kind, known, seconds) | ({f"to the mute {self._sent}": 99} if 99 in parcels else {})


def test_a_node_that_never_tells_its_clients_holds_the_first_round_up_until_the_deadline(tmp_path: Path) -> None:
    said: list[str] = []
    run = federated(quick(wires(tmp_path, SETTINGS, kind=WithMute)), said)
    assert "the node at address 99 hasn't told its clients; the run begins without it" in said
    assert_equal_runs(run, simulated(tmp_path, SETTINGS))


class WithStranger(Wires):
    """A network that carries answers in its own time, with a node which never says who it is, and then one less."""

    collected = 0

    def present(self) -> list[int]:
        return [*super().present(), 99] if self.sent[-1:] and self.sent[-1][0] == TRAIN else super().present()

    def send(self, kind: str, parcels: Mapping[int, Parcel], seconds: float) -> dict[str, int]:
        self.collected = 0
        known = {address: parcel for address, parcel in parcels.items() if address != 99}
        return super().send(kind, known, seconds) | ({"unanswered": 99} if 99 in parcels else {})

    def collect(self, tickets: Collection[str]) -> dict[str, Parcel | Failure]:
        self.collected += 1
        return super().collect(tickets) if self.collected > 2 else {}


def test_a_stranger_that_does_not_answer_holds_no_round_up(tmp_path: Path) -> None:
    def harm(kind: str, name: str, order: Parcel, node: Answer) -> Parcel:
        if kind == TRAIN and order.facts["round"] == 2:
            network.addresses[1] = None
        return node(order)

    settings = SETTINGS | {"participation": 1.0, "rounds": 3}
    network = wires(tmp_path, settings, harm=harm, kind=WithStranger)
    network.run_config = {**network.run_config, "deadline": 3.0}  # a busy machine trains for a second before it looks
    run = federated(network)
    assert {(one.round, one.client) for one in run.rejections} == {(3, 1), (3, 4), (3, 7)}


def test_a_latecomer_is_told_of_and_left_alone(tmp_path: Path) -> None:
    said: list[str] = []

    def harm(kind: str, name: str, order: Parcel, node: Answer) -> Parcel | Failure:
        answer = node(order)
        if kind == TRAIN and order.facts["round"] == 2 and name == "node 0" and network.addresses[0] == 0:
            network.addresses = [10, 1, 2]
            return Failure("lost", is_final=False)
        if kind == ANNOUNCE and network.addresses[0] == 10:
            return Parcel({**answer.facts, "node": "node 9", "clients": [50, 51, 52, 53]})
        return answer

    settings = SETTINGS | {"participation": 1.0}
    network = quick(wires(tmp_path, settings, harm=harm))
    assert federated(network, said).status == "finished"
    assert "node 9 has come after the first round, and isn't part of this run" in said


def test_an_error_in_a_run_says_that_flower_goes_on_with_it(tmp_path: Path) -> None:
    def harm(kind: str, name: str, order: Parcel, node: Answer) -> Parcel:
        if kind == TRAIN and order.facts["round"] == 2:
            raise MemoryError("none left")
        return node(order)

    with pytest.raises(MemoryError) as error:
        federated(wires(tmp_path, SETTINGS, harm=harm))
    assert "resume with: flwr run, as it was begun" in how_to_go_on(error.value)
