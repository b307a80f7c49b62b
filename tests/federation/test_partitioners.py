"""McMahan's shards, and data sets that come split by client."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_runs import run, stripes

import adabest
from adabest.data.dataset import Dataset, from_arrays
from adabest.errors import InputError
from adabest.federation.partition import Partition, Scheme, cut


def scheme(partitioner: str, clients: int, validation: int = 0, **changes: Any) -> Scheme:
    return Scheme(clients, validation, partitioner, **{"alpha": 1.0, "unbalance": 0.0, "seed": 0, **changes})


class TestShards:
    @pytest.mark.parametrize("count", [1, 2, 5])
    def test_a_client_gets_runs_of_the_sorted_samples(self, count: int) -> None:
        """600 samples of 10 classes, 60 each; 20 clients of 30: a run of 30, 15 or 6 lies within one class."""
        labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 60))
        partition = cut(labels, 10, scheme("shards", 20, shards=count))
        for client in range(20):
            own = labels[partition.of(client)].reshape(count, -1)
            assert (own == own[:, :1]).all()
        classes = (partition.label_counts > 0).sum(axis=1)
        assert classes.max() <= count
        assert classes.mean() > 1 or count == 1

    def test_every_sample_is_used_where_the_sizes_use_all(self) -> None:
        partition = cut(np.arange(600) % 7, 7, scheme("shards", 20, shards=3))
        assert sorted(partition.indices.tolist()) == list(range(600))

    def test_samples_left_over_come_from_all_classes(self) -> None:
        """605 samples over 20 clients leave 5, which must not always be the last class's."""
        labels = np.sort(np.arange(605) % 10)
        left = [
            int(labels[np.setdiff1d(np.arange(605), cut(labels, 10, scheme("shards", 20, seed=seed)).indices)].min())
            for seed in range(8)
        ]
        assert min(left) < 5

    @given(
        sizes=st.integers(1, 12), unbalance=st.floats(0.0, 0.4), shards=st.integers(1, 9), seed=st.integers(0, 2**62)
    )
    def test_sizes_are_honoured_whatever_they_are(self, sizes: int, unbalance: float, shards: int, seed: int) -> None:
        labels = np.arange(240) % 6
        partition = cut(labels, 6, scheme("shards", sizes, shards=shards, unbalance=unbalance, seed=seed))
        equal = cut(labels, 6, scheme("iid", sizes, unbalance=unbalance, seed=seed))
        assert partition.samples.tolist() == equal.samples.tolist()
        assert len(set(partition.indices.tolist())) == partition.samples.sum()

    def test_shards_are_shuffled(self) -> None:
        labels = np.sort(np.arange(600) % 10)
        main_class = [
            cut(labels, 10, scheme("shards", 20, seed=s)).label_counts.argmax(axis=1).tolist() for s in (0, 1)
        ]
        assert main_class[0] != main_class[1]
        assert main_class[0] != sorted(main_class[0])

    def test_shards_of_nothing_are_refused(self) -> None:
        with pytest.raises(InputError, match="shards = 0: a client gets at least one"):
            cut(np.arange(20) % 2, 2, scheme("shards", 2, shards=0))


def split_by_client(samples: int = 200, clients: int = 13) -> tuple[Dataset, np.ndarray]:
    """A data set whose samples belong to clients of very different sizes, named by texts."""
    generator = np.random.default_rng(1)
    owner = np.sort(generator.integers(clients, size=samples) * generator.integers(0, 2, size=samples))
    owner = generator.permutation(np.concatenate([owner, np.arange(clients)]))
    x = generator.normal(size=(len(owner), 5)).astype(np.float32)
    y = np.arange(len(owner)) % 3
    names = np.array([f"writer-{number:02d}" for number in owner])
    return from_arrays(x, y, x[:30], y[:30], clients=names, name="letters"), owner


