"""Parcels as Flower's messages, and what Flower's modifiers make of them."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import DATA, RUN, assert_equal_runs, models_of, project_on, simulated

import adabest
from adabest.errors import InputError
from adabest.flower.network import NodesLost
from adabest.flower.parcels import Parcel
from adabest.flower.project import NodeConfig
from adabest.flower.server import make_run

pytest.importorskip("flwr", reason="Flower isn't installed: make federation has an environment with it")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.clientapp.mod import (
    LocalDpMod,
    adaptiveclipping_mod,
    arrays_size_mod,
    fixedclipping_mod,
    message_size_mod,
)
from grid_here import GridHere

from adabest.flower.apps import client_app, server_app
from adabest.flower.grid import FlowerNetwork, to_parcel, to_records


def test_a_parcel_arrives_as_it_was_sent() -> None:
    vectors = [torch.randn(3, 5), torch.randn(4, dtype=torch.float64), torch.tensor([1, 2])]
    parcel = Parcel({"round": 3, "words": "θ̄"}, vectors, {"samples": [1.0, 2.0], "empty": []})
    found = to_parcel(to_records(parcel))
    assert found.facts == parcel.facts
    assert all(torch.equal(one, two) for one, two in zip(found.vectors, vectors, strict=True))
    assert found.numbers == parcel.numbers


def test_a_vector_of_the_other_byte_order_arrives() -> None:
    """So NumPy writes it on a machine that is big-endian."""
    sent = np.arange(6, dtype=np.dtype("float32").newbyteorder("S")).reshape(2, 3)
    (found,) = to_parcel(records(ArrayRecord({"0": Array(sent)}))).vectors
    assert torch.equal(found, torch.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize("out", [{"out": "runs/first"}, {}])
def test_a_run_in_a_relative_folder_is_refused(out: dict[str, Any]) -> None:
    context = Context(0, 0, {}, RecordDict(), out)
    grid: Any = GridHere(client_app(project_on(DATA)), out, [])
    with pytest.raises(InputError, match=r"out = 'runs/\w+' should be an absolute path, as in out = '/.*/runs/\w+'"):
        server_app(project_on(DATA))(grid, context)


def records(vectors: ArrayRecord | None = None, facts: str = "{}", numbers: dict[str, Any] | None = None) -> RecordDict:
    found = RecordDict({"facts": ConfigRecord({"facts": facts})})
    if vectors is not None:
        found["vectors"] = vectors
    if numbers is not None:
        found["numbers"] = ConfigRecord(numbers)
    return found


def array(dtype: str, stype: str = "numpy.ndarray", data: bytes = b"") -> ArrayRecord:
    return ArrayRecord({"0": Array(dtype=dtype, shape=(1,), stype=stype, data=data)})


def pickled() -> bytes:
    """A file of NumPy's that holds a pickled object."""
    import io

    place = io.BytesIO()
    np.save(place, np.array([{}], dtype=object), allow_pickle=True)
    return place.getvalue()


