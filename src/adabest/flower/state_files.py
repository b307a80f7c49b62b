"""The states of a node's clients, in files of its own: one for each run and client, with a checksum.

A file is a line with the SHA-256 checksum of all that follows, a line of JSON, and tensors in the format safetensors.
It is written whole or not at all, so a kill at any moment leaves the state before or the state after.
"""

import contextlib
import hashlib
import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import safetensors
import safetensors.torch
from filelock import FileLock
from torch import Tensor

from adabest.algorithms.forms import find_fault
from adabest.errors import InputError
from adabest.flower.orders import NEVER, Tag, parsed
from adabest.runs.files.atomic_files import read_bytes, write_bytes
from adabest.runs.files.records import conform

_FORMAT = 1
_RUN = re.compile(r"[0-9a-f]{32}")
_MODEL = "model"


class State(NamedTuple):
    """What a client keeps after a phase of a round.

    Attributes:
        tag: The phase.
        fields: The algorithm's state on it, by field.
        model: The model that it trained last; None if nobody will ask for it, or it hasn't trained.
    """

    tag: Tag
    fields: Mapping[str, Tensor]
    model: Tensor | None = None


class _Header(TypedDict):
    """The JSON line of a file."""

    format: int
    run: str
    client: int
    tags: list[list[int]]


class StateFiles:
    """The states of a node's clients in one run."""

    def __init__(self, folder: Path, run: str) -> None:
        """Names the files of a run.

        Args:
            folder: The node's folder for the states of all runs.
            run: The run's id.

        Raises:
            InputError: If that is no id.
        """
        if not _RUN.fullmatch(run):
            raise InputError(f"the id of a run should be 32 hexadecimal digits, not {run[:40]!r}")
        self._folder, self._run = folder / run, run

    def path(self, client: int) -> Path:
        """The file of a client."""
        return self._folder / f"client-{client}.state"

    def read(self, client: int) -> list[State]:
        """The states of a client, the older first; none if it has never taken part.

        Raises:
            InputError: If the file is damaged, or another run's or client's.
        """
        path = self.path(client)
        content = read_bytes(path)
        if content is None:
            return []
        proof, _, rest = content.partition(b"\n")
        if proof.decode(errors="replace") != hashlib.sha256(rest).hexdigest():
            raise InputError(f"{path} was changed: it doesn't have the checksum that it names; bring back a good copy")
        line, _, body = rest.partition(b"\n")
        header: _Header = conform(str(path), parsed(str(path), line), _Header)
        if header["format"] != _FORMAT:
            raise InputError(
                f"{path} has a format that this version of adabest doesn't know; use the one that wrote it"
            )
        if (header["run"], header["client"]) != (self._run, client):
            raise InputError(
                f"{path} is of client {header['client']} in run {header['run']}, not of client {client} in run "
                f"{self._run}; put back the file that belongs there"
            )
        return [_state(number, Tag(*tag), _tensors(path, body)) for number, tag in enumerate(header["tags"])]

    @contextlib.contextmanager
    def held(self, client: int) -> Iterator[None]:
        """While entered, no other process reads or writes the states of a client.

        An order may still be carried out when the next one comes: it was late, and the server went on without it.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self._folder / f"client-{client}.lock"):
            yield

    def write(self, client: int, states: Sequence[State]) -> None:
        """Writes the states of a client in place of those before."""
        tensors = {
            f"{number}.{name}": value.detach().cpu().contiguous().clone()
            for number, state in enumerate(states)
            for name, value in {
                **_named(state.fields),
                **({} if state.model is None else {_MODEL: state.model}),
            }.items()
        }
        header: _Header = {
            "format": _FORMAT,
            "run": self._run,
            "client": client,
            "tags": [list(state.tag) for state in states],
        }
        rest = json.dumps(header).encode() + b"\n" + safetensors.torch.save(tensors)
        self._folder.mkdir(parents=True, exist_ok=True)
        write_bytes(self.path(client), hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)

    def kept(self, client: int, before: State | None, new: State) -> list[State]:
        """The states that a client may be asked to go on from, the older first, where they count once confirmed.

        Args:
            client: The client.
            before: The state that the new one was made from.
            new: The new one.
        """
        # A server that was killed in a later exchange makes the round again, from its beginning. A node that came back
        # may have been asked once more, while its old process is still at work on an earlier exchange of the round.
        found = self.read(client)
        begun = [own for own in found if own.tag.round < new.tag.round] if before is not None and new.tag.phase else []
        same = [own for own in found if own.tag.round == new.tag.round]
        states = {own.tag: own for own in [*begun, *same, *([] if before is None else [before]), new]}
        return [states[tag] for tag in sorted(states)]

    def state_before(self, client: int, expected: Tag, order: Tag | None, *, confirmed: bool) -> State | None:
        """The state that a client goes on from; None for a fresh one.

        Args:
            client: The client.
            expected: The last phase of which the server has its reply, or has accepted it, if states are confirmed.
            order: The phase that it is asked to train in; None if it is asked for its own model only.
            confirmed: Whether the state must be that of ``expected``; else a later one counts, too, whose reply was
                lost.

        Raises:
            InputError: If there is no such state: it was lost, or is of another moment.
        """
        found = self.read(client)
        there = {state.tag: state for state in found}
        if order is not None and found and found[-1].tag.round > order.round:
            raise InputError(f"its state is {found[-1].tag.words()} already, so this order has come too late")
        if expected in there and (confirmed or len(found) == 1):
            return there[expected]
        if confirmed:
            if expected == NEVER:
                return None
        else:
            latest = found[-1].tag if found else NEVER
            if latest == NEVER == expected:
                return None
            if expected < latest and (order is None or latest < order):
                return found[-1]
            if order is not None and latest >= order:
                raise InputError(
                    f"its state is {latest.words()} already, so it can't train in this round again; with "
                    "state-commit = confirmed it would have kept the state before"
                )
        raise InputError(self._lost(client, expected, found))

    def _lost(self, client: int, expected: Tag, found: list[State]) -> str:
        if not found:
            return (
                f"its state {expected.words()} is missing: there is no {self.path(client)}. Bring the file back; "
                "without it the client can't go on"
            )
        have = " and ".join(state.tag.words() for state in found)
        return f"its state is {have}, not {expected.words()}, in {self.path(client)}; bring back the file that is"


def refuse_unwritable(folder: Path) -> None:
    """Refuses a folder in which no state can be written.

    Raises:
        InputError: With the folder, and what would be right.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(
            f"it can't write the states of its clients to {folder}: {error.strerror}; start it with another state-dir "
            "in --node-config"
        ) from error


