"""Flower: its simulation on Ray, one client a core at a time, federated evaluation off.

Flower's server runs the rounds itself, so it is stopped before each until the parent has asked for one.
"""

import argparse
import os
import queue
import sys
import threading
import traceback
from collections.abc import Iterable
from typing import Any

import flwr
import ray
from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from benchmarks.arms import torch_model
from benchmarks.arms.flower_client import client_app
from benchmarks.arms.worker import serve
from benchmarks.tasks import TASKS

_CORES = len(os.sched_getaffinity(0))


class Rounds:
    """Lets Flower's server go on for one round at a time.

    Attributes:
        cohort: How many clients take part in a round that counts.
        clients: How many take part in the next.
    """

    def __init__(self, cohort: int) -> None:
        self.cohort = self.clients = cohort
        self._asked: queue.Queue[None] = queue.Queue()
        self._done: queue.Queue[Exception | None] = queue.Queue()

    def make_one(self, clients: int) -> None:
        """Asks for a round and waits for its end."""
        self.clients = clients
        self._asked.put(None)
        problem = self._done.get()
        if problem is not None:
            raise problem

    def wait(self) -> None:
        """Waits until a round is asked for."""
        self._asked.get()

    def end(self, problem: Exception | None = None) -> None:
        """Says that a round has ended, or that there will be no more."""
        self._done.put(problem)


class Averaging(FedAvg):  # type: ignore[misc]
    """Flower's federated averaging, stopped between rounds."""

    def __init__(self, rounds: Rounds, **options: Any) -> None:
        super().__init__(**options)
        self._rounds = rounds

    def configure_train(self, *round_of: Any) -> Iterable[Message]:
        """Waits, then does as ever."""
        self._rounds.wait()
        self.min_train_nodes = self._rounds.clients
        messages: Iterable[Message] = super().configure_train(*round_of)
        return messages

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        """Does as ever, then tells."""
        replies = list(replies)
        failed = [reply for reply in replies if reply.has_error()]
        mean = super().aggregate_train(server_round, replies)
        self._rounds.end(RuntimeError(failed[0].error.reason) if failed else None)
        return mean


def prepare(arguments: argparse.Namespace) -> Rounds:
    """Starts a simulation that waits for its first round."""
    os.environ |= {"PYTHONPATH": os.getcwd(), "FLWR_TELEMETRY_ENABLED": "0"}  # for the clients' processes
    task = TASKS[arguments.task].with_cohort(arguments.clients)
    rounds = Rounds(task.cohort)
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = Averaging(rounds, fraction_train=1e-9, fraction_evaluate=0.0, min_available_nodes=task.population)
        strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(torch_model.build(task).state_dict()),
            num_rounds=10**6,
            train_config=ConfigRecord({"task": arguments.task, "clients": arguments.clients}),
        )

    def simulate() -> None:
        try:
            flwr.simulation.run_simulation(
                server_app=server,
                client_app=client_app(),
                num_supernodes=task.population,
                backend_config={
                    "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
                    "init_args": {"num_cpus": _CORES, "include_dashboard": False},
                },
            )
        except Exception as problem:
            rounds.end(problem)

    threading.Thread(target=simulate, daemon=True).start()
    return rounds


def train(rounds: Rounds, round_number: int) -> None:
    """One round; Flower draws its clients itself."""
    rounds.make_one(rounds.cohort)


def warm_up(rounds: Rounds) -> None:
    """One client for each process."""
    rounds.make_one(_CORES)


if __name__ == "__main__":
    try:
        serve(prepare, train, warm_up=warm_up, packages=("flwr", "ray", "torch", "numpy"))
    except Exception:
        traceback.print_exc()
    finally:
        ray.shutdown()
        sys.stderr.flush()
        os._exit(0)  # Flower's threads would wait for ever, for rounds that nobody will ask for
