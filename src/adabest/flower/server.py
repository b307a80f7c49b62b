"""The server of a federation: the ordinary loop over rounds, with clients that live at nodes."""

import contextlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from adabest.algorithms.base import Algorithm
from adabest.engine.client_side import ClientSide
from adabest.engine.interface import Engine
from adabest.engine.local_test import LocalTests
from adabest.engine.memory_tiers import Memory
from adabest.engine.simulation import Simulation
from adabest.errors import InputError
from adabest.federation.partition import Partition
from adabest.flower.network import Network, Roll, Say
from adabest.flower.node import digest_of_model
from adabest.flower.node_clients import NodeClients
from adabest.flower.node_engine import Heading, NodeEngine, NodeTests
from adabest.flower.parcels import refuse_undeclared
from adabest.flower.project import Plan, Project
from adabest.runs.build import BuiltParts, build_parts
from adabest.runs.execution import changed_settings, resume_run, start
from adabest.runs.files.folder import ENDED, RunFolder
from adabest.runs.files.manifest import find_standing, read_manifest
from adabest.runs.job import entered
from adabest.runs.settings.config import Config
from adabest.tasks.base import Heartbeat, Task, no_heartbeat


def make_run(project: Project, run_config: Mapping[str, Any], network: Network, say: Say) -> Path:
    """Makes a run in a federation, or goes on with one that was broken off.

    Args:
        project: The project.
        run_config: The settings of the run and the terms of the federation.
        network: Reaches the nodes.
        say: Tells the user something, in a line.

    Returns:
        The run's folder.

    Raises:
        InputError: If a setting can't be used, a node can't take part, or nothing tests the models.
        NodesLost: If no node has answered. The run goes on when it is made again.
    """
    plan = project.plan(run_config, tested=True)
    algorithm = plan.components.algorithm
    refuse_undeclared(algorithm)
    folder = RunFolder(Path(plan.terms.out))
    _refuse_ended(folder)
    roll = Roll(
        network,
        plan=plan.digest(),
        model=digest_of_model(build_parts(plan.config, plan.components)),
        deadline=plan.terms.deadline,
        say=say,
        heartbeat=no_heartbeat,
    )
    roll.enrol(plan.terms.nodes)
    job = FederationJob(roll, plan, folder)
    if not plan.has_test and job.partition().held_out is None:
        raise InputError(
            "nothing tests the models: give the Project a function `test`, set local-test = 0.2, or give clients x_test"
            " and y_test"
        )
    clients = sum(len(member.clients) for member in roll.members)
    plan = project.plan(run_config, clients=clients, tested=True)
    with entered(job):
        if folder.holds_run():
            _refuse_other_settings(folder, plan.config)
            say(f"goes on with the run in {folder.path}")
            resume_run(folder.path, vars(plan.components))
        else:
            start(plan.config, plan.components, folder.path)
    return folder.path


def _refuse_ended(folder: RunFolder) -> None:
    """Refuses a folder whose run has ended, before any node is waited for.

    Raises:
        InputError: With what would be right.
    """
    folder.settle()
    if folder.holds_run() and (status := find_standing(folder, read_manifest(folder)).status) in ENDED:
        raise InputError(f"{folder.path} holds a {status} run; set out to another folder, or move that one away")


def _refuse_other_settings(folder: RunFolder, config: Config) -> None:
    """Refuses to go on with a run that was begun with other settings.

    Raises:
        InputError: With the settings, and what would be right.
    """
    changed = changed_settings(folder, config)
    if "clients" in changed:
        raise InputError(
            f"{folder.path} holds a run that was broken off and had other clients than the {config.clients} of the "
            "nodes that are there; start all of its nodes, then flwr run again, or set out to another folder"
        )
    if changed:
        raise InputError(
            f"{folder.path} holds a run that was broken off and had other settings: {', '.join(changed)}; give it "
            "those to go on, or set out to another folder"
        )


class FederationJob:
    """The nodes of a federation, which have the clients of a run.

    Attributes:
        has_group: True: nodes are there as soon as the roll is.
        is_lasting: True: clients' states outlast this process.
        resumed_by: The command of Flower that begins runs; it goes on with them, too.
    """

    has_group = True
    is_lasting = True
    resumed_by = "flwr run, as it was begun"

    def __init__(self, roll: Roll, plan: Plan, folder: RunFolder) -> None:
        """Makes the job of one run.

        Args:
            roll: The nodes.
            plan: The settings.
            folder: The run's folder.
        """
        self._roll, self._heading = roll, Heading(plan.digest(), folder)
        self._has_test = plan.has_test
        self._mean_steps = plan.config.local_steps == "mean"
        self._clients: NodeClients
        self._engine: NodeEngine

    def group(self, config: Config, threads: int) -> AbstractContextManager[None]:
        """Nothing: the nodes are there."""
        return contextlib.nullcontext()

    def partition(self) -> Partition:
        """Who has how many samples."""
        members = self._roll.members
        everyone = max(member.clients[-1] for member in members) + 1
        trained, held_out = np.zeros(everyone, dtype=np.int64), np.zeros(everyone, dtype=np.int64)
        for member in members:
            chosen = list(member.clients)
            trained[chosen], held_out[chosen] = member.samples, member.held_out
        clients = np.flatnonzero(trained)

        def of(counts: np.ndarray, held: Partition | None = None) -> Partition:
            offsets = np.concatenate([[0], np.cumsum(counts)])
            nowhere = np.broadcast_to(np.int64(0), int(offsets[-1]))  # the samples themselves are at nodes
            return Partition(nowhere, offsets, clients, clients[:0], np.zeros((everyone, 0), dtype=np.int64), held)

        return of(trained, of(held_out) if held_out.any() else None)

    def share_out(self, config: Config, built: BuiltParts) -> Callable[[Algorithm, Task, Tensor, Memory], ClientSide]:
        """What makes the client side of the run."""

        def make(algorithm: Algorithm, task: Task, initial: Tensor, memory: Memory) -> NodeClients:
            confirmed = config.state_commit == "confirmed"
            self._clients = NodeClients(algorithm, task, initial, memory, confirmed=confirmed)
            return self._clients

        return make

    def engine(self, inner: Callable[[Heartbeat], Engine], heartbeat: Heartbeat) -> NodeEngine:
        """The engine of the run."""
        self._roll.heartbeat = heartbeat
        self._engine = NodeEngine(self._roll, self._heading, tests_here=self._has_test, mean_steps=self._mean_steps)
        return self._engine

    def local_tests(self, built: BuiltParts, simulation: Simulation, score: str) -> LocalTests | None:
        """What judges models client by client, at the nodes; None where clients hold nothing out."""
        if built.partition.held_out is None:
            return None
        tests = self._engine.tests = NodeTests(
            self._roll,
            self._heading,
            clients=self._clients,
            simulation=simulation,
            algorithm=built.parts.algorithm,
            task=built.task,
            score=score,
        )
        return LocalTests(built.task.metrics, tests.held_out, tests.by_client)
