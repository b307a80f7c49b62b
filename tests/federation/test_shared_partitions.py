"""Runs on the same clients share one partition, which may take seconds to draw; no other run is given it."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny_runs import stripes

from adabest.data.dataset import Dataset
from adabest.federation.partition import Partition
from adabest.runs import build
from adabest.runs.build import cut_partition
from adabest.runs.settings.resolution import resolve

SETTINGS: dict[str, Any] = {"clients": 5, "validation_clients": 1, "partition": "dirichlet", "alpha": 0.3, "seed": 0}


def partition(dataset: Dataset | None = None, **changes: Any) -> Partition:
    return cut_partition(*resolve({"dataset": dataset or stripes(), **SETTINGS, **changes}))


def test_runs_of_the_same_clients_share_a_partition() -> None:
    first = partition(algorithm="fedavg")
    assert partition(algorithm="adabest", rounds=7) is first
    inputs = torch.zeros_like(torch.as_tensor(stripes().x_train))
    assert partition(replace(stripes(), x_train=inputs)) is first  # who has what is up to labels


@pytest.mark.parametrize(
    "change",
    [{"partition_seed": 1}, {"alpha": 0.1}, {"clients": 6}, {"validation_clients": 2}, {"partition": "iid"}],
    ids=lambda change: next(iter(change)),
)
def test_runs_of_other_clients_share_none(change: dict[str, Any]) -> None:
    first = partition()
    other = partition(**change)
    assert other is not first
    assert other.fingerprint != first.fingerprint


def test_runs_of_other_labels_share_none() -> None:
    first = partition()
    other = partition(replace(stripes(), y_train=torch.roll(stripes().y_train, 1)))
    assert other is not first


def test_partitions_that_nobody_uses_are_not_kept() -> None:
    kept = partition(partition_seed=12345)
    before = len(build._PARTITIONS)
    del kept
    assert len(build._PARTITIONS) < before
