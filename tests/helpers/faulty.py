"""Algorithms with one mistake each, of the kinds that authors make."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from adabest.algorithms.base import Correction, Update
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.forms import Model, Number, Vector


@dataclass(frozen=True)
class Keeper(FedAvg):
    """FedAvg without a mistake, whose server and clients keep a vector."""

    class Server(NamedTuple):
        """The last move."""

        move: Vector

    class Client(NamedTuple):
        """The last model."""

        last: Vector

    class Reply(NamedTuple):
        """θ_i and n_i."""

        model: Model
        samples: Number

    def server_init(self, cloud: Any) -> Any:
        return self.Server(torch.zeros_like(cloud))

    def client_init(self, cloud: Any) -> Any:
        return self.Client(torch.zeros_like(cloud))

    def client_start(self, client: Any, message: Any, context: Any) -> Correction:
        return Correction(start=message.cloud, offset=0 * client.last)

    def client_finish(self, client: Any, message: Any, model: Any, context: Any) -> Any:
        return self.Client(model), self.Reply(model, context.samples)

    def server_step(self, server: Any, cloud: Any, replies: Any, context: Any) -> Update:
        aggregate = replies.mean("model", "samples")
        return Update(self.Server(cloud - aggregate), aggregate, cloud=aggregate)

    def client_estimate(self, client: Any, message: Any, context: Any) -> Any:
        return client.last


@dataclass(frozen=True)
class InPlace(FedAvg):
    """Writes into the trained model."""

    def client_finish(self, client: Any, message: Any, model: Any, context: Any) -> Any:
        model.mul_(0.9)
        return client, self.Reply(model, context.samples)


class Fault(NamedTuple):
    """A mistake.

    Attributes:
        method: The method that makes it.
        change: Makes of the method's result, and its arguments, what it returns instead.
        words: What the error says, from the name of the method on.
    """

    method: str
    change: Callable[..., Any]
    words: str


def _field(**changes: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda found, *_: found._replace(**{name: change(getattr(found, name)) for name, change in changes.items()})


def _part(place: int, change: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda found, *_: tuple(change(part) if number == place else part for number, part in enumerate(found))


# Of a model with P numbers, in float64.
FAULTS: Mapping[str, Fault] = {
    "sum as aggregate": Fault(
        "server_step",
        _field(aggregate=lambda x: x.sum()),
        "server_step returned an Update that can't be used: its field aggregate has the shape []; it should be [P]",
    ),
    "sum as cloud": Fault(
        "server_step",
        _field(cloud=lambda x: x.sum()),
        "server_step returned an Update that can't be used: its field cloud has the shape []; it should be [P]",
    ),
    "cloud of one number": Fault(
        "server_step",
        _field(cloud=lambda x: x.sum(-1, keepdim=True)),
        "server_step returned an Update that can't be used: its field cloud has the shape [1]; it should be [P]",
    ),
    "cloud in float32": Fault(
        "server_step",
        _field(cloud=lambda x: x.float()),
        "server_step returned an Update that can't be used: its field cloud is of type float32; it should be float64",
    ),
    "h of one number": Fault(
        "server_step",
        lambda found, *_: found._replace(h=found.cloud[..., :1]),
        "server_step returned an Update that can't be used: its field h has the shape [1]; it should be [P]",
    ),
    "server state of one number": Fault(
        "server_step",
        lambda found, *_: found._replace(server=Keeper.Server(found.cloud[..., :1])),
        "server_step returned a Server that can't be used: its field move has the shape [1]; it should be [P]",
    ),
    "no update": Fault(
        "server_step",
        lambda found, *_: tuple(found[:3]),
        "server_step returned a tuple of 3; it should return an Update",
    ),
    "first server state": Fault(
        "server_init",
        lambda found, *_: Keeper.Server(torch.zeros(1)),
        "server_init returned a Server that can't be used: its field move has the shape [1]; it should be [P]",
    ),
    "first client state": Fault(
        "client_init",
        lambda found, *_: Keeper.Client(0.0),  # type: ignore[arg-type]
        "client_init returned a Client that can't be used: its field last is a float; it should be a tensor",
    ),
    "undeclared client state": Fault(
        "client_init",
        lambda found, cloud: Keeper.Server(cloud),
        "client_init returned a Client that can't be used: it has the fields move; they should be last",
    ),
    "message in float32": Fault(
        "downlink",
        _field(cloud=lambda x: x.float()),
        "downlink returned a Message that can't be used: its field cloud is of type float32; it should be float64",
    ),
    "start of one number": Fault(
        "client_start",
        _field(start=lambda x: x[..., :1]),
        "client_start returned a Correction that can't be used: its start has the shape [1]; it should be [P]",
    ),
    "offset in float32": Fault(
        "client_start",
        _field(offset=lambda x: x.float()),
        "client_start returned a Correction that can't be used: its offset is of type float32; it should be float64",
    ),
    "rho of two numbers": Fault(
        "client_start",
        _field(rho=lambda _: torch.zeros(2, dtype=torch.float64)),
        "client_start returned a Correction that can't be used: its rho has the shape [2]; it should be [1]",
    ),
    "scale in words": Fault(
        "client_start",
        _field(scale=lambda _: "1"),
        "client_start returned a Correction that can't be used: its scale is a str; it should be a number",
    ),
    "no correction": Fault(
        "client_start", lambda found, *_: found.start, "client_start returned a Tensor; it should return a Correction"
    ),
    "kept in float32": Fault(
        "client_finish",
        _part(0, _field(last=lambda x: x.float())),
        "client_finish returned a Client that can't be used: its field last is of type float32; it should be float64",
    ),
    "reply in float32": Fault(
        "client_finish",
        _part(1, _field(model=lambda x: x.float())),
        "client_finish returned a reply that can't be used: its field model is of type float32; it should be float64",
    ),
    "nothing kept": Fault(
        "client_finish",
        lambda found, *_: found[1],
        "client_finish returned a Reply; it should return two things: what the client keeps, and its reply",
    ),
    "undeclared mean": Fault(
        "server_step",
        lambda found, server, cloud, replies, context: Update(server, replies.mean("model"), cloud),
        "in server_step, there is no mean of 'model' under 'one': it isn't declared in the algorithm's `means`, or the "
        "replies of this phase lack the field or the weight. There is: model under samples. For fields of the Reply, "
        'the class should say `means = {"model": ("samples", "one",), ...}`',
    ),
    "undeclared total": Fault(
        "server_step",
        lambda found, server, cloud, replies, context: Update(server, cloud, cloud * replies.total("samples")),
        "in server_step, there is no mean of 'samples' under 'one': it isn't declared",
    ),
    "models of one number": Fault(
        "client_model",
        lambda found, *_: found[..., :1],
        "client_model returned what can't be a model: it has the shape [",
    ),
}


def faulty(name: str) -> Keeper:
    """An algorithm called Faulty with a mistake."""
    fault = FAULTS[name]

    def method(self: Any, *given: Any) -> Any:
        return fault.change(getattr(Keeper, fault.method)(self, *given), *given)

    kind: type[Keeper] = dataclass(frozen=True)(
        type("Faulty", (Keeper,), {fault.method: method, "__module__": __name__})
    )
    return kind()
