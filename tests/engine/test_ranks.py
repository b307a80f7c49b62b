"""Ranks: real processes over gloo on loopback. One that dies or freezes is named, one that is busy isn't."""

import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from ranked import Ended, plain_environment, rank_environment, run_ranks
from torch import distributed

from adabest.engine.distributed.liveness import SteadyClock
from adabest.engine.distributed.place import Place, in_torchrun
from adabest.engine.distributed.ranks import Ranks
from adabest.errors import InputError

# What differs if JSON is written carelessly: 17 digits, not finite, not ASCII, a lone surrogate, nothing, 1 MB.
ODD = r"""[
    {"float": [0.1 + 0.2, 5e-324, 1.7976931348623157e308, -0.0], "text": "ĝis — 你好 \ud800"},
    {"float": [nan, inf, -inf]},
    {},
    {"long": "x" * 1_000_000, "list": [[], {}, None, True, 2**70]},
]"""

JOIN = """
import os, signal, sys, time, torch
from adabest.engine.distributed.ranks import Ranks
from adabest.errors import RankLost
ranks = Ranks.join(deadline=DEADLINE)
print("joined", flush=True)
"""


def ranked(source: str, size: int, deadline: float = 30.0, **options: Any) -> list[Ended]:
    """Runs a source that finds ``ranks`` joined, once a rank."""
    code = JOIN.replace("DEADLINE", repr(deadline)) + textwrap.dedent(source)
    return run_ranks(["-c", code], size, **options)


def assert_clean(ended: list[Ended]) -> None:
    assert [(process.code, process.stderr) for process in ended] == [(0, "")] * len(ended)


@pytest.mark.parametrize("size", [1, 3])
def test_orders_and_answers_arrive_as_they_were(size: int) -> None:
    source = f"""
    nan, inf = float("nan"), float("inf")
    odd = eval({ODD!r})
    for value in odd:
        if ranks.rank == 0:
            ranks.tell(value)
        else:
            assert repr(ranks.hear()) == repr(value)
    for value in [*odd, None, 0.1 + 0.2, nan, "", []]:
        collected = ranks.collect([ranks.rank, value] if ranks.rank else value)
        expected = [value, *([rank, value] for rank in range(1, ranks.size))] if ranks.rank == 0 else None
        assert repr(collected) == repr(expected)
    assert len(ranks.hosts) == ranks.size == ranks.local_size
    assert ranks.bytes_sent == ranks.bytes_received == ranks.seconds == 0
    ranks.leave()
    ranks.leave()
    """
    assert_clean(ranked(source, size))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_vectors_of_any_length_and_type_arrive(size: int) -> None:
    source = """
    me, size = ranks.rank, ranks.size

    def vector(length, sender, receiver, dtype):
        return (torch.arange(length) + 10 * sender + 100 * receiver).to(dtype)

    types = [torch.float32, torch.float64, torch.int64, torch.bfloat16, torch.bool]
    for dtype in types:
        like = torch.empty(0, dtype=dtype)
        for length in (lambda i, j: 0, lambda i, j: i + 2 * j, lambda i, j: 5000 if i == 0 else 0, lambda i, j: 3):
            outgoing = [vector(length(me, j), me, j, dtype) for j in range(size)]
            got = ranks.swap(outgoing, [length(i, me) for i in range(size)], like)
            for i, part in enumerate(got):
                assert part.dtype == dtype and torch.equal(part, vector(length(i, me), i, me, dtype))
            sizes = [length(i, 0) for i in range(size)]
            gathered = ranks.gather(vector(sizes[me], me, 0, dtype), sizes)
            assert (gathered is None) == (me > 0)
            for i, part in enumerate(gathered or []):
                assert torch.equal(part, vector(sizes[i], i, 0, dtype))
            parts = [vector(length(0, j), 0, j, dtype) for j in range(size)] if me == 0 else None
            assert torch.equal(ranks.deal(parts, length(0, me), like), vector(length(0, me), 0, me, dtype))

        grid = (torch.arange(12) % 7).to(dtype).reshape(3, 4)
        whole = [grid.clone(), grid.T.clone().T, torch.ones((), dtype=dtype), torch.empty(0, dtype=dtype)]
        for expected in whole:  # one is not contiguous, one has no dimensions, one no elements
            given = expected.clone() if me == 0 else torch.zeros_like(expected)
            address = given.data_ptr()
            ranks.broadcast(given)
            assert given.data_ptr() == address and torch.equal(given, expected)

        following, before = (me + 1) % size, (me - 1) % size
        sends = [(vector(7, me, following, dtype), following), ((grid + me).to(dtype), following), (like, following)]
        received = [torch.zeros(7, dtype=dtype), torch.zeros(4, 3, dtype=dtype).T, like.clone()]
        ranks.transfer(sends, [(tensor, before) for tensor in received])
        assert torch.equal(received[0], vector(7, before, me, dtype))
        assert torch.equal(received[1], (grid + before).to(dtype))
    ranks.transfer([], [])

    sent, got = ranks.bytes_sent, ranks.bytes_received
    weight = torch.full((1000,), float(me), requires_grad=True)
    ranks.broadcast(weight)
    assert weight.eq(0).all() and weight.requires_grad
    assert (ranks.bytes_sent - sent, ranks.bytes_received - got) == ((4000 * (size - 1), 0) if me == 0 else (0, 4000))
    sent, got = ranks.bytes_sent, ranks.bytes_received
    ranks.swap([torch.zeros(5)] * size, [5] * size, torch.zeros(0))
    assert ranks.bytes_sent - sent == ranks.bytes_received - got == 20 * (size - 1)
    assert (ranks.seconds > 0) == (size > 1)
    ranks.use_device(torch.device("cpu"), "gloo")
    ranks.leave()
    """
    assert_clean(ranked(source, size))


