"""Checks of algorithms: good ones pass all of them, and each fault fails the check that is for it, with its reason."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import torch
from faulty import FAULTS, InPlace, Keeper, faulty

import adabest
from adabest.algorithms.base import Algorithm, Correction, Update
from adabest.algorithms.fedavg import FedAvg
from adabest.cli import main
from adabest.errors import InputError

NAMES = ["rounds", "types", "purity", "repeats", "resume", "order", "engines", "lanes", "stacking", "learning"]


def states(algorithm: str | Algorithm) -> dict[str, str]:
    return {one.name: one.state for one in adabest.check(algorithm)}


@pytest.mark.parametrize(
    "algorithm", ["fedavg", "adabest,beta=0.9", "feddyn", "relatives:NoisyFedAvg,sigma=0.001", "feddane", "mifa"]
)
def test_a_good_algorithm_passes(algorithm: str) -> None:
    found = adabest.check(algorithm)
    assert [one.name for one in found] == NAMES
    assert {one.name: one.words for one in found if one.state != "passed"} == {}


@pytest.mark.parametrize("name", ["sum as aggregate", "cloud in float32", "reply in float32", "undeclared mean"])
def test_a_result_of_the_wrong_form_fails_the_first_check_and_skips_the_others(name: str) -> None:
    first, *others = adabest.check(faulty(name))
    assert (first.name, first.state) == ("rounds", "failed")
    assert FAULTS[name].words.partition("[P]")[0] in first.words
    assert {one.state for one in others} == {"skipped"}


@dataclass(frozen=True)
class Single(FedAvg):
    """Keeps its vectors in float32, whatever the model's type is: right for one type only."""

    def server_step(self, server: Any, cloud: Any, replies: Any, context: Any) -> Update:
        aggregate = replies.mean("model", "samples")
        return Update(server, aggregate, cloud=aggregate.double())


REMEMBERED: list[int] = []


@dataclass(frozen=True)
class Forgetless(FedAvg):
    """Counts server steps for the whole process."""

    def server_step(self, server: Any, cloud: Any, replies: Any, context: Any) -> Update:
        REMEMBERED.append(1)
        aggregate = replies.mean("model", "samples")
        return Update(server, aggregate, cloud=aggregate + 1e-3 * len(REMEMBERED))


@dataclass(frozen=True)
class HiddenMomentum(FedAvg):
    """Keeps its momentum in the object, not in the server's state."""

    kept: dict[str, Any] = field(default_factory=dict)

    def server_step(self, server: Any, cloud: Any, replies: Any, context: Any) -> Update:
        aggregate = replies.mean("model", "samples")
        momentum = 0.5 * self.kept.get("momentum", 0.0) + (cloud - aggregate)
        self.kept["momentum"] = momentum
        return Update(server, aggregate, cloud=cloud - momentum)


@dataclass(frozen=True)
class Leaking(FedAvg):
    """Adds a part of the client that was computed before."""

    kept: dict[int, Any] = field(default_factory=dict)

    def client_finish(self, client: Any, message: Any, model: Any, context: Any) -> Any:
        before = self.kept.get(context.round, 0.0)
        self.kept[context.round] = model
        return client, self.Reply(model + 1e-3 * before, context.samples)


@dataclass(frozen=True)
class Flat(FedAvg):
    """Takes a mean over all dimensions, that of the clients included."""

    def client_finish(self, client: Any, message: Any, model: Any, context: Any) -> Any:
        return client, self.Reply(model - model.mean(), context.samples)


@dataclass(frozen=True)
class Indexing(FedAvg):
    """Reads a number of a client as if there were only one."""

    def client_finish(self, client: Any, message: Any, model: Any, context: Any) -> Any:
        return client, self.Reply(model * float(context.steps / context.steps), context.samples)


@dataclass(frozen=True)
class Stacked(FedAvg):
    """Says that its steps may be stacked, but takes a norm over all runs."""

    @property
    def stackable(self) -> bool:
        return True

    def server_step(self, server: Any, cloud: Any, replies: Any, context: Any) -> Update:
        aggregate = replies.mean("model", "samples")
        return Update(server, aggregate, cloud=aggregate * (1 + 1e-3 * (cloud - aggregate).norm()))


@dataclass(frozen=True)
class Ascending(FedAvg):
    """Goes the other way."""

    def server_step(self, server: Any, cloud: Any, replies: Any, context: Any) -> Update:
        away = cloud + (cloud - replies.mean("model", "samples"))
        return Update(server, away, cloud=away)


