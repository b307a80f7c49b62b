"""Partitions of a data set: the samples of each client, and which clients train and which validate."""

import dataclasses
import functools
import hashlib
import math
import random as python_random
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from adabest import random
from adabest.errors import InputError, nearest
from adabest.federation.partitioners import NATURAL_CLIENTS, PARTITIONERS, SIZES, Deal
from adabest.machine import refuse_beyond_memory
from adabest.random import Purpose
from adabest.registry import blaming

NATURAL = "natural"
_NUMBER = 8  # bytes
_CHUNK = 1 << 20  # numbers that are digested at a time
_BY_CLASS = 3  # tables of [clients, classes] in memory at a time: priors, counts, and a temporary one
_BY_SAMPLE = 8  # arrays of one number per sample in memory at a time: labels, orders, draws, places


@dataclass(frozen=True)
class Scheme:
    """The settings by which a training set is cut into clients.

    Attributes:
        clients: How many clients train.
        validation_clients: How many clients are held out for validation, on top.
        partitioner: The name of the partitioner.
        alpha: Concentration of the Dirichlet priors.
        unbalance: σ of the lognormal sizes; 0 for equal ones.
        seed: The partition's seed.
        shards: How many shards a client gets, for the partitioner ``shards``.
        local_test: The share of each training client's samples that it doesn't train on, and is tested with.
    """

    clients: int
    validation_clients: int
    partitioner: str
    alpha: float
    unbalance: float
    seed: int
    shards: int = 2
    local_test: float = 0.0


