"""The list of algorithms, and that it says what is so."""

import pytest
from recording import COHORTS, DIM, NAMES, record
from rich.cells import cell_len
from tiny_runs import command

import adabest
from adabest.algorithms.catalog import ALGORITHMS, CORE
from adabest.algorithms.listing import AlgorithmListing, list_algorithms
from adabest.algorithms.records import RECORDS, Family

LISTINGS = {of.name: of for of in list_algorithms()}


def numbers(text: str) -> int:
    """What 2n + 1 or n − q comes to for the recorded model, which has one private number where it has any."""
    if text.endswith("n − q + 1") or text.endswith("n − q"):
        return numbers(text.replace("n − q", "n")) - 1
    parts = text.split(" + ")
    return sum(DIM * int(part[:-1] or 1) if part.endswith("n") else int(part) for part in parts)


def test_every_algorithm_has_a_record_and_a_line() -> None:
    assert list(RECORDS) == list(ALGORITHMS.builtin) == [of.name for of in adabest.list_algorithms()]
    assert set(CORE) <= set(NAMES)
    assert {record.family for record in RECORDS.values()} == set(Family)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_listed_as_sent_and_kept_is_sent_and_kept(name: str) -> None:
    recording, listed = record(name), LISTINGS[name]
    state, replies = recording.simulation.state, sum(map(len, COHORTS))
    assert state.bytes_down == 8 * replies * numbers(listed.down)
    assert state.bytes_up == 8 * replies * numbers(listed.up)
    assert sum(tensor.numel() for tensor in recording.simulation.client_state(0)) == numbers(listed.client)
    assert sum(tensor.numel() for tensor in state.server) == numbers(listed.server)


def test_needs_are_told_in_words() -> None:
    assert LISTINGS["fedavg"].needs == LISTINGS["adabest"].needs == ()
    assert LISTINGS["dane"].needs == ("all clients", "full gradients")
    assert LISTINGS["mifa"].needs == ("|S|",)
    assert LISTINGS["fedspeed"].needs == ("|S|", "two gradients")
    assert LISTINGS["bvr-l-sgd"].needs == ("all clients", "full gradients", "two gradients")
    assert LISTINGS["fedacg"] == AlgorithmListing(
        "fedacg", "ahead", "β(w − θ)", "n", "n", "0", "n", (), "Kim et al., 2024"
    )


@pytest.mark.parametrize("width", ["80", "250"])
def test_the_command_shows_every_algorithm_in_two_tables(
    width: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names stay in one piece on a terminal of eighty columns, and so do words and numbers."""
    monkeypatch.setenv("COLUMNS", width)
    assert command("algorithms") == 0
    shown = capsys.readouterr().out
    assert all(shown.count(f"│ {name} ") == 2 for name in NAMES)
    assert max(map(cell_len, shown.splitlines()[:-1])) <= int(width)
    for words in ("control variates", "server optimiser", "Jhunjhunwala", "all clients", "2n + 1"):
        assert words in shown
