"""The network between a server and its nodes, and the roll: which nodes there are, and which clients they have."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from adabest.errors import AdabestError, InputError
from adabest.flower.orders import ANNOUNCE, Announcement, AnnounceOrder, read_answer, shortened
from adabest.flower.parcels import Parcel
from adabest.flower.project import MOST_CLIENTS
from adabest.tasks.base import Heartbeat

_MOST_SAMPLES = 1_000_000_000  # of a node, so that sums over nodes stay whole numbers of 64 bits
_LOOK_FOR_LOST = 2.0  # seconds between two looks for a node that was lost
_TELL_OF_WAITING = 30.0


Say = Callable[[str], object]
"""Tells the user something, in a line."""


class NodesLost(AdabestError):
    """No node has answered. The run can be resumed when they are back."""


class Failure(NamedTuple):
    """Why there is no answer from a node.

    Attributes:
        words: The reason.
        is_final: Whether asking again is of no use.
    """

    words: str
    is_final: bool


class Network(Protocol):
    """Carries parcels to nodes and back.

    Attributes:
        pause: Seconds between two looks for answers.
    """

    pause: float

    def present(self) -> list[int]:
        """The addresses of the nodes that can be reached."""

    def send(self, kind: str, parcels: Mapping[int, Parcel], seconds: float) -> dict[str, int]:
        """Sends parcels to nodes.

        Args:
            kind: What is ordered.
            parcels: A parcel for each address.
            seconds: How long the parcels and their answers are worth keeping.

        Returns:
            A ticket for each answer to come, with the address that it is expected from; none for a parcel that couldn't
            be sent.
        """

    def collect(self, tickets: Collection[str]) -> dict[str, Parcel | Failure]:
        """The answers that have come since, by their tickets."""


class Member(NamedTuple):
    """A node of the federation."""

    name: str
    clients: tuple[int, ...]
    samples: tuple[int, ...]
    held_out: tuple[int, ...]


class _Asked(NamedTuple):
    """A node that was asked for its name and clients, and when its answer isn't worth waiting for any more."""

    address: int
    until: float


