"""Real processes, really killed: what they leave behind is continued to the same end, bit for bit."""

import contextlib
import json
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import HELPERS, arguments, checkpoints, command, results, resume, run, tiny

import adabest
from adabest.algorithms.catalog import CORE
from adabest.federation.sampling import SAMPLERS
from adabest.runs.files.folder import is_ours
from adabest.runs.files.run_verification import verify_run

# One row a round, so that the file of metrics shows how far a process is. The number of threads is part of what makes
# two runs equal, and this process has one.
SLOW = tiny(rounds=60, evaluate_every=1, checkpoint_every=3, threads=1, engine="batched")
PATIENCE = 120  # seconds until a process that doesn't get anywhere counts as hung


@contextmanager
def process(*given: Any) -> Iterator[subprocess.Popen[str]]:
    """``adabest`` as a process of its own, which doesn't outlive the test."""
    line = [sys.executable, "-m", "adabest", *map(str, given)]
    child = subprocess.Popen(line, cwd=HELPERS, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def wait(child: subprocess.Popen[str], until: Callable[[], bool]) -> None:
    """Until something is seen, or the process ends."""
    deadline = time.monotonic() + PATIENCE
    while not until() and child.poll() is None:
        assert time.monotonic() < deadline, "the process doesn't get anywhere"
        time.sleep(0.002)


def rounds_done(*folders: Path) -> int:
    paths = [folder / "metrics.jsonl" for folder in folders]
    return sum(path.read_bytes().count(b"\n") for path in paths if path.is_file())


def wait_for_rounds(child: subprocess.Popen[str], goal: int, *folders: Path) -> None:
    wait(child, lambda: rounds_done(*folders) >= goal)


def begin_or_resume(folder: Path, settings: dict[str, Any]) -> list[Any]:
    """What someone would type who finds the folder like this."""
    if (folder / "config.toml").is_file():
        return ["resume", folder]
    return ["run", *arguments(**settings, out=folder)]


def test_a_run_killed_twice_ends_as_if_never_killed(tmp_path: Path) -> None:
    """With hardly any memory for clients, whose rows lie in a file then, which nobody finds afterwards."""
    straight = run(tmp_path / "straight", **SLOW)
    folder, moments = tmp_path / "killed", random.Random(3)
    for low, high in ((1, 25), (28, 58)):
        with process(*begin_or_resume(folder, {**SLOW, "client_memory": "6kB"})) as child:
            wait_for_rounds(child, moments.randint(low, high), folder)
            time.sleep(moments.uniform(0, 0.02))
            child.kill()
            child.wait()
            assert child.returncode != 0, "it was too quick to be killed"
        left = adabest.load(folder)
        assert left.status == "killed"
        assert left.round % 3 == 0
        assert left.round < 60
        names = [path.name for path in folder.iterdir()]
        assert [name for name in names if not is_ours(name) or name.startswith("clients")] == []
    assert left.round >= 27, "the second process should have continued, not started again"
    assert resume(folder).status == "finished"
    assert results(folder) == results(straight.folder)


LANES = ["--algorithms", "fedavg", "adabest", "--seeds", 0, 1]
LABELS = [f"{name},seed={seed}" for name in ("fedavg", "adabest") for seed in (0, 1)]


def test_lanes_killed_twice_end_as_if_never_killed(tmp_path: Path) -> None:
    """Once all together, once one alone and the others in smaller company."""
    settings = {**SLOW, "rounds": 32}
    straight = adabest.compare(algorithms=["fedavg", "adabest"], seeds=[0, 1], out=tmp_path / "straight", **settings)
    folder = tmp_path / "killed"
    folders = [folder / label for label in LABELS]
    for line, goal in ((["compare", *arguments(**settings, out=folder), *LANES], 30), (["resume", folder], 90)):
        with process(*line) as child:
            wait_for_rounds(child, goal, *folders)
            child.kill()
            child.wait()
            assert child.returncode != 0, "it was too quick to be killed"
        left = [adabest.load(place) for place in folders]
        assert {one.status for one in left} == {"killed"}
        assert min(one.round for one in left) >= max(one.round for one in left) - 3 > 0
    resume(folders[1])
    assert command("resume", folder) == 0
    for label in LABELS:
        assert results(folder / label) == results(straight.folder / label)
    assert (folder / "table.csv").read_bytes() == (straight.folder / "table.csv").read_bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows can't send these signals to another process")
def test_lanes_that_are_asked_to_stop_save_their_last_round(tmp_path: Path) -> None:
    folder = tmp_path / "all"
    given = arguments(**{**SLOW, "rounds": 5000, "checkpoint_every": 0}, out=folder)
    with process("compare", *given, *LANES) as child:
        wait_for_rounds(child, 20, *[folder / label for label in LABELS])
        child.send_signal(signal.SIGTERM)
        out, err = child.communicate(timeout=PATIENCE)
    assert (child.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert err.count("resume with") == 1  # one word for all
    assert err.splitlines()[-1] == f"adabest: interrupted; resume with: adabest resume {folder}"
    for label in LABELS:
        stopped = adabest.load(folder / label)
        assert (stopped.status, stopped.round) == ("interrupted", rounds_done(folder / label))
        assert checkpoints(folder / label)[-1] == f"round-{stopped.round:07d}.safetensors"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows can't send these signals to another process")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_a_run_that_is_asked_to_stop_saves_its_last_round(number: signal.Signals, tmp_path: Path) -> None:
    folder = tmp_path / "a run"
    with process("run", *arguments(**{**SLOW, "rounds": 5000, "checkpoint_every": 0}, out=folder)) as child:
        wait_for_rounds(child, 5, folder)
        child.send_signal(number)
        out, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 130
    assert out == ""
    last = err.splitlines()[-1]
    assert "Traceback" not in err
    assert shlex.split(last.partition("resume with: ")[2]) == ["adabest", "resume", str(folder)]
    # The last boundary is on disk: every round that has a row is in the checkpoint.
    stopped = adabest.load(folder)
    assert (stopped.status, stopped.round) == ("interrupted", rounds_done(folder))
    assert checkpoints(folder)[-1] == f"round-{stopped.round:07d}.safetensors"


def test_a_second_process_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    with process("run", *arguments(**{**SLOW, "rounds": 5000}, out=folder)) as child:
        wait_for_rounds(child, 1, folder)
        assert command("resume", folder) == 2
        assert command("run", *arguments(**SLOW, out=folder, overwrite=True)) == 2
        assert capsys.readouterr().err.count(f"adabest: another process is working on {folder}") == 2
        assert adabest.load(folder).status == "running"
        assert child.poll() is None, "the first process should have gone on"
    assert adabest.load(folder).status == "killed"
    assert json.loads((folder / "status.json").read_text())["status"] == "running"


# A process that dies at a random moment of its writing thread: a sleep before each file operation of that thread makes
# such moments last, and rounds go on beside them.
DYING = """
import os, random, signal, sys, threading, time
from pathlib import Path
from adabest.cli import main
draw, left = random.Random(sys.argv[1]), [0]
left[0] = draw.randint(0, 60)
def slowed(original):
    def call(*given, **options):
        if threading.current_thread().name == "adabest-writer":
            left[0] -= 1
            time.sleep(draw.choice([0, 0.002, 0.02]))
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return original(*given, **options)
    return call
for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink"), (Path, "open"), (os, "open")):
    setattr(owner, name, slowed(getattr(owner, name)))
sys.exit(main(sys.argv[2:]))
"""


def die_while_writing(seed: str, *given: Any) -> int:
    line = [sys.executable, "-c", DYING, seed, *map(str, given)]
    done = subprocess.run(line, cwd=HELPERS, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def assert_survives_death_while_writing(times: int, seed: int, tmp_path: Path, **changes: Any) -> None:
    settings = {**SLOW, "clients": 40, "checkpoint_every": 2, **changes}
    straight, folder = run(tmp_path / "straight", **settings), tmp_path / "killed"
    codes = [die_while_writing(f"{seed} {number}", *begin_or_resume(folder, settings)) for number in range(times)]
    assert codes.count(-signal.SIGKILL) >= times // 2
    assert {finding.state for finding in verify_run(folder)} == {"whole"}
    assert resume(folder).status == "finished"
    assert results(folder) == results(straight.folder)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_a_run_killed_while_its_thread_writes_ends_as_if_never_killed(tmp_path: Path) -> None:
    assert_survives_death_while_writing(2, 0, tmp_path)


@pytest.mark.soak
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
@pytest.mark.parametrize("seed", range(1, 9))
def test_a_run_survives_many_kills_while_its_thread_writes(seed: int, tmp_path: Path) -> None:
    budget = {"client_memory": "20kB"} if seed % 2 else {}
    assert_survives_death_while_writing(8, seed, tmp_path, checkpoint_every=1 + seed % 3, **budget)


def signs_of_life(folder: Path) -> set[tuple[str, int]]:
    """Which files there are and when they were written; files come and go while one looks."""
    found = set()
    for path in folder.glob("*"):
        with contextlib.suppress(FileNotFoundError):
            found.add((path.name, path.stat().st_mtime_ns))
    return found


def kill_at_random(folder: Path, settings: dict[str, Any], moments: random.Random) -> bool:
    """Starts or resumes a run and kills it some time; returns whether it was still alive then."""
    before = signs_of_life(folder)
    with process(*begin_or_resume(folder, settings)) as child:
        if moments.random() < 0.4:
            # While the first files are written, or the old ones are cut back.
            wait(child, lambda: signs_of_life(folder) != before)
        else:
            wait_for_rounds(child, rounds_done(folder) + moments.randint(1, 12), folder)
        time.sleep(moments.choice([0, moments.uniform(0, 0.01), moments.uniform(0, 0.1)]))
        child.kill()
        _, err = child.communicate()
        assert child.returncode <= 0, err  # killed or done, never an error
        return child.returncode < 0


def assert_survives(settings: dict[str, Any], moments: random.Random, tmp_path: Path) -> None:
    """Ten attempts to kill a run, at least four of which hit, change no byte of its results."""
    straight, folder = run(tmp_path / "straight", **settings), tmp_path / "killed"
    kills = [kill_at_random(folder, settings, moments) for _ in range(10)]
    assert sum(kills) >= 4
    assert resume(folder).status == "finished"
    assert results(folder) == results(straight.folder)


@pytest.mark.soak
@pytest.mark.parametrize("checkpoint_every", [1, 4])
@pytest.mark.parametrize("algorithm", CORE)
def test_every_algorithm_survives_many_kills(algorithm: str, checkpoint_every: int, tmp_path: Path) -> None:
    settings = {**SLOW, "algorithm": algorithm, "checkpoint_every": checkpoint_every, "unbalance": 0.3}
    settings |= {"model": "tiny_runs:dropping", "augmentation": "flip-crop"}
    assert_survives(settings, random.Random(f"{algorithm} {checkpoint_every}"), tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("budget", ["0", "6kB", "20kB"])
def test_clients_on_disk_survive_many_kills(budget: str, tmp_path: Path) -> None:
    assert_survives({**SLOW, "client_memory": budget, "checkpoint_every": 2}, random.Random(budget), tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("sampler", SAMPLERS.builtin)
def test_a_population_that_changes_survives_many_kills(sampler: str, tmp_path: Path) -> None:
    settings = {**SLOW, "churn": 0.3, "schedule": ["20:leave:0-7", "22:join:0-7"], "sampler": sampler}
    settings |= {"algorithm": "adabest", "beta_decay": 0.9, "patience": 3, "average_from": 0.3, "unbalance": 0.3}
    assert_survives(settings, random.Random(sampler), tmp_path)
    averaged = {(tmp_path / name / "averaged.safetensors").read_bytes() for name in ("straight", "killed")}
    assert len(averaged) == 1


@pytest.mark.soak
def test_a_run_without_checkpoints_survives_many_kills(tmp_path: Path) -> None:
    assert_survives({**SLOW, "checkpoint_every": 0}, random.Random(1), tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("lanes", [1, 4, None])
def test_a_comparison_survives_many_kills(lanes: int | None, tmp_path: Path) -> None:
    settings = {**SLOW, "rounds": 30}
    if lanes is not None:
        settings["lanes"] = lanes
    straight = adabest.compare(out=tmp_path / "straight", show=False, algorithms=list(CORE), **settings)
    folder, moments = tmp_path / "killed", random.Random(0)
    folders = [folder / name for name in CORE]
    begin = ["compare", *arguments(**settings, out=folder), "--algorithms", *CORE]
    for _ in range(12):
        with process(*(["resume", folder] if (folder / "comparison.toml").is_file() else begin)) as child:
            wait_for_rounds(child, rounds_done(*folders) + moments.randint(0, 25), *folders)
            time.sleep(moments.uniform(0, 0.5))
    assert command("resume", folder) == 0
    for name in CORE:
        assert results(folder / name) == results(straight.folder / name)
    assert (folder / "table.csv").read_bytes() == (straight.folder / "table.csv").read_bytes()
