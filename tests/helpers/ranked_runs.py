"""Runs for ranks: many of them in one job, since each of its processes takes seconds to start.

As a script, it is one process of a job: it makes all ``CASES`` below a folder, one after another.
"""

import functools
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from figures import catch_figures
from tiny_runs import stripes
from torch import Tensor

import adabest
from adabest.algorithms.base import ClientContext, Replies, ServerContext, Update
from adabest.algorithms.catalog import CORE
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.feddane import FedDane
from adabest.algorithms.feddyn import FedDyn
from adabest.cli.rank_command import answer_in_job
from adabest.data.dataset import Dataset
from adabest.registry import naming
from adabest.runs.job import current_job
from adabest.runs.rank_job import RankJob

DIGITS: dict[str, Any] = {
    "dataset": "digits",
    "model": "mlp,hidden=16",
    "clients": 12,
    "validation_clients": 2,
    "unbalance": 0.5,
    "participation": 0.5,
    "epochs": 1,
    "batch_size": 40,
    "rounds": 3,
    "evaluate_every": 2,
    "threads": 1,
}
STRIPES: dict[str, Any] = {
    "dataset": "stripes",
    "clients": 8,
    "participation": 0.6,
    "epochs": 1,
    "rounds": 4,
    "evaluate_every": 2,
    "threads": 1,
}

UNBALANCED = {**STRIPES, "unbalance": 0.7}

# More than all of the 8 training clients leave, so that two rounds have nobody; then some come back.
NOBODY = ["2:leave:0-7", "4:join:1-6"]

CASES: dict[str, dict[str, Any]] = {
    **{name: {**DIGITS, "algorithm": name} for name in CORE},
    "progressive": {**DIGITS, "algorithm": "scaffold,sample_mean=progressive"},
    "automatic": {**DIGITS, "algorithm": "adabest,beta=auto", "rounds": 4},
    "decaying": {**DIGITS, "algorithm": "adabest,beta_decay=0.5,patience=1", "rounds": 4},
    "reference": {**STRIPES, "algorithm": "feddyn", "engine": "reference"},
    "float64": {**STRIPES, "algorithm": "adabest", "precision": "float64"},
    "averaged": {**STRIPES, "algorithm": "adabest", "average_from": 0.5, "scored_clients": "all"},
    "dropout": {**STRIPES, "algorithm": "scaffold-m", "model": "tiny_runs:dropping"},
    "convolution": {**STRIPES, "algorithm": "adabest", "model": "tiny_runs:convolving", "server_rate": 0.7},
    "churn": {**STRIPES, "algorithm": "feddyn", "churn": 0.4, "rounds": 6},
    "nobody": {**STRIPES, "algorithm": "scaffold", "schedule": NOBODY, "rounds": 6},
    "one-client": {**STRIPES, "algorithm": "adabest", "participation": 0.125, "rounds": 5},
    "two-phases": {**STRIPES, "algorithm": "feddane"},
    "state-of-three-fields": {**STRIPES, "algorithm": "vrl-sgd"},
    "private-part": {**DIGITS, "algorithm": "fedper", "local_test": 0.25},
    "personal": {**DIGITS, "algorithm": "ditto", "local_test": 0.25, "reply_limit": "5x"},
    "unscored": {**STRIPES, "algorithm": "mifa"},
    "noisy": {**STRIPES, "algorithm": "relatives:NoisyFedAvg"},
    "difference": {**STRIPES, "algorithm": "ranked_runs:Difference"},
    "spoiled": {**UNBALANCED, "algorithm": "ranked_runs:Spoiled"},
    "spoiled-phase": {**UNBALANCED, "algorithm": "ranked_runs:SpoiledPhase"},
    "stopped": {**UNBALANCED, "algorithm": "ranked_runs:Spoiled", "bad_replies": "stop"},
    "limited": {**UNBALANCED, "algorithm": "scaffold", "reply_limit": "1.2x"},
    "confirmed": {**UNBALANCED, "algorithm": "scaffold", "reply_limit": "1.2x", "state_commit": "confirmed"},
    "diverged": {**STRIPES, "algorithm": "tiny_runs:Bomb"},
    "early": {**STRIPES, "algorithm": "fedavg", "stop_at": 0.2, "evaluate_every": 1},
}


@dataclass(frozen=True)
class Spoiled(FedAvg):
    """FedAvg whose clients with an even number of samples send a model that isn't finite, after the first round."""

    def client_finish(self, client: Any, message: Any, model: Tensor, context: ClientContext) -> tuple[Any, Any]:
        kept, reply = super().client_finish(client, message, model, context)
        return kept, reply._replace(model=_spoiled(reply.model, context)) if context.round > 1 else reply


