"""Rehearsals: a federation in one process, without Flower, to try a project before it goes on a network."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from adabest.flower.network import Failure, Say
from adabest.flower.node import Node
from adabest.flower.orders import parsed, written
from adabest.flower.parcels import Parcel
from adabest.flower.project import NodeConfig, Project
from adabest.flower.server import make_run


def rehearse(
    project: Project, settings: Mapping[str, Any], nodes: Sequence[NodeConfig], *, out: str | Path, say: Say = print
) -> Path:
    """Makes a run of a project with all its nodes in this process.

    Parcels are those that Flower would carry, and every order is carried out by a new node, so that what a node knows
    between two of them lies in its files. The numbers are those of the federation.

    Args:
        project: The project.
        settings: Settings, as in the project's ``pyproject.toml``; ``nodes`` and ``out`` don't count.
        nodes: What each node is started with, as in ``--node-config``.
        out: The run's folder. The states of clients lie beside it, unless a node has a ``state-dir``.
        say: Tells of nodes, in a line.

    Returns:
        The run's folder.

    Raises:
        InputError: If a setting can't be used, a node can't take part, or nothing tests the models.
    """
    beside = Path(out).with_name(f"{Path(out).name}-states")
    started_with = [{"state-dir": str(beside / str(number)), **one} for number, one in enumerate(nodes)]
    run_config = {**settings, "nodes": len(nodes), "out": str(out)}
    return make_run(project, run_config, NodesHere(project, run_config, started_with), say)


class NodesHere:
    """Nodes of this process, which carry out each order as soon as it is sent.

    Attributes:
        pause: Seconds between two looks for answers.
    """

    pause = 0.0

    def __init__(self, project: Project, run_config: Mapping[str, Any], nodes: Sequence[NodeConfig]) -> None:
        """Sets nodes up.

        Args:
            project: The project.
            run_config: Its settings.
            nodes: What each node is started with.
        """
        self._project, self._run_config, self._nodes = project, run_config, nodes
        self._answers: dict[str, Parcel | Failure] = {}
        self._sent = 0

    def present(self) -> list[int]:
        """The numbers of the nodes."""
        return list(range(len(self._nodes)))

    def send(self, kind: str, parcels: Mapping[int, Parcel], seconds: float) -> dict[str, int]:
        """Has nodes carry out orders, one after another."""
        tickets = {}
        for address, parcel in parcels.items():
            self._sent += 1
            ticket = str(self._sent)
            answer = self.carry_out(kind, self._nodes[address], parcel)
            if answer is not None:
                self._answers[ticket] = answer
            tickets[ticket] = address
        return tickets

    def carry_out(self, kind: str, node_config: NodeConfig, parcel: Parcel) -> Parcel | Failure | None:
        """What comes back for an order; None for silence."""
        node = Node(self._project, self._run_config, node_config)
        return as_arrived(node.answer(kind, as_arrived(parcel)))

    def collect(self, tickets: Collection[str]) -> dict[str, Parcel | Failure]:
        """The answers of nodes."""
        return {ticket: self._answers.pop(ticket) for ticket in list(tickets) if ticket in self._answers}


def as_arrived(parcel: Parcel) -> Parcel:
    """A parcel as it arrives: its facts were JSON on the way."""
    return Parcel(parsed("a parcel", written(parcel.facts)), list(parcel.vectors), dict(parcel.numbers))