class TestNatural:
    @pytest.fixture
    def partition(self) -> Partition:
        dataset, _ = split_by_client()
        assert dataset.clients is not None
        return cut(dataset.y_train.numpy(), 3, scheme("natural", 11, 2), dataset.clients.numpy())

    def test_every_client_has_its_own_samples(self, partition: Partition) -> None:
        _, owner = split_by_client()
        assert len(partition.samples) == 13
        for client in range(13):
            assert partition.of(client).tolist() == np.flatnonzero(owner == client).tolist()
        assert len(partition.training) == 11
        assert sorted([*partition.training, *partition.validation]) == list(range(13))

    def test_of_more_clients_than_wanted_some_are_drawn(self) -> None:
        dataset, owner = split_by_client()
        assert dataset.clients is not None
        drawn = set()
        for seed in range(6):
            some = cut(dataset.y_train.numpy(), 3, scheme("natural", 4, 1, seed=seed), dataset.clients.numpy())
            owners = [set(owner[some.of(client)].tolist()) for client in range(5)]
            assert all(len(who) == 1 for who in owners)
            chosen = [who.pop() for who in owners]
            assert chosen == sorted(set(chosen))
            assert some.samples.tolist() == [int((owner == who).sum()) for who in chosen]
            drawn.add(tuple(chosen))
        assert len(drawn) > 3

    def test_natural_is_the_default_for_data_with_clients(self, tmp_path: Path) -> None:
        dataset, owner = split_by_client()
        settings: dict[str, Any] = {"dataset": dataset, "epochs": 1, "rounds": 2, "participation": 0.3, "show": False}
        finished = adabest.run(out=tmp_path / "run", **settings)
        assert (finished.config.partition, finished.config.clients) == ("natural", 11)
        assert finished.config.validation_clients == 2
        assert finished.identity["partition"]["samples_used"] == len(owner)
        fewer = adabest.run(out=tmp_path / "fewer", clients=5, validation_clients=0, **settings)
        assert fewer.identity["partition"]["training_clients"] == 5
        held_out = adabest.run(out=tmp_path / "held", validation_clients=4, **settings)
        assert held_out.config.clients == 9
        other = adabest.run(out=tmp_path / "other", partition="iid", clients=5, **settings)
        assert (other.config.partition, other.config.clients) == ("iid", 5)

    def test_other_data_have_other_defaults(self, tmp_path: Path) -> None:
        finished = adabest.run(out=tmp_path / "run", dataset=stripes(), epochs=1, rounds=1, show=False)
        assert (finished.config.partition, finished.config.clients) == ("dirichlet", 100)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"clients": 12, "validation_clients": 2}, "14 clients .* are more than the 13 that the data set has"),
            ({"unbalance": 0.3}, "with partition 'natural' the data set decides the sizes"),
            ({"validation_clients": 13}, "clients = 0: at least one client must train"),
        ],
    )
    def test_settings_that_do_not_fit_are_refused(self, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=message):
            adabest.run(out=tmp_path / "run", dataset=split_by_client()[0], show=False, **changes)

    def test_data_that_are_not_split_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="partition 'natural' is for data sets that come split by client"):
            run(tmp_path / "run", partition="natural")

    def test_files_of_arrays_may_name_clients(self, tmp_path: Path) -> None:
        dataset, owner = split_by_client()
        arrays = {name: getattr(dataset, name).numpy() for name in ("x_train", "y_train", "x_test", "y_test")}
        np.savez(tmp_path / "letters.npz", **arrays, clients=owner)
        loaded = adabest.run(dataset=str(tmp_path / "letters.npz"), rounds=1, out=tmp_path / "run", show=False)
        assert loaded.config.partition == "natural"

    @pytest.mark.parametrize(
        ("clients", "message"),
        [
            (np.zeros(3, dtype=np.int64), "should be one int64 for each of the 30 training samples"),
            (np.zeros((30, 1), dtype=np.int64), "clients should be one number or text a sample"),
            (np.zeros(30), "clients should be one number or text a sample, not float64"),
        ],
    )
    def test_bad_clients_are_refused(self, clients: np.ndarray, message: str) -> None:
        x, y = np.zeros((30, 2), dtype=np.float32), np.arange(30) % 2
        with pytest.raises(InputError, match=message):
            from_arrays(x, y, x, y, clients=clients)

    def test_clients_with_gaps_are_refused(self) -> None:
        x, y = torch.zeros(4, 2), torch.tensor([0, 1, 0, 1])
        with pytest.raises(InputError, match="count from 0 without gaps"):
            Dataset("gaps", x, y, x, y, 2, clients=torch.tensor([0, 2, 2, 3]))

    def test_the_fingerprint_sees_clients(self) -> None:
        x, y = torch.zeros(4, 2), torch.tensor([0, 1, 0, 1])
        owners = (None, torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1]))
        assert len({Dataset("d", x, y, x, y, 2, clients=owner).fingerprint() for owner in owners}) == 3