class Roll:
    """The nodes of a federation, and how they are reached.

    Attributes:
        say: Tells the user something, in a line.
        heartbeat: Called while answers are awaited; may raise.
    """

    def __init__(
        self,
        network: Network,
        *,
        plan: str,
        model: str,
        deadline: float,
        say: Say,
        heartbeat: Heartbeat,
    ) -> None:
        """An empty roll.

        Args:
            network: The network.
            plan: The digest of the settings that must be the same everywhere.
            model: The digest of the model's parameters.
            deadline: The seconds after which an order goes on without those that haven't answered.
            say: Tells the user of nodes that come and go.
            heartbeat: Called while answers are awaited; may raise.
        """
        self._network, self._plan, self._model = network, plan, model
        self._deadline, self.say = deadline, say
        self.heartbeat = heartbeat
        self._members: dict[str, Member] = {}
        self._addresses: dict[str, int] = {}
        self._strangers: set[int] = set()
        self._asked: dict[str, _Asked] = {}
        self._silent: set[int] = set()  # addresses that were asked once in vain
        self._nodes: dict[int, str] = {}

    @property
    def members(self) -> list[Member]:
        """The nodes, by name."""
        return [self._members[name] for name in sorted(self._members)]

    def node_of(self, client: int) -> str:
        """The name of the node that has a client."""
        return self._nodes[client]

    def enrol(self, wanted: int) -> None:
        """Waits until enough nodes are there, and asks them for their clients.

        Others that are there are waited for, too, until the deadline: one that never answers holds no run up.

        Raises:
            InputError: If a node can't take part, or two have a client of the same number.
        """
        told = 0.0
        while True:
            self.heartbeat()
            self._meet(self._network.present(), is_beginning=True)
            addresses = {own.address for own in self._asked.values()}
            if len(self._members) >= wanted and addresses <= self._silent:
                for address in sorted(addresses):
                    self.say(f"the node at address {address} hasn't told its clients; the run begins without it")
                break
            if time.monotonic() - told >= _TELL_OF_WAITING:
                told = time.monotonic()
                asked = f", {len(self._asked)} haven't told their clients yet" if self._asked else ""
                self.say(f"waiting for nodes: {len(self._members)} of {wanted} are there{asked}")
            time.sleep(max(self._network.pause, 0.05))

    def by_node(self, clients: Iterable[int]) -> dict[str, list[int]]:
        """Clients by the names of their nodes."""
        shares: dict[str, list[int]] = {}
        for client in clients:
            shares.setdefault(self._nodes[client], []).append(client)
        return shares

    def ask(self, kind: str, parcels: Mapping[str, Parcel]) -> dict[str, Parcel | str]:
        """Asks nodes, each once. A node that is lost and comes back before the deadline is asked again.

        Args:
            kind: What is ordered.
            parcels: A parcel for each node, by name.

        Returns:
            The answer of each, or why there is none.
        """
        ends = time.monotonic() + self._deadline
        answers: dict[str, Parcel | str] = {}
        lost: dict[str, str] = dict.fromkeys(parcels, "it is not connected")
        waiting: dict[str, str] = {}
        looked = -_LOOK_FOR_LOST
        while lost or waiting:
            self.heartbeat()
            now = time.monotonic()
            if now >= ends:
                break
            if lost and now - looked >= _LOOK_FOR_LOST:
                looked = now
                there = self._reachable(lost)
                sent = self._network.send(kind, {place: parcels[name] for place, name in there.items()}, ends - now)
                waiting |= {ticket: there[place] for ticket, place in sent.items()}
                untaken = {name for place, name in there.items() if place not in sent.values()}
                lost = {name: reason for name, reason in lost.items() if name not in there.values()}
                lost |= dict.fromkeys(untaken, "the network hasn't taken the message")
            for ticket, found in self._network.collect(waiting).items():
                name = waiting.pop(ticket)
                if isinstance(found, Parcel):
                    answers[name] = found
                elif found.is_final:
                    answers[name] = shortened(found.words)
                else:
                    lost[name] = shortened(found.words)
                    self.say(f"{name}: {lost[name]}")
            if lost or waiting:
                time.sleep(self._network.pause)
        late = f"no answer within {self._deadline:g} s"
        answers |= dict.fromkeys(waiting.values(), late)
        return answers | {name: f"{late}: {reason}" for name, reason in lost.items()}

    def reaches_others(self, names: Collection[str]) -> bool:
        """Whether other nodes than these are there."""
        present = self._network.present()
        return any(place in present for name, place in self._addresses.items() if name not in names)

    def _reachable(self, names: Collection[str]) -> dict[int, str]:
        """The addresses of those nodes that are there, with their names. New addresses are asked whose they are."""
        present = self._network.present()
        if any(self._addresses[name] not in present for name in names):
            self._meet(present, is_beginning=False)
        return {place: name for name in names if (place := self._addresses[name]) in present}

    def _meet(self, present: Sequence[int], *, is_beginning: bool) -> None:
        """Asks the nodes at unknown addresses for their names and clients, and takes in those that have told them.

        It waits for none of them: one that doesn't answer would hold up a round in which it has no part.
        """
        now = time.monotonic()
        self._silent |= {own.address for own in self._asked.values() if now >= own.until}
        self._asked = {ticket: own for ticket, own in self._asked.items() if now < own.until}
        known = {*self._addresses.values(), *self._strangers, *(own.address for own in self._asked.values())}
        new = [address for address in present if address not in known]
        if new:
            order = AnnounceOrder(plan=self._plan)
            tickets = self._network.send(ANNOUNCE, {address: Parcel(order) for address in new}, self._deadline)
            until = now + self._deadline
            self._asked |= {ticket: _Asked(address, until) for ticket, address in tickets.items()}
        for ticket, found in self._network.collect(self._asked).items():
            self._admit(self._asked.pop(ticket).address, found, present, is_beginning=is_beginning)

    def _admit(self, address: int, found: Parcel | Failure, present: Collection[int], *, is_beginning: bool) -> None:
        """Takes a node into the roll, or notes its new address."""
        if isinstance(found, Failure):
            self.say(f"the node at address {address} can't be asked for its clients: {shortened(found.words)}")
            if found.is_final:
                self._strangers.add(address)
            return
        try:
            facts = read_answer(f"the announcement of the node at address {address}", found.facts, Announcement)
            member = _member(facts)
            if facts["model"] != self._model:
                raise InputError(f"node {member.name} has another model than the server; both need the same code")
        except InputError as error:
            why = shortened(str(error))  # it may quote names that the node made up
            if is_beginning:
                raise InputError(f"a node can't take part: {why}") from error
            self.say(f"the node at address {address} can't take part: {why}")
            self._strangers.add(address)
            return
        before = self._members.get(member.name)
        if before is not None and before != member:
            words = f"there are two nodes {member.name}, with different clients; give each a name of its own"
            if is_beginning:
                raise InputError(words)
            self.say(words)
            self._strangers.add(address)
        elif before is not None:
            if self._addresses[member.name] in present:
                self._strangers.add(self._addresses[member.name])
                self.say(
                    f"{member.name} is at two addresses, with the same clients; if two nodes were started with one "
                    "name or one number, give each its own, and start the run again"
                )
            else:
                self.say(f"{member.name} is back")
            self._addresses[member.name] = address
        elif is_beginning:
            self._enter(member, address)
        else:
            self.say(f"{member.name} has come after the first round, and isn't part of this run")
            self._strangers.add(address)

    def _enter(self, member: Member, address: int) -> None:
        for client in member.clients:
            if client in self._nodes:
                raise InputError(
                    f"nodes {self._nodes[client]} and {member.name} both have a client {client}; give every client of "
                    "the federation a number of its own"
                )
        self._nodes |= dict.fromkeys(member.clients, member.name)
        self._members[member.name], self._addresses[member.name] = member, address
        self.say(f"{member.name} has {len(member.clients)} clients with {sum(member.samples)} samples")


def _member(facts: Announcement) -> Member:
    """A node as it announces itself.

    Raises:
        InputError: If its numbers can't be.
    """
    name = shortened(facts["node"], 80)
    clients, samples, held_out = facts["clients"], facts["samples"], facts["held_out"]
    is_ascending = bool(clients) and bool((np.diff([-1, *clients]) > 0).all()) and clients[-1] < MOST_CLIENTS
    if not (is_ascending and len(samples) == len(held_out) == len(clients)):
        raise InputError(f"node {name} should announce one client or more by ascending numbers, with their samples")
    if min(samples) < 1 or min(held_out) < 0:
        raise InputError(f"node {name}: every client needs at least one sample to train on")
    if sum(samples) + sum(held_out) > _MOST_SAMPLES:
        raise InputError(f"node {name} announces more than {_MOST_SAMPLES:,} samples, which no node may have")
    return Member(name, tuple(clients), tuple(samples), tuple(held_out))
