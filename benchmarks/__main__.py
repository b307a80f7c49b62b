"""``python -m benchmarks``: one command for each question, which writes a table and a figure into the docs."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from adabest.errors import InputError
from benchmarks import environments, machine


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
    speed.add_argument("--repeats", type=_positive, default=3, help="measurements of each arm")
    speed.add_argument("--rounds", type=_positive, help="rounds in a measurement; by default what suits the task")
    speed.add_argument("--merge", action="store_true", help="keep earlier results of other arms, tasks and devices")
    speed.set_defaults(call=_speed)
    peers = commands.add_parser("install-peers", help="make the environments of other frameworks, in .peers")
    peers.add_argument("peers", nargs="*", help=f"by default all: {', '.join(environments.names())}")
    peers.set_defaults(call=_install)
    for command in (speed,):
        command.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
        command.add_argument("--commit", help="what is measured, where git can't tell")
        command.add_argument("--out", type=Path, default=machine.ROOT / "docs", help="the docs' folder")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} isn't at least 1")
    return value


def _speed(arguments: argparse.Namespace, command: str) -> int:
    from benchmarks import measures, page, speed

    tasks, arms = speed.choose_tasks(arguments.tasks), speed.choose_arms(arguments.device, arguments.arms)
    before = speed.read(page.results_file(arguments.out)) if arguments.merge else {"runs": [], "results": []}
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
        files = page.publish(measures.merge(before, found), arguments.out)
        print(page.table(found["results"][-len(arms) :]).markdown())
    print("written:", *files)
    return 0


def _install(arguments: argparse.Namespace, command: str) -> int:
    made = environments.make(arguments.peers, _say)
    for name, problem in made.items():
        print(f"{name}: {'made' if problem is None else problem}")
    return int(any(problem is not None for problem in made.values()))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