WAITS = {
    "hear": "ranks.tell({}) if ranks.rank == 0 else ranks.hear()",
    "collect": "ranks.collect(1)",
    "swap": "ranks.swap([torch.zeros(9)] * ranks.size, [9] * ranks.size, torch.zeros(0))",
    "transfer": "ranks.transfer([], [(torch.zeros(3), ranks.size - 1)])",
}


@pytest.mark.parametrize(
    ("wait", "size"),
    [
        ("swap", 3),
        pytest.param("collect", 2, marks=pytest.mark.soak),
        pytest.param("transfer", 3, marks=pytest.mark.soak),
    ],
)
def test_a_killed_rank_is_named_at_once(wait: str, size: int) -> None:
    source = f"""
    if ranks.rank == ranks.size - 1:
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        {WAITS[wait]}
    except RankLost as error:
        print(error, time.monotonic() - began, sep="|", flush=True)
    began = time.monotonic()
    ranks.leave()
    assert time.monotonic() - began < 15
    """
    *waiting, killed = ranked(source, size, deadline=60.0)
    assert killed.code == -signal.SIGKILL
    assert_clean(waiting)
    for process in waiting:
        message, _, seconds = process.stdout.splitlines()[-1].partition("|")
        assert re.match(rf"rank {size - 1} on \S+ was lost: ", message), process.stdout
        assert float(seconds) < 30  # half a deadline, even on a slow machine


def test_a_killed_rank_0_is_named_although_it_held_the_store() -> None:
    source = """
    if ranks.rank == 0:
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        ranks.hear()
    except RankLost as error:
        print(error, flush=True)
    ranks.leave()
    """
    killed, *waiting = ranked(source, 3, deadline=20.0)
    assert killed.code == -signal.SIGKILL
    for process in waiting:
        assert process.code == 0
        assert re.search(r"^rank 0 on \S+ was lost: ", process.stdout, re.MULTILINE), process.stdout


@pytest.mark.parametrize(
    ("wait", "frozen"),
    [("hear", 0), pytest.param("swap", 2, marks=pytest.mark.soak), pytest.param("transfer", 2, marks=pytest.mark.soak)],
)
def test_a_frozen_rank_is_named_after_the_deadline(wait: str, frozen: int) -> None:
    source = f"""
    ranks.collect(0)
    if ranks.rank == {frozen}:
        os.kill(os.getpid(), signal.SIGSTOP)
    began = time.monotonic()
    try:
        {WAITS[wait]}
    except RankLost as error:
        print(error, time.monotonic() - began, sep="|", flush=True)
    began = time.monotonic()
    ranks.leave()
    assert time.monotonic() - began < 15
    """

    def kill_the_frozen(processes: list[subprocess.Popen[str]]) -> None:
        for rank, process in enumerate(processes):
            if rank != frozen:
                process.wait(60)
        processes[frozen].kill()

    ended = ranked(source, 3, deadline=2.0, meanwhile=kill_the_frozen)
    for rank, process in enumerate(ended):
        if rank != frozen:
            assert process.code == 0, process.stderr
            message, _, seconds = process.stdout.splitlines()[-1].partition("|")
            assert re.match(rf"rank {frozen} on \S+ was lost: ", message), process.stdout
            assert 0.5 < float(seconds) < 40


def test_busy_and_thawed_ranks_are_not_accused() -> None:
    """Rank 1 is busy for four deadlines. Rank 0 was frozen, and mustn't blame the others for its own absence."""
    source = """
    if ranks.rank == 1:
        time.sleep(8)
    if ranks.rank == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
    for _ in range(3):
        ranks.collect(0)
        time.sleep(0.1)
    if ranks.rank == 0:
        ranks.tell({"end": True})
    else:
        assert ranks.hear() == {"end": True}
    ranks.leave()
    """

    def thaw(processes: list[subprocess.Popen[str]]) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until and " T" not in Path(f"/proc/{processes[0].pid}/stat").read_text():
            time.sleep(0.02)
        time.sleep(3)  # longer than the deadline
        processes[0].send_signal(signal.SIGCONT)

    ended = ranked(source, 2, deadline=2.0, meanwhile=thaw)
    assert [one.code for one in ended] == [
        0,
        0,
    ]  # torch itself may write that a socket was slow while rank 0 was frozen
    assert not any("lost" in one.stderr for one in ended)


