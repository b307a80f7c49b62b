"""Federations in one process: nodes behind a network that is none, which may lose orders, answers and nodes."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import adabest
from adabest.flower.network import Failure
from adabest.flower.parcels import Parcel
from adabest.flower.project import NodeConfig, Project, no_test
from adabest.flower.project import simulated as project_of_simulation
from adabest.flower.rehearsal import NodesHere
from adabest.flower.server import make_run

DATA: dict[str, Any] = {
    "dataset": "digits",
    "clients": 10,
    "validation_clients": 0,
    "partition": "dirichlet",
    "alpha": 0.3,
    "unbalance": 0.5,
    "partition_seed": 7,
}
RUN: dict[str, Any] = {
    "participation": 0.5,
    "rounds": 4,
    "epochs": 1,
    "batch_size": 20,
    "model": "mlp,hidden=8",
    "evaluate_every": 2,
    "seed": 3,
    "partition_seed": 7,  # it draws what clients hold out
}

Harm = Callable[[str, str, Parcel, Callable[[Parcel], Parcel]], Parcel | Failure | None]
"""What becomes of an order, out of its kind, the node's name, the order, and the node: its answer, a failure, or
silence."""


def obeyed(kind: str, name: str, order: Parcel, node: Callable[[Parcel], Parcel]) -> Parcel:
    return node(order)


class Wires(NodesHere):
    """Nodes of this process behind a network that may harm what it carries.

    Attributes:
        run_config: The server's settings; nodes keep those that they were started with.
        harm: What becomes of orders.
        sent: The orders so far: kind, node, facts.
        bytes: The bytes of vectors sent to nodes, and back.
        addresses: The address of each node; None for one that is away.
    """

    def __init__(
        self, project: Project, run_config: Mapping[str, Any], nodes: Sequence[NodeConfig], harm: Harm = obeyed
    ) -> None:
        super().__init__(project, run_config, nodes)
        self.project, self.run_config, self.harm = project, run_config, harm
        self.sent: list[tuple[str, str, Mapping[str, Any]]] = []
        self.bytes = [0, 0]
        self.addresses: list[int | None] = [*range(len(nodes))]

    def present(self) -> list[int]:
        return [address for address in self.addresses if address is not None]

    def send(self, kind: str, parcels: Mapping[int, Parcel], seconds: float) -> dict[str, int]:
        places = {self.addresses.index(address): address for address in parcels}
        tickets = super().send(kind, {place: parcels[address] for place, address in places.items()}, seconds)
        return {ticket: places[place] for ticket, place in tickets.items()}

    def carry_out(self, kind: str, node_config: NodeConfig, parcel: Parcel) -> Parcel | Failure | None:
        name = f"node {node_config['partition-id']}"
        self.sent.append((kind, name, parcel.facts))
        self.bytes[0] += sum(vector.nbytes for vector in parcel.vectors)

        def answer(order: Parcel) -> Parcel:
            found = super(Wires, self).carry_out(kind, node_config, order)
            assert isinstance(found, Parcel)
            return found

        found = self.harm(kind, name, parcel, answer)
        if isinstance(found, Parcel):
            self.bytes[1] += sum(vector.nbytes for vector in found.vectors)
        return found


def project_on(data: Mapping[str, Any], *, tested: bool = True, **changes: Any) -> Project:
    """A project whose nodes share out the clients that a simulation with these settings would have."""
    return project_of_simulation(data, **({} if tested else {"test": no_test}), **changes)


def wires(
    folder: Path,
    settings: Mapping[str, Any],
    *,
    project: Project | None = None,
    nodes: int = 3,
    harm: Harm = obeyed,
    kind: type[Wires] = Wires,
) -> Wires:
    """A federation whose files lie in a folder, before its first round."""
    started_with: list[NodeConfig] = [
        {"partition-id": number, "num-partitions": nodes, "state-dir": str(folder / f"states-{number}")}
        for number in range(nodes)
    ]
    run_config = {**settings, "out": str(folder / "run"), "nodes": nodes, "deadline": 30.0}
    return kind(project or project_on(DATA), run_config, started_with, harm)


def federated(network: Wires, said: list[str] | None = None) -> adabest.Run:
    """The run of a federation, from its beginning or where it was broken off, to its end."""
    lines: list[str] = [] if said is None else said
    return adabest.load(make_run(network.project, network.run_config, network, lines.append))


def simulated(folder: Path, settings: Mapping[str, Any], data: Mapping[str, Any] = DATA) -> adabest.Run:
    """The same run in a simulation, by the reference engine."""
    given: dict[str, Any] = {**data, **settings, "engine": "reference"}
    return adabest.run(**given, out=folder / "simulated")


def models_of(run: adabest.Run) -> dict[str, dict[str, torch.Tensor]]:
    """The models that a run has written, by name; each as its parameters by name."""
    return {path.name: load_file(path) for path in sorted(run.folder.glob("*.safetensors"))}


def assert_equal_runs(found: adabest.Run, expected: adabest.Run) -> None:
    """Asserts that two runs have the same models and metrics, but for the norms of h_i, which stay at nodes."""
    models, wanted = models_of(found), models_of(expected)
    assert len(wanted) >= 2
    assert models.keys() == wanted.keys()
    for which, model in wanted.items():
        assert models[which].keys() == model.keys()
        assert all(torch.equal(models[which][name], value) for name, value in model.items()), which
    rows = [[{**row, "client_h_norm": None} for row in run.metrics] for run in (found, expected)]
    assert rows[0] == rows[1]
    assert found.rejections == expected.rejections == []


def make_normalised(input_shape: tuple[int, ...], classes: int) -> torch.nn.Module:
    """A small model with a layer of each kind that algorithms treat apart."""
    parts = [torch.nn.Flatten(), torch.nn.Linear(math.prod(input_shape), 8), torch.nn.LayerNorm(8), torch.nn.ReLU()]
    return torch.nn.Sequential(*parts, torch.nn.Linear(8, classes))
