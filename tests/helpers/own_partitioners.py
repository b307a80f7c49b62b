"""Partitioners of a user's own: right ones, and one for each mistake."""

import itertools
import random
from typing import Any

import numpy as np
import torch

from adabest.federation.partitioners import Deal

_CALLS = itertools.count()


def by_turns(deal: Deal) -> list[list[int]]:
    return [list(range(client, len(deal.labels), len(deal.sizes))) for client in range(len(deal.sizes))]


def backwards(deal: Deal) -> np.ndarray:
    return np.arange(len(deal.labels))[::-1][: deal.sizes.sum()]


def drawn(deal: Deal) -> list[np.ndarray]:
    return np.array_split(deal.generator().permutation(len(deal.labels)), len(deal.sizes))


def nothing(deal: Deal) -> Any:
    return None


def of_texts(deal: Deal) -> Any:
    return [["a"] for _ in deal.sizes]


def of_fractions(deal: Deal) -> Any:
    return backwards(deal) / 2


def too_short(deal: Deal) -> Any:
    return backwards(deal)[:-1]


def one_client_less(deal: Deal) -> Any:
    return by_turns(deal)[:-1]


def an_empty_client(deal: Deal) -> Any:
    return [[], [], *by_turns(deal)[2:]]


def beyond_the_end(deal: Deal) -> Any:
    return [[len(deal.labels)], *by_turns(deal)[1:]]


def below_zero(deal: Deal) -> Any:
    return backwards(deal) - len(deal.labels)


def to_two_clients(deal: Deal) -> Any:
    dealt = by_turns(deal)
    return [dealt[0] + dealt[1][:1], *dealt[1:]]


def twice_to_one(deal: Deal) -> Any:
    return [[7, 7], *by_turns(deal)[1:]]


def by_numpy(deal: Deal) -> Any:
    return np.random.permutation(len(deal.labels))[: deal.sizes.sum()]


def by_torch(deal: Deal) -> Any:
    return torch.randperm(len(deal.labels))[: deal.sizes.sum()].numpy()


def by_python(deal: Deal) -> Any:
    return random.sample(range(len(deal.labels)), int(deal.sizes.sum()))


def another_each_time(deal: Deal) -> Any:
    return np.roll(backwards(deal), next(_CALLS))


def changing_labels(deal: Deal) -> Any:
    deal.labels[0] = 3
    return backwards(deal)