@dataclass(frozen=True)
class SpoiledPhase(FedDane):
    """FedDane whose clients with an even number of samples send gradients that aren't finite, after the first round."""

    def client_finish(self, client: Any, message: Any, model: Tensor, context: ClientContext) -> tuple[Any, Any]:
        kept, reply = super().client_finish(client, message, model, context)
        if context.phase == 0 and context.round > 1:
            reply = reply._replace(gradient=_spoiled(reply.gradient, context))
        return kept, reply


def _spoiled(vector: Tensor, context: ClientContext) -> Tensor:
    return torch.where(context.samples % 2 == 0, torch.nan, vector)


@dataclass(frozen=True)
class Difference(FedAvg):
    """FedAvg whose clients send twice their models: the server halves them, and no field of a reply is a model."""

    def client_finish(self, client: Any, message: Any, model: Tensor, context: ClientContext) -> tuple[Any, Any]:
        kept, reply = super().client_finish(client, message, model, context)
        return kept, reply._replace(model=2 * reply.model)

    def client_model(self, message: Any, reply: Any, context: ServerContext) -> Tensor:
        model: Tensor = reply.model / 2
        return model

    def server_step(self, server: Any, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        aggregate = replies.mean("model", "samples") / 2
        return Update(server, aggregate, cloud=aggregate)


@dataclass(frozen=True)
class FailingElsewhere(FedAvg):
    """FedAvg with a bug that shows at ranks other than 0, in round 3."""

    def client_finish(self, client: Any, message: Any, model: Tensor, context: ClientContext) -> tuple[Any, Any]:
        if context.round == 3 and current_job() is None:
            raise ZeroDivisionError("a bug at another rank")
        return super().client_finish(client, message, model, context)


@dataclass(frozen=True)
class DyingOnce(FedDyn):
    """FedDyn that kills rank 1 in round 10, unless torchrun has started it again."""

    def client_finish(self, client: Any, message: Any, model: Tensor, context: ClientContext) -> tuple[Any, Any]:
        if context.round == 10 and os.environ.get("RANK") == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().client_finish(client, message, model, context)


class UndeclaredReply(NamedTuple):
    """θ_i and n_i, of which nothing is said."""

    model: Tensor
    samples: Tensor


@dataclass(frozen=True)
class Undeclared(FedAvg):
    """FedAvg whose replies are of an unknown form."""

    Reply = UndeclaredReply  # type: ignore[assignment]


def stripes_of_rank() -> Dataset:
    """A data set that isn't the same at all ranks."""
    data = stripes()
    return replace(data, y_train=(data.y_train + int(os.environ["RANK"])) % data.classes)


def make_cases(folder: Path, cases: Sequence[str]) -> int:
    """Makes runs, one after another."""
    with naming(trust=True):
        for name in cases:
            adabest.run(out=folder / name, show=False, **CASES[name])
        _note_shares(folder)
    return 0


def make_comparisons(folder: Path) -> int:
    """Makes comparisons of two and of three runs, and a sweep in which a run diverges."""
    with naming(trust=True), pytest.MonkeyPatch.context() as patch:
        catch_figures(patch)
        settings = {**STRIPES, "show": False}
        adabest.compare(algorithms=["adabest", "fedavg"], seeds=[3], out=folder / "two", **settings)
        adabest.compare(algorithms=["tiny_runs:Bomb", "adabest", "feddyn"], seeds=[0], out=folder / "three", **settings)
        vary: dict[str, list[Any]] = {"fuse": [2, 9], "learning_rate": [0.1, 0.2]}
        adabest.sweep(vary=vary, algorithm="tiny_runs:Bomb", seeds=[0], out=folder / "sweep", **settings)
        _note_shares(folder)
    return 0


def _note_shares(folder: Path) -> None:
    """Writes down which runs rank 0 still holds shares of."""
    job = current_job()
    if isinstance(job, RankJob):
        (folder / "shares.json").write_text(json.dumps(list(job.service.shares)))


MAKERS: dict[str, Callable[[Path], int]] = {
    "cases": functools.partial(make_cases, cases=list(CASES)),
    "comparisons": make_comparisons,
}

if __name__ == "__main__":
    sys.exit(answer_in_job(["run", "--trust"], lambda: MAKERS[sys.argv[1]](Path(sys.argv[2]))))
