"""``python -m benchmarks``: one command for each question, which writes a table and a figure into the docs."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from adabest.errors import InputError
from benchmarks import environments, files, machine


def main(words: Sequence[str] | None = None) -> int:
    """Parses, calls, prints."""
    given = sys.argv[1:] if words is None else list(words)
    arguments = _parser().parse_args(given)
    try:
        code: int = arguments.call(arguments, shlex.join(["python", "-m", "benchmarks", *given]))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    speed = commands.add_parser("speed", help="this package beside loops by hand and other frameworks")
    speed.add_argument("--tasks", nargs="+", default=[], help="tasks by number or name; by default all")
    speed.add_argument("--arms", nargs="+", default=[], help="what to measure; by default everything")
    speed.add_argument("--clients", nargs="+", type=_positive, default=[], help="clients in parallel")
    speed.add_argument("--rounds", type=_positive, help="rounds in a measurement; by default what suits the task")
    speed.set_defaults(call=_speed)
    scale = commands.add_parser("scale", help="how cost grows with clients, model size, runs and population")
    scale.add_argument("--parts", nargs="+", default=list(_PARTS), help="what grows; by default all of it")
    scale.add_argument("--engine", default="batched", help="which engine of this package")
    scale.set_defaults(call=_scale)
    partition = commands.add_parser("partition", help="what partitioners and draws cost")
    partition.set_defaults(call=_partition)
    peers = commands.add_parser("install-peers", help="make the environments of other frameworks, in .peers")
    peers.add_argument("peers", nargs="*", help=f"by default all: {', '.join(environments.names())}")
    peers.set_defaults(call=_install)
    for command in (speed, scale):
        command.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
        command.add_argument("--repeats", type=_positive, default=3, help="how often everything is measured")
        command.add_argument("--merge", action="store_true", help="keep earlier results of everything else")
    for command in (speed, scale, partition):
        command.add_argument("--commit", help="what is measured, where git can't tell")
        command.add_argument("--out", type=Path, default=machine.ROOT / "docs", help="the docs' folder")
    return parser


_PARTS = ("clients", "model", "lanes", "population")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} isn't at least 1")
    return value


def _speed(arguments: argparse.Namespace, command: str) -> int:
    from benchmarks import measures, page, speed

    tasks, arms = speed.choose_tasks(arguments.tasks), speed.choose_arms(arguments.device, arguments.arms)
    earlier = files.read(arguments.out / page.RESULTS, page.KEYS) if arguments.merge else None
    measured = speed.measure(
        arguments.device,
        tasks,
        arms,
        clients=arguments.clients,
        repeats=arguments.repeats,
        rounds=arguments.rounds,
        command=command,
        commit=arguments.commit,
        say=_say,
    )
    for found in measured:
        whole = measures.merge(earlier or {"runs": [], "results": []}, found)
        paths = files.write(arguments.out, page.files(whole))
        print(page.table(found["results"][-len(arms) :]).markdown())
    _written(paths)
    return 0


def _scale(arguments: argparse.Namespace, command: str) -> int:
    from benchmarks import scale

    device = arguments.device
    machine.check(device)
    found = files.read(arguments.out / scale.RESULTS, {"cpu", "cuda"}) if arguments.merge else None
    found = {**(found or {})}
    run = {**machine.describe(device, command, arguments.commit), "engine": arguments.engine}
    parts = dict(found.get(device, {"parts": {}})["parts"])
    measured = scale.measure(device, arguments.parts, _say, engine=arguments.engine, repeats=arguments.repeats)
    for part, points in measured:
        parts[part] = points
        found[device] = {"run": run, "parts": {name: parts[name] for name in _PARTS if name in parts}}
        _written(files.write(arguments.out, scale.files(found)))
        print(scale.table(part, points).markdown())
    return 0


def _partition(arguments: argparse.Namespace, command: str) -> int:
    from benchmarks import partitioners, samplers

    cuts, draws = partitioners.measure(), samplers.measure()
    tables = [partitioners.table(cuts).markdown(), samplers.table(draws).markdown()]
    run = machine.describe("cpu", command, arguments.commit)
    contents: dict[str, files.Content] = {
        "results/partition.json": {"run": run, "seconds": cuts, "microseconds_a_draw": draws},
        "results/partition.md": partitioners.page(run, tables),
        "assets/partitioners.png": partitioners.figure(cuts),
    }
    paths = files.write(arguments.out, contents)
    print(*tables, sep="\n")
    _written(paths)
    return 0


def _install(arguments: argparse.Namespace, command: str) -> int:
    made = environments.make(arguments.peers, _say)
    for name, problem in made.items():
        print(f"{name}: {'made' if problem is None else problem}")
    return int(any(problem is not None for problem in made.values()))


def _written(paths: Sequence[Path]) -> None:
    print("written:", *paths)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
