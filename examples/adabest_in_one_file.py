"""AdaBest in one file of plain torch, from top to bottom; nothing of the package is imported.

Varno et al., *Minimizing client drift in federated learning via adaptive bias estimation*, ECCV 2022. A model is a
vector, so the method reads like the paper's Algorithm 1; symbols are the paper's: θ is sent out, θ̄ is the mean of what
comes back, θ_i is client i's. A pseudo-gradient is before minus after. A test of the package holds this file to it.

    python examples/adabest_in_one_file.py --beta 0.9 --rounds 50
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector, vector_to_parameters


@dataclass(frozen=True)
class Args:
    """What can be set on the command line."""

    clients: int = 100  # how many there are; the method itself never asks
    cohort: int = 10  # |P|: how many take part in a round
    rounds: int = 100
    mu: float = 0.02  # μ: how strongly a client's own estimate corrects its gradient
    beta: float = 0.8  # β: how much of the server's estimate lives on
    epochs: int = 5
    batch_size: int = 10
    eta: float = 0.1  # η of the first round
    eta_decay: float = 0.998  # what η is multiplied by from round to round
    weight_decay: float = 1e-4  # λ
    clip: float = 10.0  # the largest norm of a corrected gradient
    seed: int = 0


class Models(NamedTuple):
    """What a round leads to."""

    cloud: Tensor  # θ, which the next round's clients start from
    aggregate: Tensor  # θ̄, the mean of the models that came back
    scored: Tensor  # the mean of the latest models of all clients seen so far: what the paper reports


def train(
    args: Args,
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    partition: Sequence[Tensor] | None = None,
    cohorts: Callable[[int], Iterable[int]] | None = None,
    batches: Callable[[int, int], Iterable[Tensor]] | None = None,
) -> Iterator[Models]:
    """Trains round by round, from the weights that ``model`` has.

    ``partition[i]`` holds the samples of client i, ``cohorts(t)`` the clients of round t, and ``batches(t, i)`` the
    samples of each local step; what isn't given is drawn here.
    """
    generator = torch.Generator().manual_seed(args.seed)
    own = partition or shards(y, args.clients, generator)
    cohorts = cohorts or (lambda t: torch.randperm(len(own), generator=generator)[: args.cohort].tolist())
    batches = batches or (lambda t, i: shuffled_batches(own[i], args, generator))

    cloud = parameters_to_vector(model.parameters()).detach().clone()  # θ
    aggregate = cloud  # θ̄_0 is the initial model
    h: dict[int, Tensor] = {}  # h_i, without μ, so that it holds pseudo-gradients only
    last: dict[int, int] = {}  # t'_i, the last round that client i took part in
    latest: dict[int, Tensor] = {}  # θ_i, as of then
    samples_seen, replies_seen = 0, 0

    for t in range(1, args.rounds + 1):
        eta = args.eta * args.eta_decay ** (t - 1)
        # n̄_t, the mean n_i over all replies so far: the server can know it without knowing how many clients there are.
        mean_samples = samples_seen / max(replies_seen, 1)
        replies = []
        for i in cohorts(t):
            h_i = h.get(i, torch.zeros_like(cloud))
            bias = args.mu * mean_samples / len(own[i]) * h_i  # the drift to be expected of this client
            w = cloud
            for batch in batches(t, i):
                direction = gradient(model, w, x[batch], y[batch]) - bias
                direction = direction * (args.clip / direction.norm()).clamp(max=1.0)
                w = w - eta * (direction + args.weight_decay * w)  # weight decay isn't clipped
            # The estimate fades with the rounds in which the client was away. At first there is nothing to fade.
            h[i] = h_i / (t - last.get(i, 0)) + (cloud - w)
            last[i], latest[i] = t, w
            replies.append(w)
            samples_seen, replies_seen = samples_seen + len(own[i]), replies_seen + 1
        previous, aggregate = aggregate, torch.stack(replies).mean(dim=0)
        # The one idea of the server: the last move of the mean, a part of it once more.
        cloud = aggregate - args.beta * (previous - aggregate)
        yield Models(cloud, aggregate, torch.stack(list(latest.values())).mean(dim=0))


def gradient(model: nn.Module, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """∇L(w) on a batch."""
    vector_to_parameters(w, model.parameters())
    loss = functional.cross_entropy(model(x), y)
    return parameters_to_vector(torch.autograd.grad(loss, list(model.parameters())))


def shards(y: Tensor, clients: int, generator: torch.Generator) -> list[Tensor]:
    """Skewed labels, the simple way: sorted samples are cut into two pieces a client, and each client draws two."""
    pieces = torch.argsort(y, stable=True).tensor_split(2 * clients)
    dealt = torch.randperm(len(pieces), generator=generator).tolist()
    return [torch.cat([pieces[a], pieces[b]]) for a, b in zip(dealt[::2], dealt[1::2], strict=True)]


def shuffled_batches(own: Tensor, args: Args, generator: torch.Generator) -> Iterator[Tensor]:
    """Shuffled epochs, whose last batch is topped up with a bootstrap so that all batches have one size."""
    missing = -len(own) % args.batch_size
    for _ in range(args.epochs):
        order = torch.randperm(len(own), generator=generator)
        extra = torch.randint(len(own), (missing,), generator=generator)
        yield from own[torch.cat([order, extra])].split(args.batch_size)


def accuracy(model: nn.Module, w: Tensor, x: Tensor, y: Tensor) -> float:
    """The share of samples that a model classifies rightly."""
    vector_to_parameters(w, model.parameters())
    with torch.no_grad():
        return float((model(x).argmax(dim=1) == y).float().mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="AdaBest on handwritten digits.")
    for name, default in asdict(Args()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    args = Args(**vars(parser.parse_args()))

    torch.manual_seed(args.seed)
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32), torch.tensor(digits.target)
    x = (x - x.mean()) / x.std()
    order = torch.randperm(len(y))
    test, rest = order[:360], order[360:]
    model = nn.Sequential(nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 10))
    for t, models in enumerate(train(args, model, x[rest], y[rest]), start=1):
        if t % 10 == 0 or t == args.rounds:
            scores = {name: 100 * accuracy(model, w, x[test], y[test]) for name, w in models._asdict().items()}
            print(f"round {t:4}: " + ", ".join(f"{name} {score:5.1f} %" for name, score in scores.items()))