def archived() -> bytes:
    """A file of NumPy's that holds arrays by name."""
    import io

    place = io.BytesIO()
    np.savez(place, own=np.zeros(1))
    return place.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (RecordDict({}), "the message lacks 'facts'; it isn't of adabest"),
        (RecordDict({"facts": MetricRecord({"facts": 1})}), "the message lacks 'facts'; it isn't of adabest"),
        (records(facts="{"), "the message isn't JSON"),
        (records(facts="[1]"), "the message should be a JSON object"),
        (records(ArrayRecord({"1": Array(np.zeros(3))})), "the message lacks '0'"),
        (records(array("float32", data=b"nonsense")), "a vector can't be read"),
        (records(array("object", data=pickled())), "a vector can't be read"),
        (records(array("float32", data=archived())), "a vector is an archive of arrays; it should be one array"),
        (records(ArrayRecord({"0": Array(np.zeros(3, dtype=np.complex64))})), "a vector is of type complex64"),
        (records(numbers={"samples": "many"}), "samples should be a list of numbers"),
        (records(numbers={"samples": [True]}), "samples should be a list of numbers"),
    ],
)
def test_a_message_of_another_form_is_refused(content: RecordDict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        to_parcel(content)


def federated(
    folder: Path, settings: dict[str, Any], mods: Sequence[Any] = (), *, nodes: int = 3, data: dict[str, Any] = DATA
) -> adabest.Run:
    """A run whose parcels are Flower's messages, and whose nodes are its ClientApp."""
    project = project_on(data)
    started_with: list[NodeConfig] = [
        {"partition-id": number, "num-partitions": nodes, "state-dir": str(folder / f"states-{number}")}
        for number in range(nodes)
    ]
    run_config = {
        **{name.replace("_", "-"): value for name, value in settings.items()},
        "out": str(folder / "run"),
        "nodes": nodes,
        "deadline": 0.5,
    }
    grid: Any = GridHere(client_app(project, mods), run_config, started_with)
    return adabest.load(make_run(project, run_config, FlowerNetwork(grid), lambda words: None))


@pytest.mark.parametrize("name", ["adabest", "scaffold", "feddane", "fedper"])
def test_a_run_over_flowers_messages_has_the_bits_of_the_reference_engine(name: str, tmp_path: Path) -> None:
    settings = RUN | {"algorithm": name, "local_test": 0.2}
    assert_equal_runs(federated(tmp_path, settings), simulated(tmp_path, settings))


def test_modifiers_that_only_look_change_no_bit(tmp_path: Path) -> None:
    settings = RUN | {"algorithm": "adabest"}
    found = federated(tmp_path, settings, [message_size_mod, arrays_size_mod])
    assert_equal_runs(found, simulated(tmp_path, settings))


ALONE = DATA | {"clients": 3, "unbalance": 0.0}
PRIVATE = RUN | {"algorithm": "adabest", "participation": 1.0, "rounds": 2, "evaluate_every": 1}


def watched(seen: list[float]) -> Callable[..., Message]:
    """A modifier that notes how far a reply is from what was sent."""

    def watch(message: Message, context: Any, call_next: Callable[..., Message]) -> Message:
        answer = call_next(message, context)
        (sent,) = message.content["vectors"].to_numpy_ndarrays()
        (replied,) = answer.content["vectors"].to_numpy_ndarrays()
        seen.append(float(np.linalg.norm(replied - sent)))
        return answer

    return watch


def test_local_differential_privacy_clips_and_blurs_what_a_node_sends(tmp_path: Path) -> None:
    """A node has one client here: the modifier clips all replies of a node by one norm."""
    far: list[float] = []
    plain = federated(tmp_path / "plain", PRIVATE, [watched(far)], data=ALONE)
    clip = min(far) / 2

    near: list[float] = []
    clipped = federated(tmp_path / "clipped", PRIVATE, [watched(near), LocalDpMod(clip, 0.0, 1.0, 1e-5)], data=ALONE)
    assert near == pytest.approx([clip] * 6, rel=1e-3)

    blurred: list[float] = []
    noisy = federated(tmp_path / "noisy", PRIVATE, [watched(blurred), LocalDpMod(clip, 1e-2, 1.0, 1e-5)], data=ALONE)
    deviation = 1e-2 * np.sqrt(2 * np.log(1.25 / 1e-5))
    size = plain.identity["parameters"]
    assert blurred == pytest.approx([np.sqrt(clip**2 + deviation**2 * size)] * 6, rel=0.1)
    assert not clipped.rejections
    assert not noisy.rejections
    assert not torch.equal(*(next(iter(models_of(run)["model.safetensors"].values())) for run in (clipped, noisy)))


def test_states_on_nodes_are_those_before_the_noise(tmp_path: Path) -> None:
    """What stays on a node needs no noise: one round leaves the same h_i with it and without."""
    one = PRIVATE | {"rounds": 1}
    federated(tmp_path / "plain", one, data=ALONE)
    federated(tmp_path / "noisy", one, [LocalDpMod(0.1, 1.0, 1.0, 1e-5)], data=ALONE)
    states = [
        [path.read_bytes().split(b"\n", 2)[2] for path in sorted((tmp_path / which).rglob("*.state"))]
        for which in ("plain", "noisy")
    ]
    assert len(states[0]) == 3
    assert states[0] == states[1]


@pytest.mark.parametrize(
    ("mod", "reason"),
    [
        (fixedclipping_mod, "expects exactly one ConfigRecord"),
        (adaptiveclipping_mod, "expects exactly one ConfigRecord"),
        (secaggplus_mod, "KeyError"),
    ],
)
def test_modifiers_that_need_a_strategy_of_flower_are_told_of(mod: Any, reason: str, tmp_path: Path) -> None:
    with pytest.raises(
        NodesLost, match=rf"in round 1: node 0: Flower's error \d: .*{reason}.*; node 1: Flower's error"
    ):
        federated(tmp_path, PRIVATE | {"rounds": 1}, [mod], data=ALONE)


def test_an_order_that_the_superlink_does_not_take_is_told_of(tmp_path: Path) -> None:
    project = project_on(ALONE)
    grid: Any = GridHere(client_app(project), {}, [{}] * 2)
    grid.lost = {1}
    tickets = FlowerNetwork(grid).send("query", {0: Parcel({"plan": ""}), 1: Parcel({"plan": ""})}, 5.0)
    assert list(tickets.values()) == [0]


def test_a_refusal_travels_as_an_answer() -> None:
    app = client_app(project_on(ALONE))
    grid: Any = GridHere(app, {"rounds": 1}, [{"partition-id": 0, "num-partitions": 3}])
    network = FlowerNetwork(grid)
    (ticket,) = network.send("query", {0: Parcel({"plan": "another"})}, 5.0)
    found = network.collect([ticket])[ticket]
    assert isinstance(found, Parcel)
    assert json.dumps(dict(found.facts)).startswith('{"refused": "node 0: it has other settings')