def checked(state: State, kind: type[Any], like: Tensor, path: Path) -> Any:
    """A state as the algorithm's NamedTuple.

    Raises:
        InputError: If it isn't of the declared form.
    """
    fields: tuple[str, ...] = kind._fields
    if tuple(sorted(state.fields)) != tuple(sorted(fields)):
        raise InputError(f"{path} holds {', '.join(state.fields)}, not the state of this algorithm")
    found = kind(**{name: value.to(like.device) for name, value in state.fields.items()})
    fault = find_fault(kind, found, like)
    if fault is not None:
        raise InputError(f"{path} doesn't hold the state of this algorithm: {fault}")
    return found


def _named(fields: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"state.{name}": value for name, value in fields.items()}


def _tensors(path: Path, body: bytes) -> dict[str, Tensor]:
    try:
        found: dict[str, Tensor] = safetensors.torch.load(body)
    except safetensors.SafetensorError as error:
        raise InputError(f"{path} can't be read: {error}") from error
    return found


def _state(number: int, tag: Tag, tensors: Mapping[str, Tensor]) -> State:
    own = {name.partition(".")[2]: value for name, value in tensors.items() if name.startswith(f"{number}.")}
    fields = {name.removeprefix("state."): value for name, value in own.items() if name.startswith("state.")}
    return State(tag, fields, own.get(_MODEL))
