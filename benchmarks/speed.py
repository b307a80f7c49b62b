"""Arms side by side on the same work: started one after another, measured in turn, several times over."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from adabest.errors import InputError, nearest
from benchmarks import environments, machine, measures
from benchmarks.catalog import ARMS, Arm
from benchmarks.process import ArmFailedError, Process
from benchmarks.tasks import PAPER, TASKS, Task

# Rounds in one measurement: enough for about a second. Tasks that aren't named take a device's usual number.
USUAL_ROUNDS = {"cpu": 1, "cuda": 10}
ROUNDS = {
    "cpu": {"mlp": 5, "femnist-cnn": 2},
    "cuda": {"mlp": 50, "pfl-cifar": 20},
}
CLIENTS_ON_CUDA = (10, 50, 100, 500)

Say = Callable[[str], None]


def choose_tasks(given: Sequence[str]) -> list[Task]:
    """Tasks by name or number, by default all but the GPU's headline.

    Raises:
        InputError: If there is no such task.
    """
    numbered = {str(number): name for number, name in enumerate(TASKS, start=1)}
    chosen = [numbered.get(word, word) for word in given] or [name for name in TASKS if name != PAPER.name]
    for name in chosen:
        if name not in TASKS:
            raise InputError(f"there is no task {name!r}; {nearest(name, [*TASKS, *numbered])}")
    return [TASKS[name] for name in dict.fromkeys(chosen)]


def choose_arms(device: str, given: Sequence[str]) -> list[Arm]:
    """Arms by name, by default all of a device.

    Raises:
        InputError: If there is no such arm.
    """
    arms = ARMS[device]
    for name in given:
        if name not in arms:
            raise InputError(f"there is no {device} arm {name!r}; {nearest(name, arms)}")
    return [arms[name] for name in dict.fromkeys(given or arms)]


def measure(
    device: str,
    tasks: Sequence[Task],
    arms: Sequence[Arm],
    *,
    clients: Sequence[int] = (),
    repeats: int = 3,
    rounds: int | None = None,
    command: str = "",
    commit: str | None = None,
    say: Say = lambda line: None,
) -> Iterator[dict[str, Any]]:
    """Measures arms on tasks, and gives all results so far after each task, so that little is lost if it is stopped.

    Args:
        device: Where.
        tasks: What is trained.
        arms: What trains.
        clients: Numbers of clients in parallel; by default each task's own on a CPU, several on a GPU.
        repeats: How often each arm is measured.
        rounds: Rounds in a measurement; by default as many as suit the task.
        command: How this was called.
        commit: What was measured, where git can't tell.
        say: Told how it goes.

    Raises:
        InputError: If the device isn't there.
    """
    machine.check(device)
    about = machine.describe(device, command, commit)
    peaks = machine.peaks(device, (arm.precision for arm in arms))
    say("peak: " + ", ".join(f"{name} {peak / 1e9:,.0f} GFLOP/s" for name, peak in peaks.items()))
    run = {**about, "repeats": repeats, "peaks": peaks}
    results: list[dict[str, Any]] = []
    for task in tasks:
        for cohort in clients or (CLIENTS_ON_CUDA if device == "cuda" else (task.cohort,)):
            sized = task.with_cohort(cohort)
            each = rounds or ROUNDS[device].get(task.name, USUAL_ROUNDS[device])
            say(f"{task.title}, {cohort} clients a round, {each} rounds a measurement")
            rows = _side_by_side(sized, arms, say, repeats=repeats, rounds=each)
            for row in rows:
                if "measurements" in row:
                    row.update(measures.figures(sized, row["measurements"], each, peaks[row["precision"]]))
            results += rows
            yield {"runs": [run], "results": list(results)}


def _side_by_side(task: Task, arms: Sequence[Arm], say: Say, *, repeats: int, rounds: int) -> list[dict[str, Any]]:
    """All arms on one task: all are started, then measured in turn, so that no hour of the day favours one."""
    rows = {arm.name: _row(task, arm, rounds) for arm in arms}
    processes: dict[str, Process] = {}
    try:
        for arm in arms:
            process = _start(arm, task, rows[arm.name], say)
            if process is not None:
                processes[arm.name] = process
        for _ in range(repeats):
            for name in list(processes):
                _measure(name, rows[name], processes, say)
    finally:
        for process in processes.values():
            process.end()
    return list(rows.values())


def _row(task: Task, arm: Arm, rounds: int) -> dict[str, Any]:
    return {
        "run": 0,
        "device": arm.device,
        "task": task.name,
        "clients": task.cohort,
        "arm": arm.name,
        "label": arm.label,
        "kind": arm.kind,
        "precision": arm.precision,
        "rounds": rounds,
    }


def _start(arm: Arm, task: Task, row: dict[str, Any], say: Say) -> Process | None:
    """Starts an arm, or notes why that can't be done."""
    if arm.plain_only and not task.is_plain:
        row["left_out"] = "its program has no padding, GroupNorm or residual blocks"
        say(f"  {arm.name}: left out: {row['left_out']}")
        return None
    if not environments.is_there(arm.environment):
        row["not_installed"] = environments.how_to_make(arm.environment)
        say(f"  {arm.name}: not installed: {row['not_installed']}")
        return None
    try:
        process = Process(arm, task.name, task.cohort, row["rounds"])
    except ArmFailedError as error:
        row["error"] = str(error)
        say(f"  {arm.name}: failed: {error}")
        return None
    row |= {"startup_seconds": process.startup_seconds, "versions": process.versions, "measurements": []}
    say(f"  {arm.name}: warm after {process.startup_seconds:.1f} s")
    return process


def _measure(name: str, row: dict[str, Any], processes: dict[str, Process], say: Say) -> None:
    try:
        measured = processes[name].measure()
    except ArmFailedError as error:
        row["error"] = str(error)
        del row["measurements"]
        say(f"  {name}: failed: {error}")
        processes.pop(name).end()
        return
    row["measurements"].append(measured.seconds)
    row["peak_memory"] = measured.peak_memory
    say(f"  {name}: {measured.seconds / row['rounds']:.3f} s a round")
