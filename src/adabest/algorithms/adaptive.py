"""FedAdam, FedYogi, FedAdagrad: adaptive servers. Reddi et al., *Adaptive federated optimization*, 2021."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import Replies, ServerContext, Update, check_range
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.forms import Vector
from adabest.algorithms.ranges import check_below_one, check_positive


@dataclass(frozen=True)
class Adaptive(FedAvg):
    """What the three have in common: the paper's Algorithm 2, which has no correction of biases, and v₀ = τ²."""

    rate: float = 0.01
    beta1: float = 0.9
    tau: float = 0.001

    def __post_init__(self) -> None:
        check_range("rate", self.rate)
        check_below_one("beta1", self.beta1)
        check_positive("tau", self.tau)

    class Server(NamedTuple):
        """m and v."""

        first: Vector
        second: Vector

    def server_init(self, cloud: Tensor) -> Server:
        return self.Server(torch.zeros_like(cloud), torch.full_like(cloud, self.tau**2))

    def server_step(  # type: ignore[override]
        self, server: Server, cloud: Tensor, replies: Replies, context: ServerContext
    ) -> Update:
        aggregate = replies.mean("model", "samples")
        g = cloud - aggregate
        first = self.beta1 * server.first + (1 - self.beta1) * g
        second = self._second(server.second, g * g)
        moved = cloud - self.rate * first / (second.sqrt() + self.tau)
        return Update(self.Server(first, second), aggregate, cloud=moved)

    @abstractmethod
    def _second(self, second: Tensor, square: Tensor) -> Tensor:
        """The next v, given ḡ²."""


@dataclass(frozen=True)
class FedAdam(Adaptive):
    """FedAdam.

    ::

        client:  as FedAvg
        server:  ḡ = θ − θ̄    with  θ̄ = Σ n_i θ_i / Σ n_i
                 m ← β₁ m + (1 − β₁) ḡ
                 v ← β₂ v + (1 − β₂) ḡ²,   at first τ²
                 θ ← θ − rate · m / (√v + τ)

    Means by samples are those of the paper's experiments, from memory; its Algorithm 2 has plain ones.

    Attributes:
        rate: The server's learning rate, at least 0.
        beta1: β₁ in [0, 1), the memory of m.
        beta2: β₂ in [0, 1), the memory of v.
        tau: τ > 0, the degree of adaptivity: the smaller, the more each coordinate goes its own way.
    """

    beta2: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        check_below_one("beta2", self.beta2)

    def _second(self, second: Tensor, square: Tensor) -> Tensor:
        return self.beta2 * second + (1 - self.beta2) * square


@dataclass(frozen=True)
class FedYogi(FedAdam):
    """FedYogi: v changes by an amount that doesn't depend on v.

    ::

        client:  as FedAvg
        server:  ḡ = θ − θ̄    with  θ̄ = Σ n_i θ_i / Σ n_i
                 m ← β₁ m + (1 − β₁) ḡ
                 v ← v − (1 − β₂) ḡ² sign(v − ḡ²),   at first τ²
                 θ ← θ − rate · m / (√v + τ)

    Attributes:
        rate: The server's learning rate, at least 0.
        beta1: β₁ in [0, 1), the memory of m.
        beta2: β₂ in [0, 1), the memory of v.
        tau: τ > 0, the degree of adaptivity: the smaller, the more each coordinate goes its own way.
    """

    def _second(self, second: Tensor, square: Tensor) -> Tensor:
        return second - (1 - self.beta2) * square * (second - square).sign()


@dataclass(frozen=True)
class FedAdagrad(Adaptive):
    """FedAdagrad: v forgets nothing.

    ::

        client:  as FedAvg
        server:  ḡ = θ − θ̄    with  θ̄ = Σ n_i θ_i / Σ n_i
                 m ← β₁ m + (1 − β₁) ḡ
                 v ← v + ḡ²,   at first τ²
                 θ ← θ − rate · m / (√v + τ)

    Attributes:
        rate: The server's learning rate, at least 0.
        beta1: β₁ in [0, 1), the memory of m; the paper takes 0.
        tau: τ > 0, the degree of adaptivity: the smaller, the more each coordinate goes its own way.
    """

    rate: float = 0.1
    beta1: float = 0.0

    def _second(self, second: Tensor, square: Tensor) -> Tensor:
        return second + square
