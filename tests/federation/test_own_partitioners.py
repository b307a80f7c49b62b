"""A partitioner of a user's own is called with care, and told what it did wrong."""

import numpy as np
import pytest

from adabest.errors import InputError
from adabest.federation.partition import Partition, Scheme, cut

LABELS = np.arange(50) % 10


@pytest.fixture(autouse=True)
def _trusting(trusting: None) -> None:
    """All names may be imported."""


def cut_by(name: str, unbalance: float = 0.0) -> Partition:
    scheme = Scheme(3, 1, f"own_partitioners:{name}", alpha=0.3, unbalance=unbalance, seed=0)
    return cut(LABELS, 10, scheme)


def test_lists_of_clients_may_have_any_sizes() -> None:
    partition = cut_by("by_turns")
    assert partition.samples.tolist() == [13, 13, 12, 12]
    assert partition.of(1).tolist() == list(range(1, 50, 4))


def test_one_array_fills_the_sizes() -> None:
    partition = cut_by("backwards")
    assert partition.samples.tolist() == [12, 12, 12, 12]
    assert partition.of(0).tolist() == list(range(49, 37, -1))
    assert len(set(cut_by("backwards", unbalance=0.5).samples.tolist())) > 1


def test_the_generator_of_a_deal_is_repeatable() -> None:
    assert cut_by("drawn").fingerprint == cut_by("drawn").fingerprint
    assert sorted(cut_by("drawn").indices.tolist()) == list(range(50))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "gave a NoneType for all clients, not a list of whole numbers"),
        ("of_texts", "for client 0, not a list of whole numbers"),
        ("of_fractions", r"gave float64 of shape \(48,\) for all clients"),
        ("too_short", "gave an array of 47 sample indices, but deal.sizes has 48 places for 4 clients"),
        ("one_client_less", "gave lists for 3 clients, but there are 4, those to validate with among them"),
        ("an_empty_client", "gave client 0 no sample, nor 1 others; each needs at least one"),
        ("beyond_the_end", "gave client 0 the sample index 50, but there are samples from 0 to 49"),
        ("below_zero", "the sample index -1, but there are samples from 0 to 49"),
        ("to_two_clients", "gave the sample 1 to client 0 and to client 1; a sample has one place"),
        ("twice_to_one", "gave the sample 7 twice to client 0"),
        ("by_numpy", "draws from a global random generator"),
        ("by_torch", "draws from a global random generator"),
        ("by_python", "draws from a global random generator"),
        ("another_each_time", "gave another partition when it was called a second time"),
        ("changing_labels", "raised ValueError"),
    ],
)
def test_a_mistake_is_told_with_the_name_and_what_would_be_right(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as told:
        cut_by(name)
    assert f"partition 'own_partitioners:{name}'" in str(told.value)
    assert LABELS[0] == 0