@dataclass(frozen=True, repr=False)
class Partition:
    """A partition: the samples of each client, and which clients train.

    Attributes:
        indices: Sample indices of all clients, those of client 0 first.
        offsets: The position in ``indices`` at which each client's samples start, and the end.
        training: The training clients, ascending.
        validation: The validation clients, ascending.
        label_counts: ``[clients, classes]``, how many samples of each class each client has; ``[clients, 0]`` if nobody
            here knows.
        held_out: The samples that training clients have beside those, to be tested with; None if there are none.
    """

    indices: np.ndarray
    offsets: np.ndarray
    training: np.ndarray
    validation: np.ndarray
    label_counts: np.ndarray
    held_out: "Partition | None" = None

    def __repr__(self) -> str:
        clients = f"{len(self.training)} training and {len(self.validation)} validation clients"
        return f"{type(self).__name__}({clients}, {len(self.indices)} samples)"

    @property
    def samples(self) -> np.ndarray:
        """n_i of every client."""
        return np.diff(self.offsets)

    @property
    def training_samples(self) -> np.ndarray:
        """n_i of the training clients."""
        counts: np.ndarray = self.samples[self.training]
        return counts

    def of(self, client: int) -> np.ndarray:
        """The sample indices of one client."""
        return self.indices[self.offsets[client] : self.offsets[client + 1]]

    def spans(self, clients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the samples of some clients start in ``indices``, and how many they are."""
        starts = self.offsets[clients]
        return starts, self.offsets[clients + 1] - starts

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of the samples of each client and of the roles."""
        digest = hashlib.sha256()
        for array in (self.indices, self.offsets, self.training, self.validation):
            for start in range(0, len(array), _CHUNK):  # the server of a federation has indices that take no memory
                digest.update(np.ascontiguousarray(array[start : start + _CHUNK], dtype="<i8").tobytes())
            digest.update(b"|")
        if self.held_out is not None:
            digest.update(self.held_out.fingerprint.encode())
        return digest.hexdigest()

    @property
    def knows_labels(self) -> bool:
        """Whether the clients' labels are known and of several classes: else they have no skew."""
        return int(self.label_counts.shape[1]) > 1

    @property
    def _counts_of_clients(self) -> np.ndarray:
        """The label counts of clients that have samples; at a node of a federation, other numbers have none."""
        counts: np.ndarray = self.label_counts[self.samples > 0]
        return counts

    @functools.cached_property
    def label_entropy(self) -> float:
        """The mean over clients of the entropy of their labels, in nats: 0 for one class each, ln(classes) if even."""
        counts = self._counts_of_clients
        share = counts / counts.sum(axis=1, keepdims=True)
        return float(-(share * np.log(np.where(share > 0, share, 1.0))).sum(axis=1).mean()) + 0.0  # makes 0 of -0

    @functools.cached_property
    def total_variation(self) -> float:
        """The mean over clients of the total variation between their labels' distribution and that of all clients."""
        counts = self._counts_of_clients
        share = counts / counts.sum(axis=1, keepdims=True)
        overall = counts.sum(axis=0) / counts.sum()
        return float(0.5 * np.abs(share - overall).sum(axis=1).mean())


def cut(labels: np.ndarray, classes: int, scheme: Scheme, owners: np.ndarray | None = None) -> Partition:
    """Cuts a training set into clients.

    Args:
        labels: The label of every training sample.
        classes: How many classes there are.
        scheme: The settings.
        owners: The client of every training sample, from 0 without gaps, if the data set comes split by client.

    Raises:
        InputError: If there are more clients than samples, a client would be empty, or a number is out of range.
    """
    check_scheme(scheme)
    total = scheme.clients + scheme.validation_clients
    _refuse_too_large(len(labels), classes, total, scheme)
    if scheme.partitioner == NATURAL:
        indices, sizes = _natural(owners, total, scheme)
    else:
        sizes = _sizes(len(labels), total, scheme)
        deal = Deal(labels, classes, sizes, scheme.alpha, scheme.seed, scheme.shards)
        indices, sizes = _dealt(deal, scheme.partitioner)
    owner = np.repeat(np.arange(total), sizes)
    roles = random.order(random.bits(scheme.seed, Purpose.ROLES, np.arange(total)))
    training, validation = np.sort(roles[: scheme.clients]), np.sort(roles[scheme.clients :])

    def of(kept: np.ndarray, owner: np.ndarray, held_out: Partition | None = None) -> Partition:
        counts = np.bincount(owner * classes + labels[kept], minlength=total * classes).reshape(total, classes)
        offsets = np.concatenate([[0], np.cumsum(counts.sum(axis=1))])
        return Partition(kept, offsets, training, validation, counts, held_out)

    if scheme.local_test == 0:
        return of(indices, owner)
    if int(sizes[training].max()) < 2:
        raise InputError(
            f"local_test = {scheme.local_test:g}: every training client has a single sample, so none can hold one out; "
            "take fewer clients, or leave local_test out"
        )
    is_held = held_out_samples(owner, sizes, training, scheme.local_test, scheme.seed)
    return of(indices[~is_held], owner[~is_held], of(indices[is_held], owner[is_held]))


def held_out_samples(owner: np.ndarray, sizes: np.ndarray, training: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Which samples aren't trained on: a share of each training client's, drawn by client and place.

    A client keeps at least one sample to train on, and holds at least one out, unless that is all it has.

    Args:
        owner: The client of every sample, ascending.
        sizes: How many samples every client has.
        training: The clients that hold samples out.
        share: Which share.
        seed: The partition's seed.
    """
    wanted = np.zeros_like(sizes)
    wanted[training] = np.clip(np.round(share * sizes[training]), 1, sizes[training] - 1).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    places = np.arange(len(owner)) - starts[owner]
    keys = random.bits(seed, Purpose.LOCAL_TEST, owner, places)
    order = np.lexsort((keys, owner))
    is_held = np.empty(len(owner), dtype=bool)
    is_held[order] = places < wanted[owner]
    return is_held


def _refuse_too_large(samples: int, classes: int, clients: int, scheme: Scheme) -> None:
    if clients > samples:
        return  # ``_sizes`` or ``_natural`` refuse that with a better message, before they allocate
    parts = {
        f"{clients:,} clients × {classes:,} classes": _BY_CLASS * _NUMBER * clients * classes,
        f"{samples:,} samples": _BY_SAMPLE * _NUMBER * samples,
    }
    if scheme.partitioner == "shards":
        parts[f"{clients:,} clients × {scheme.shards:,} shards"] = _BY_CLASS * _NUMBER * clients * scheme.shards
    refuse_beyond_memory("the partition", parts, "take fewer clients or shards, or data with fewer classes")


_RIGHT = (
    "a partitioner takes a Deal and returns one list of sample indices for each client, or one array of a sample index "
    "for every place of every client"
)


def _dealt(deal: Deal, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The sample indices that a partitioner returns and how many of them each client has.

    Built-in ones are tested to keep their promises. The result of a user's own is checked.

    Raises:
        InputError: If a sample or a client is wrong, a second call gives another partition, or the partitioner raised
            an exception.
    """
    partitioner = PARTITIONERS.find(name)
    if name in PARTITIONERS.builtin:
        return np.asarray(partitioner(deal)).astype(np.int64, copy=False), deal.sizes
    labels, sizes = deal.labels.view(), deal.sizes.copy()
    labels.flags.writeable = False  # they are the data set's own
    guarded = dataclasses.replace(deal, labels=labels, sizes=sizes)
    before = _global_generators()
    with blaming("partition", name):
        first = partitioner(guarded)
    if _global_generators() != before:
        raise InputError(
            f"partition {name!r} draws from a global random generator, so a run could not be repeated; draw from "
            "deal.generator(), which the partition's seed determines"
        )
    with blaming("partition", name):
        second = partitioner(guarded)
    found = [_checked(deal, name, one) for one in (first, second)]
    if not all(np.array_equal(one, other) for one, other in zip(*found, strict=True)):
        raise InputError(
            f"partition {name!r} gave another partition when it was called a second time with the same Deal; draw from "
            "deal.generator(), which the partition's seed determines, and keep nothing between calls"
        )
    return found[0]


def _global_generators() -> tuple[Any, ...]:
    """The states of the generators that all code of a process shares."""
    state: Any = np.random.get_state(legacy=True)
    kind, words, *rest = state
    torch = sys.modules.get("torch")
    return kind, words.tobytes(), rest, python_random.getstate(), torch and torch.get_rng_state().numpy().tobytes()


def _checked(deal: Deal, name: str, dealt: Any) -> tuple[np.ndarray, np.ndarray]:
    """What a user's partitioner returned, as sample indices and the number of each client's."""
    places, clients = int(deal.sizes.sum()), len(deal.sizes)
    if isinstance(dealt, list | tuple) and any(np.ndim(part) if _is_array(part) else True for part in dealt):
        if len(dealt) != clients:
            raise InputError(
                f"partition {name!r} gave lists for {len(dealt)} clients, but there are {clients}, those to validate "
                f"with among them; {_RIGHT}"
            )
        parts = [_whole_numbers(name, f"client {client}", part) for client, part in enumerate(dealt)]
        empty = [client for client, part in enumerate(parts) if not len(part)]
        if empty:
            raise InputError(
                f"partition {name!r} gave client {empty[0]} no sample{_and_others(empty)}; each needs at least one"
            )
        found, sizes = np.concatenate(parts), np.array([len(part) for part in parts])
    else:
        found, sizes = _whole_numbers(name, "all clients", dealt), deal.sizes
        if len(found) != places:
            raise InputError(
                f"partition {name!r} gave an array of {len(found)} sample indices, but deal.sizes has {places} places "
                f"for {clients} clients; {_RIGHT}"
            )
    owner = np.repeat(np.arange(clients), sizes)
    outside = np.flatnonzero((found < 0) | (found >= len(deal.labels)))
    if len(outside):
        raise InputError(
            f"partition {name!r} gave client {owner[outside[0]]} the sample index {found[outside[0]]}, but there are "
            f"samples from 0 to {len(deal.labels) - 1}"
        )
    order = np.argsort(found, kind="stable")
    doubled = np.flatnonzero(found[order[1:]] == found[order[:-1]])
    if len(doubled):
        one, other = order[doubled[0]], order[doubled[0] + 1]
        to = (
            f"to client {owner[one]} and to client {owner[other]}"
            if owner[one] != owner[other]
            else (f"twice to client {owner[one]}")
        )
        raise InputError(f"partition {name!r} gave the sample {found[one]} {to}; a sample has one place at most")
    return found, sizes


def _is_array(part: Any) -> bool:
    return not isinstance(part, list | tuple | range)


def _and_others(clients: list[int]) -> str:
    return f", nor {len(clients) - 1} others" if len(clients) > 1 else ""


def _whole_numbers(name: str, whose: str, values: Any) -> np.ndarray:
    """Sample indices as int64."""
    try:
        found = np.asarray(values)
    except (TypeError, ValueError):  # a ragged list
        found = np.empty((), dtype=object)
    if not found.size and found.ndim == 1:
        return np.empty(0, dtype=np.int64)
    if found.dtype.kind not in "iu" or found.ndim != 1:
        got = f"{found.dtype} of shape {found.shape}" if found.dtype != object else f"a {type(values).__name__}"
        raise InputError(f"partition {name!r} gave {got} for {whose}, not a list of whole numbers; {_RIGHT}")
    return found.astype(np.int64, copy=False)


def check_scheme(scheme: Scheme) -> None:
    """Refuses settings that make no partition.

    Raises:
        InputError: If a number is out of range, or the partitioner is unknown.
    """
    if scheme.partitioner != NATURAL:
        try:
            PARTITIONERS.find(scheme.partitioner)
        except InputError as error:
            if ":" in scheme.partitioner:
                raise
            known = nearest(scheme.partitioner, [*PARTITIONERS.names(), NATURAL])
            raise InputError(f"unknown partition {scheme.partitioner!r}; {known}") from error
    if scheme.clients < 1:
        raise InputError(f"clients = {scheme.clients}: at least one client must train")
    if scheme.validation_clients < 0:
        raise InputError(f"validation_clients = {scheme.validation_clients}: it can't be negative; 0 means none")
    if not (math.isfinite(scheme.alpha) and scheme.alpha > 0):
        raise InputError(f"alpha = {scheme.alpha}: the Dirichlet concentration must be above 0 and finite")
    if not (math.isfinite(scheme.unbalance) and scheme.unbalance >= 0):
        raise InputError(f"unbalance = {scheme.unbalance}: the lognormal σ must be at least 0 and finite")
    if not 0 <= scheme.local_test < 1:
        raise InputError(f"local_test = {scheme.local_test}: the share that is held out is above 0 and below 1")
    if scheme.shards < 1:
        raise InputError(f"shards = {scheme.shards}: a client gets at least one")


BY_LABEL = ("dirichlet", "dirichlet-legacy", "shards")
"""The partitioners that need a label of each sample."""


def default_partition(split_by_client: bool, *, has_labels: bool = True) -> str:
    """The default partitioner of a data set."""
    return NATURAL if split_by_client else "dirichlet" if has_labels else "iid"


def default_validation_clients(clients: int) -> int:
    """10 % of the training clients, rounded up."""
    return -(-clients // 10)


def _natural(owners: np.ndarray | None, clients: int, scheme: Scheme) -> tuple[np.ndarray, np.ndarray]:
    """The samples of each client and their number, as the data set has them; of too many clients, a random choice."""
    if owners is None:
        raise InputError(
            f"partition {NATURAL!r} is for data sets that come split by client, and this one doesn't; "
            "take dirichlet, shards or iid"
        )
    if scheme.unbalance != 0:
        raise InputError(f"unbalance = {scheme.unbalance}: with partition {NATURAL!r} the data set decides the sizes")
    everyone = int(owners.max()) + 1
    if clients > everyone:
        raise InputError(
            f"{clients} clients ({scheme.clients} to train, {scheme.validation_clients} to validate) are more than the "
            f"{everyone} that the data set has"
        )
    drawn = random.order(random.bits(scheme.seed, Purpose.PARTITION, NATURAL_CLIENTS, np.arange(everyone)))
    chosen = np.sort(drawn[:clients])
    by_owner = np.argsort(owners, kind="stable")
    sizes = np.bincount(owners, minlength=everyone)
    wanted = np.zeros(everyone, dtype=bool)
    wanted[chosen] = True
    return by_owner[np.repeat(wanted, sizes)], sizes[chosen]


def _sizes(samples: int, clients: int, scheme: Scheme) -> np.ndarray:
    if clients > samples:
        raise InputError(
            f"{clients} clients ({scheme.clients} to train, {scheme.validation_clients} to validate) are more than the "
            f"{samples} training samples; each needs at least one"
        )
    if scheme.unbalance == 0:
        return np.full(clients, samples // clients, dtype=np.int64)
    generator = random.numpy_generator(scheme.seed, Purpose.PARTITION, SIZES)
    exponents = generator.normal(scale=scheme.unbalance, size=clients)
    weights = np.exp(exponents - exponents.max())  # without the maximum, exp overflows; the shares are the same
    sizes: np.ndarray = np.floor(weights * (samples / weights.sum())).astype(np.int64)
    sizes[: samples - sizes.sum()] += 1
    if sizes.min() == 0:
        raise InputError(
            f"unbalance = {scheme.unbalance}: {int((sizes == 0).sum())} of {clients} clients would get no sample of "
            f"{samples}; take fewer clients or a smaller σ"
        )
    return sizes
