"""State files: what is written comes back, and nothing else is used for it."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import DATA, RUN, federated, project_on, wires
from hypothesis import given
from hypothesis import strategies as st

from adabest.algorithms.scaffold import Scaffold
from adabest.errors import InputError
from adabest.flower.orders import NEVER, TRAIN, Tag
from adabest.flower.parcels import Parcel
from adabest.flower.state_files import State, StateFiles, checked

RUN_ID = "0123456789abcdef" * 2
OTHER_RUN = "f" * 32


def state(tag: Tag, value: float = 1.0) -> State:
    return State(tag, {"h": torch.full((3,), value)})


def test_states_come_back_as_they_were(tmp_path: Path) -> None:
    files = StateFiles(tmp_path, RUN_ID)
    assert files.read(7) == []
    old = State(Tag(2, 0), {"h": torch.tensor([1.0, -0.0, 1e-40]), "n": torch.tensor([3])})
    new = State(Tag(5, 1), {"h": torch.tensor([torch.inf, 2.0, 0.1]), "n": torch.tensor([4])}, torch.arange(3.0))
    files.write(7, [old, new])
    for found, written in zip(files.read(7), [old, new], strict=True):
        assert found.tag == written.tag
        assert found.fields.keys() == written.fields.keys()
        assert all(found.fields[name].numpy().tobytes() == written.fields[name].numpy().tobytes() for name in "hn")
    assert files.read(7)[0].model is None
    assert torch.equal(files.read(7)[1].model, torch.arange(3.0))  # type: ignore[arg-type]
    assert files.read(8) == []
    assert StateFiles(tmp_path, OTHER_RUN).read(7) == []


def test_states_without_fields_come_back(tmp_path: Path) -> None:
    files = StateFiles(tmp_path, RUN_ID)
    files.write(1, [State(Tag(3, 0), {})])
    assert files.read(1) == [State(Tag(3, 0), {})]


@given(place=st.integers(0, 2**20), byte=st.integers(1, 255), cut=st.booleans())
def test_a_damaged_file_is_refused(tmp_path_factory: pytest.TempPathFactory, place: int, byte: int, cut: bool) -> None:
    files = StateFiles(tmp_path_factory.mktemp("states"), RUN_ID)
    files.write(7, [state(Tag(1, 0))])
    content = bytearray(files.path(7).read_bytes())
    place %= len(content)
    if cut:
        del content[place:]
    else:
        content[place] ^= byte
    files.path(7).write_bytes(content)
    with pytest.raises(InputError, match=r"client-7\.state was changed: .*; bring back a good copy"):
        files.read(7)


def forge(path: Path, header: Any, body: bytes = b"") -> None:
    """Writes a file whose checksum is right."""
    rest = (header if isinstance(header, bytes) else json.dumps(header).encode()) + b"\n" + body
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)


HEADER = {"format": 1, "run": RUN_ID, "client": 7, "tags": [[1, 0]]}


@pytest.mark.parametrize(
    ("header", "body", "message"),
    [
        (b"\xff", b"", "isn't JSON"),
        ([], b"", "should be a JSON object"),
        ({**HEADER, "format": 2}, b"", "has a format that this version of adabest doesn't know"),
        ({**HEADER, "client": 8}, b"", "is of client 8 in run .*put back the file that belongs there"),
        ({**HEADER, "run": OTHER_RUN}, b"", "not of client 7 in run"),
        ({**HEADER, "tags": "none"}, b"", "tags"),
        ({"format": 1}, b"", "lacks"),
        (HEADER, b"no tensors", "can't be read"),
    ],
)
def test_a_file_of_another_form_is_refused(header: Any, body: bytes, message: str, tmp_path: Path) -> None:
    files = StateFiles(tmp_path, RUN_ID)
    forge(files.path(7), header, body)
    with pytest.raises(InputError, match=message):
        files.read(7)


@pytest.mark.parametrize("run", ["", "../../etc", "0" * 31, "g" * 32, "A" * 32])
def test_an_id_that_is_none_names_no_folder(run: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="32 hexadecimal digits"):
        StateFiles(tmp_path, run)


ONE, TWO, THREE = Tag(1, 0), Tag(2, 0), Tag(3, 0)


@pytest.mark.parametrize(
    ("held", "expected", "confirmed", "found"),
    [
        # What is kept, what the server expects, and the state with which round 3 begins.
        ([], NEVER, False, None),
        ([], NEVER, True, None),
        ([ONE], ONE, False, ONE),
        ([ONE], ONE, True, ONE),
        ([TWO], ONE, False, TWO),  # the reply of round 2 was lost, but the state counts
        ([ONE, TWO], ONE, True, ONE),  # … and doesn't
        ([ONE, TWO], TWO, True, TWO),
        ([TWO], NEVER, False, TWO),
        ([TWO], NEVER, True, None),
        ([ONE, THREE], ONE, True, ONE),  # it has trained in round 3 already, and its answer was lost
    ],
)
def test_the_state_before_a_round(
    held: list[Tag], expected: Tag, confirmed: bool, found: Tag | None, tmp_path: Path
) -> None:
    files = StateFiles(tmp_path, RUN_ID)
    if held:
        files.write(7, [state(tag, tag.round) for tag in held])
    before = files.state_before(7, expected, THREE, confirmed=confirmed)
    assert (None if before is None else before.tag) == found
    assert before is None or before.fields["h"][0] == before.tag.round


@pytest.mark.parametrize(
    ("held", "expected", "confirmed", "message"),
    [
        ([], ONE, False, r"its state of round 1 is missing: there is no .*client-7\.state"),
        ([], ONE, True, "its state of round 1 is missing"),
        ([ONE], TWO, False, "its state is of round 1, not of round 2, in .*; bring back the file that is"),
        ([ONE], TWO, True, "its state is of round 1, not of round 2"),
        ([TWO], ONE, True, "its state is of round 2, not of round 1"),
        ([Tag(2, 1)], Tag(1, 1), True, "its state is of round 2, exchange 2, not of round 1, exchange 2"),
        ([THREE], ONE, False, "its state is of round 3 already, so it can't train in this round again"),
        ([Tag(4, 0)], ONE, False, "its state is of round 4 already"),
        ([ONE, Tag(4, 0)], ONE, True, "its state is of round 4 already, so this order has come too late"),
    ],
)
def test_a_state_of_another_moment_is_refused(
    held: list[Tag], expected: Tag, confirmed: bool, message: str, tmp_path: Path
) -> None:
    files = StateFiles(tmp_path, RUN_ID)
    if held:
        files.write(7, [state(tag) for tag in held])
    with pytest.raises(InputError, match=message):
        files.state_before(7, expected, THREE, confirmed=confirmed)


def test_a_later_state_does_not_hinder_those_who_ask_for_a_model_only(tmp_path: Path) -> None:
    files = StateFiles(tmp_path, RUN_ID)
    for confirmed, held in ((True, [TWO, Tag(4, 0)]), (False, [Tag(4, 0)])):
        files.write(7, [state(tag) for tag in held])
        found = files.state_before(7, TWO, None, confirmed=confirmed)
        assert found is not None
        assert found.tag == held[0]


@pytest.mark.parametrize(
    ("held", "before", "new", "kept"),
    [
        ([], None, ONE, [ONE]),
        ([ONE], ONE, TWO, [ONE, TWO]),
        ([ONE, TWO], TWO, THREE, [TWO, THREE]),
        ([ONE, TWO], ONE, THREE, [ONE, THREE]),  # the reply of round 2 was lost
        ([ONE, TWO], ONE, TWO, [ONE, TWO]),  # round 2 is made again
        ([ONE, TWO], TWO, Tag(2, 1), [ONE, TWO, Tag(2, 1)]),
        ([ONE], ONE, Tag(1, 1), [ONE, Tag(1, 1)]),  # its first round
        ([ONE, TWO, Tag(2, 1)], ONE, TWO, [ONE, TWO, Tag(2, 1)]),  # a round of two exchanges is made again
        ([ONE, Tag(1, 1)], None, ONE, [ONE, Tag(1, 1)]),  # … which was its first
        ([TWO], None, THREE, [THREE]),  # the reply of its first round was refused
        ([ONE, TWO, Tag(2, 1)], Tag(2, 1), THREE, [Tag(2, 1), THREE]),
    ],
)
def test_all_states_are_kept_that_a_round_may_be_made_again_from(
    held: list[Tag], before: Tag | None, new: Tag, kept: list[Tag], tmp_path: Path
) -> None:
    files = StateFiles(tmp_path, RUN_ID)
    if held:
        files.write(7, [state(tag) for tag in held])
    found = files.kept(7, None if before is None else state(before), state(new))
    assert [one.tag for one in found] == kept


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"h": torch.zeros(4)}, "shape"),
        ({"h": torch.zeros(3, dtype=torch.float64)}, "float64"),
        ({"g": torch.zeros(3)}, "not the state of this algorithm"),
        ({}, "not the state of this algorithm"),
    ],
)
def test_a_state_of_another_algorithm_is_refused(fields: dict[str, Any], message: str) -> None:
    kind = Scaffold().client_type()
    (name,) = kind._fields
    given = {name if own == "h" else own: value for own, value in fields.items()}
    with pytest.raises(InputError, match=message):
        checked(State(ONE, given), kind, torch.zeros(3), Path("client-7.state"))


def tampering(change: Any) -> Any:
    """Changes the state files of node 1 before it is asked to train in round 3."""

    def harm(kind: str, name: str, order: Parcel, node: Any) -> Parcel:
        if kind == TRAIN and order.facts["round"] == 3 and name == "node 1":
            change(order)
        answer: Parcel = node(order)
        return answer

    return harm


@pytest.mark.parametrize("commit", ["sent", "confirmed"])
def test_a_lost_state_is_told_of_and_its_client_is_left_out(commit: str, tmp_path: Path) -> None:
    def lose(order: Parcel) -> None:
        for path in (tmp_path / "states-1").rglob("client-4.state"):
            path.unlink()

    settings = RUN | {"algorithm": "adabest", "participation": 1.0, "state_commit": commit}
    run = federated(wires(tmp_path, settings, harm=tampering(lose)))
    assert run.status == "finished"
    assert [(one.round, one.client) for one in run.rejections] == [(3, 4), (4, 4)]
    assert run.rejections[0].reason.startswith("node 1: its state of round 2 is missing: there is no ")


def test_a_client_whose_state_is_lost_still_tests_the_models_of_the_server(tmp_path: Path) -> None:
    def lose(order: Parcel) -> None:
        for path in (tmp_path / "states-1").rglob("client-4.state"):
            path.unlink()

    said: list[str] = []
    settings = RUN | {"algorithm": "adabest", "participation": 1.0, "local_test": 0.2}
    run = federated(wires(tmp_path, settings, project=project_on(DATA, tested=False), harm=tampering(lose)), said)
    results = run.local_results()
    assert all(value is not None for value in results["global_accuracy"])
    own = dict(zip(results["client"], results["own_accuracy"], strict=True))
    assert [client for client, value in own.items() if value is None] == [4]
    (line,) = (line for line in said if "tested" in line)
    assert line.startswith(
        "node 1 has not tested the own model of client 4: its state of round 2 is missing: there is no "
    )


def test_a_state_of_an_earlier_round_is_not_used(tmp_path: Path) -> None:
    kept: dict[Path, bytes] = {}

    def harm(kind: str, name: str, order: Parcel, node: Any) -> Parcel:
        if kind == TRAIN and name == "node 1" and order.facts["round"] == 2:
            kept.update((path, path.read_bytes()) for path in (tmp_path / "states-1").rglob("*.state"))
        if kind == TRAIN and name == "node 1" and order.facts["round"] == 3:
            for path, content in kept.items():  # somebody has brought back yesterday's copy
                path.write_bytes(content)
        answer: Parcel = node(order)
        return answer

    run = federated(wires(tmp_path, RUN | {"algorithm": "scaffold", "participation": 1.0}, harm=harm))
    told = [one for one in run.rejections if one.round == 3]
    assert [one.client for one in told] == [1, 4, 7]
    assert all("its state is of round 1, not of round 2" in one.reason for one in told)


def test_runs_share_a_folder_for_states(tmp_path: Path) -> None:
    settings = RUN | {"algorithm": "adabest"}
    first = federated(wires(tmp_path, settings))
    (tmp_path / "run").rename(tmp_path / "first")
    again = federated(wires(tmp_path, settings))
    assert again.final == first.final
    assert len(list((tmp_path / "states-0").iterdir())) == 2