def test_a_clock_doesnt_count_its_own_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([100.0, 100.25, 100.5, 3700.0, 3700.25])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    clock = SteadyClock(longest_gap=0.5)
    readings = [clock.read() for _ in range(4)]
    assert readings == [0.25, 0.5, 1.0, 1.25]


def test_a_rank_that_fails_is_named_by_those_that_wait_for_it() -> None:
    """Both end with their own errors, although neither calls ``leave``."""
    waiting, failed = ranked("raise ValueError('broken') if ranks.rank else ranks.collect(0)", 2)
    assert (waiting.code, failed.code) == (1, 1)
    assert failed.stderr.splitlines()[-1].endswith("ValueError: broken")
    lost = r"adabest\.errors\.RankLost: rank 1 on \S+ was lost: it left the job while this rank waited"
    assert re.search(rf"{lost}$", waiting.stderr.strip())


@pytest.mark.parametrize(
    ("came", "words"),
    [(0, r"1 of 2 ranks came within 2 s; missing: 1"), (1, r"store \(127.0.0.1:\d+, held by rank 0\) couldn't be")],
)
def test_ranks_that_never_come_end_the_joining(came: int, words: str) -> None:
    (ended,) = ranked("", 2, deadline=2.0, started=[came])
    assert ended.code == 1
    assert re.search(rf"^adabest.errors.RankLost: .*{words}", ended.stderr, re.MULTILINE)
    assert "[c10d]" not in ended.stderr


def test_torchrun_itself_starts_ranks(tmp_path: Path) -> None:
    """Its agent holds the store; nothing of torch's is left in stderr."""
    script = tmp_path / "script.py"
    script.write_text(
        JOIN.replace("DEADLINE", "30.0") + "print(ranks.collect(ranks.rank) or '', end='', flush=True)\nranks.leave()\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", str(script)]
    variables = plain_environment()
    del variables["PYTHONWARNINGS"]  # torchrun has some of its own
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=90, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "[0, 1]" in ended.stdout


WHOLE = rank_environment(0, 2, 29500)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"LOCAL_RANK": None, "MASTER_ADDR": None}, "lacks LOCAL_RANK, MASTER_ADDR"),
        ({"MASTER_PORT": ""}, "lacks MASTER_PORT"),
        ({"RANK": "abc"}, "RANK='abc' must be a whole number"),
        ({"RANK": "-1"}, "RANK='-1' must be a whole number"),
        ({"RANK": "2"}, "RANK=2 must be less than WORLD_SIZE=2"),
        ({"LOCAL_RANK": "5"}, "LOCAL_RANK=5 must be less than LOCAL_WORLD_SIZE=2"),
        ({"WORLD_SIZE": "0"}, "RANK=0 must be less than WORLD_SIZE=0"),
        ({"MASTER_PORT": "70000"}, "MASTER_PORT=70000 must be a port"),
    ],
)
def test_incomplete_environments_are_refused(changed: dict[str, str | None], words: str) -> None:
    environment = {name: value for name, value in (WHOLE | changed).items() if value is not None}
    assert in_torchrun(environment)
    with pytest.raises(InputError, match=re.escape(words)) as refused:
        Ranks.join(environment)
    assert "torchrun --nproc-per-node=2 -m adabest run" in str(refused.value)


def test_a_job_is_known_by_its_ranks() -> None:
    assert in_torchrun(WHOLE)
    assert not in_torchrun({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"})
    agent = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "3"}
    place = Place.of(WHOLE | agent)
    assert (place.agent_store, place.restart, Place.of(WHOLE).agent_store) == (True, 3, False)
    assert place.store_holder.endswith("torchrun's agent")


def test_one_rank_needs_no_group_and_nccl_needs_a_gpu() -> None:
    ranks = Ranks.join(rank_environment(0, 1, 29500))
    assert not distributed.is_initialized()
    vector = torch.arange(3)
    assert ranks.swap([vector], [3], vector)[0] is vector
    with pytest.raises(InputError, match="use gloo"):
        ranks.use_device(torch.device("cpu"), "nccl")
    ranks.leave()


def test_a_foreign_group_is_refused(tmp_path: Path) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        with pytest.raises(InputError, match="initialised already"):
            Ranks.join(rank_environment(0, 1, 29500))
    finally:
        distributed.destroy_process_group()