@dataclass(frozen=True)
class Exploding(FedAvg):
    """Multiplies its model by much in each round."""

    def client_start(self, client: Any, message: Any, context: Any) -> Correction:
        return Correction(start=1e9 * message.cloud)


@dataclass(frozen=True)
class Standing(FedAvg):
    """Never moves the cloud model, though its aggregate is good."""

    def server_step(self, server: Any, cloud: Any, replies: Any, context: Any) -> Update:
        return Update(server, replies.mean("model", "samples"), cloud=cloud)


@dataclass(frozen=True)
class PartlyInfinite(FedAvg):
    """Divides by zero on small clients."""

    def client_finish(self, client: Any, message: Any, model: Any, context: Any) -> Any:
        return client, self.Reply(torch.where(context.samples > 15, model, model / 0), context.samples)


@dataclass(frozen=True)
class Miscounting(FedAvg):
    """Adds to the context's number of samples."""

    def client_finish(self, client: Any, message: Any, model: Any, context: Any) -> Any:
        samples = context.samples
        samples += 5
        return client, self.Reply(model, samples)


@dataclass(frozen=True)
class Overwriting(FedAvg):
    """Writes into the mean of the replies."""

    def server_step(self, server: Any, cloud: Any, replies: Any, context: Any) -> Update:
        aggregate = replies.mean("model", "samples").mul_(1.001)
        return Update(server, aggregate, cloud=aggregate)


class Undeclared(Keeper):
    """Has a state without a declared form, which changes its type."""

    class Server(NamedTuple):
        """The last move."""

        move: torch.Tensor

    def server_step(self, server: Any, cloud: Any, replies: Any, context: Any) -> Update:
        aggregate = replies.mean("model", "samples")
        return Update(self.Server((cloud - aggregate).double()), aggregate, cloud=aggregate)


@pytest.mark.parametrize(
    ("make", "name", "words"),
    [
        (Single, "types", "its field cloud is of type float64; it should be float32"),
        (Undeclared, "types", "with a model in float32, the server's move becomes float64"),
        (PartlyInfinite, "rounds", r"the reply of client \d in round 1 .* its field model isn't finite"),
        (Miscounting, "purity", "client_finish writes into a tensor that it was given"),
        (Overwriting, "purity", "server_step writes into a tensor that it was given"),
        (Standing, "learning", "the test loss of the cloud model falls from 0.985 to 0.985 at best"),
        (InPlace, "purity", "client_finish writes into a tensor that it was given; it should compute a new one"),
        (Forgetless, "repeats", "two runs with the same seed differ"),
        (HiddenMomentum, "resume", "a run that is resumed after round 2 differs from an unbroken one"),
        (Leaking, "order", "the order in which clients are computed matters"),
        (Flat, "engines", "with all clients at once, .* differs from that of one client after another"),
        (Indexing, "engines", r"with all clients at once, .* it fails: client_finish raised ValueError in line \d+"),
        (Stacked, "stacking", "it says that server steps may be stacked, but a step beside others differs"),
        (
            Ascending,
            "learning",
            "the test loss of the cloud model falls from 0.985 to 0.985 at best; it should fall by a tenth",
        ),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_fault_fails_its_check(make: Callable[[], Algorithm], name: str, words: str) -> None:
    found = {one.name: one for one in adabest.check(make())}
    assert found[name].state == "failed"
    with pytest.raises(InputError, match=words):
        raise InputError(found[name].words)


def test_what_two_equal_runs_differ_in_is_not_blamed_on_engines_or_order() -> None:
    found = states(Forgetless())
    assert found["repeats"] == "failed"
    skipped = {name for name, state in found.items() if state == "skipped"}
    assert skipped == {"resume", "order", "engines", "lanes", "stacking"}


def test_a_model_that_grows_without_end_fails() -> None:
    assert "failed" in states(Exploding()).values()


def test_the_given_object_is_left_as_it_was() -> None:
    algorithm = HiddenMomentum()
    adabest.check(algorithm)
    assert algorithm.kept == {}


def test_the_command_prints_a_line_a_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "fedavg"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[:2] for line in lines] == [["passed", name] for name in NAMES]


def test_the_command_exits_with_1_after_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "faulty:InPlace"]) == 1
    assert "failed: purity: client_finish writes into a tensor that it was given" in capsys.readouterr().out


def test_the_command_refuses_an_unknown_algorithm(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "fedavgg"]) == 2
    assert "fedavg" in capsys.readouterr().err
