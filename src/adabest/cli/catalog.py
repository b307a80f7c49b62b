"""The names of the commands, what each does in one line, and where it is.

A command is imported when it is asked for, so that no command waits for what another one needs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from adabest.cli.parser import Action, Field


class Command(Protocol):
    """The module of a command."""

    def fields(self, given: Sequence[str]) -> "list[Field]":
        """What the command takes.

        Args:
            given: The words of the command line, from the command on: a file or an algorithm in it brings options.
        """

    def action(self) -> "Action":
        """What the command does, once it is known that its options are right: its imports take seconds."""


@dataclass(frozen=True)
class Entry:
    """A line of the list of commands.

    Attributes:
        description: What the command does.
        module: Imports its module.
    """

    description: str
    module: Callable[[], Any]

    def load(self) -> Command:
        """The command, imported now."""
        return cast(Command, self.module())


COMMANDS = {
    "run": Entry("Run one algorithm.", lambda: import_module("adabest.cli.commands.run")),
    "compare": Entry(
        "Run several algorithms on the same clients, then write a table and a figure. What is there is resumed.",
        lambda: import_module("adabest.cli.commands.compare"),
    ),
    "sweep": Entry(
        "Run one algorithm with every combination of some values of its settings, ordered by validation score.",
        lambda: import_module("adabest.cli.commands.sweep"),
    ),
    "tune": Entry(
        "Choose hyper-parameters of one algorithm on the validation clients: by default of the paper's values.",
        lambda: import_module("adabest.cli.commands.tune"),
    ),
    "reproduce": Entry(
        "Make an experiment of the paper anew, and its table or figure. What is there is resumed.",
        lambda: import_module("adabest.cli.commands.reproduce"),
    ),
    "resume": Entry(
        "Continue a run, a comparison, a sweep or a tuning from its last checkpoint.",
        lambda: import_module("adabest.cli.commands.resume"),
    ),
    "list": Entry("List the runs below a folder.", lambda: import_module("adabest.cli.commands.list")),
    "show": Entry("Show a run's settings and results.", lambda: import_module("adabest.cli.commands.show")),
    "verify": Entry(
        "Say which files of runs and of results are whole, and what can still be done.",
        lambda: import_module("adabest.cli.commands.verify"),
    ),
    "check": Entry(
        "Say what is wrong with an algorithm, by runs of a small made-up federation.",
        lambda: import_module("adabest.cli.commands.check"),
    ),
    "report": Entry(
        "Write a page of runs: curves, table, partitions, settings, environment.",
        lambda: import_module("adabest.cli.commands.report"),
    ),
    "algorithms": Entry(
        "List the algorithms: what each adds to a local step, sends, keeps and needs.",
        lambda: import_module("adabest.cli.commands.algorithms"),
    ),
    "datasets": Entry(
        "List the data sets that have a name, and which of them are there.",
        lambda: import_module("adabest.cli.commands.datasets"),
    ),
    "export": Entry("Write a run's model to a file of its own.", lambda: import_module("adabest.cli.commands.export")),
    "new-flower-app": Entry(
        "Write a project for a real federation over Flower, to edit.",
        lambda: import_module("adabest.cli.commands.new_flower_app"),
    ),
    "partition": Entry(
        "Show how a data set is dealt to clients: statistics and a heat map.",
        lambda: import_module("adabest.cli.commands.partition"),
    ),
    "costs": Entry(
        "Show what a round computes, stores and sends: the paper's formulas, and ours.",
        lambda: import_module("adabest.cli.commands.costs"),
    ),
    "layers": Entry(
        "Show which layers of a model go which way on a GPU and on a CPU, and what would be faster.",
        lambda: import_module("adabest.cli.commands.layers"),
    ),
    "illustrate": Entry(
        "Draw how algorithms steer, from a run of two parameters.",
        lambda: import_module("adabest.cli.commands.illustrate"),
    ),
}
