"""What a round costs: counted, by the paper, and in real runs."""

import functools
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_runs import run
from torch import Tensor

import adabest
from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.base import Algorithm, ClientContext, Correction, Replies, ServerContext, Update, Work
from adabest.algorithms.catalog import ALGORITHMS, CORE
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.feddane import FedDane
from adabest.algorithms.forms import Model, Number, Vector
from adabest.algorithms.records import RECORDS
from adabest.costs.count import AlgorithmCosts, count_costs, count_round
from adabest.costs.formula import Formula, symbol
from adabest.costs.operations import OperationCounter
from adabest.costs.sizes import Sizes
from adabest.engine.client_side import states_by_client
from adabest.engine.interface import Answers
from adabest.engine.local_step import LocalTraining
from adabest.engine.reference import ReferenceEngine
from adabest.engine.simulation import Simulation
from adabest.errors import InputError
from adabest.federation.roster import Attendance
from adabest.model_part import Part
from adabest.tasks.base import Heartbeat, LocalPass, Scores, ValidationScores, no_heartbeat
from adabest.tasks.objectives.metric import ACCURACY

NAMES = list(ALGORITHMS.builtin)
K, P, n, q, g, G, s, m = map(symbol, ("K", "|P|", "n", "q", "g", "G", "s", "m"))
BARE = LocalTraining(clip=0.0)

every_algorithm = pytest.mark.parametrize("name", NAMES)
core_and_others = pytest.mark.parametrize("name", [*CORE, "fedyogi", "fednova", "aide", "fedcm", "local-momentum"])


def costs_of(algorithm: str | Algorithm, precision: Any = "float32") -> AlgorithmCosts:
    (found,) = count_costs([algorithm], Sizes(1, precision=precision)).algorithms.values()
    return found


class Hand(NamedTuple):
    """Costs worked out by hand from the formulas that stand in the algorithm's docstring."""

    client: Formula
    server: Formula
    storage: tuple[Formula, Formula]
    sent: tuple[Formula, Formula]


SGD = K * (g + n * s + n * m)  # w − η ∇L
MEAN = P * n * (s + m) + n * m  # Σ v_i x_i / |P|
NOTHING = 0 * n
BY_HAND = {
    "fedavg": Hand(SGD, MEAN, (NOTHING, NOTHING), (4 * n, 4 * n + 4)),
    # o = −μθ once, then o + μw in every step
    "fedprox": Hand(SGD + n * m + K * n * (2 * s + m), MEAN, (NOTHING, NOTHING), (4 * n, 4 * n + 4)),
    # o = h/w_i − h_i; Δh = (θ − w)/(Kη) − h; h_i + Δh; w_i Δh. Σn_i and Σ1, for the progressive mean, take 8 bytes each
    "scaffold": Hand(
        SGD + n * (s + m) + K * n * s + n * (2 * s + m) + n * s + n * m,
        2 * MEAN + n * (s + m),
        (4 * n, 4 * n + 16),
        (8 * n + 4, 8 * n),
    ),
    # the same without w_i Δh; the mean under two weights; a (θ − θ̄) − b h; h + c (...)
    "scaffold-m": Hand(
        SGD + n * (s + m) + K * n * s + n * (2 * s + m) + n * s,
        2 * MEAN + n * (2 * s + 2 * m) + n * (s + m),
        (4 * n, 4 * n + 16),
        (8 * n + 4, 4 * n + 8),
    ),
    # one full gradient; o = h/w_i − h_i; Δh = v_i − h_i; w_i Δh. θ goes down twice, and the size of v_i up
    "scaffold-gradient": Hand(
        SGD + G + n * (s + m) + K * n * s + n * s + n * m,
        2 * MEAN + n * (s + m),
        (8 * n, 4 * n + 16),
        (12 * n + 4, 8 * n + 4),
    ),
    # o = −μ_i (h_i + θ), then o + μ_i w in every step; h_i + (θ − w); h + c (θ − θ̄); θ̄ − h
    "feddyn": Hand(
        SGD + n * (s + m) + K * n * (2 * s + m) + 2 * n * s,
        MEAN + n * (2 * s + m) + n * s,
        (4 * n, 4 * n + 16),
        (4 * n + 4, 4 * n),
    ),
    # o = −(μ_i h_i); h_i/(t − t'_i) + (θ − w); β (θ̄_prev − θ̄); θ̄ − h. t'_i takes 8 bytes, Σn_i, Σ1 and β take 8 each
    "adabest": Hand(
        SGD + n * m + K * n * s + n * (2 * s + m),
        MEAN + n * (s + m) + n * s,
        (4 * n + 8, 4 * n + 24),
        (4 * n + 4, 4 * n + 4),
    ),
    # the same and ‖g_i‖²; ḡ = θ − θ̄ and four products for β. Δ is kept, and five means of 8 bytes each
    "adabest,beta=auto": Hand(
        SGD + n * m + K * n * s + n * (2 * s + m) + n * (s + m),
        MEAN + n * (s + m) + n * s + n * s + 4 * n * (s + m),
        (4 * n + 8, 8 * n + 56),
        (4 * n + 4, 4 * n + 8),
    ),
}

# The operations that are neither additions nor multiplications aren't here.
BY_HAND |= {
    # β v + (θ − θ̄); θ − v
    "fedavgm": Hand(SGD, MEAN + n * (3 * s + m), (NOTHING, 4 * n), (4 * n, 4 * n + 4)),
    # β u + (θ − θ̄) / η; θ − (α η) u
    "slowmo": Hand(SGD, MEAN + n * (3 * s + 3 * m), (NOTHING, 4 * n), (4 * n, 4 * n + 4)),
    # ḡ; β₁ m + (1 − β₁) ḡ; ḡ²; β₂ v + (1 − β₂) ḡ²; rate m / (√v + τ); θ − that
    "fedadam": Hand(SGD, MEAN + n * (5 * s + 7 * m), (NOTHING, 8 * n), (4 * n, 4 * n + 4)),
    # the same with v − (1 − β₂) ḡ² sign(v − ḡ²)
    "fedyogi": Hand(SGD, MEAN + n * (6 * s + 7 * m), (NOTHING, 8 * n), (4 * n, 4 * n + 4)),
    # the same with v + ḡ²
    "fedadagrad": Hand(SGD, MEAN + n * (5 * s + 5 * m), (NOTHING, 8 * n), (4 * n, 4 * n + 4)),
    # g_i and its square; ḡ, its square, θ − rate ḡ
    "fedexp": Hand(SGD + n * (2 * s + m), MEAN + n * (3 * s + 2 * m), (NOTHING, 0 * n + 8), (4 * n, 4 * n + 4)),
    # θ − θ̄', times a number; θ − that
    "fednova": Hand(SGD, MEAN + n * (2 * s + m), (NOTHING, NOTHING), (4 * n, 4 * n + 12)),
    # g_i / η − h_i; h + c (mean of Δh_i), θ − η h
    "mifa": Hand(SGD + n * (2 * s + m), MEAN + n * (2 * s + 2 * m), (4 * n, 4 * n), (4 * n, 4 * n)),
    # h_i + pace (θ − θ_i) on receipt, and again when it is kept
    "vrl-sgd": Hand(SGD + K * n * s + 2 * n * (2 * s + m), MEAN, (8 * n + 4, NOTHING), (4 * n, 4 * n)),
    # o = h − ∇L_i − μ θ
    "feddane": Hand(SGD + G + K * n * (2 * s + m) + n * (2 * s + m), 2 * MEAN, (4 * n, 4 * n), (12 * n, 8 * n)),
    # the same, where μ = 0 saves the spring
    "dane": Hand(SGD + G + K * n * s + n * (2 * s + m), 2 * MEAN, (4 * n, 4 * n), (12 * n, 8 * n)),
    # o − τ y besides; θ̄ + a (θ̄ − θ). ζ takes 8 bytes
    "aide": Hand(
        SGD + G + K * n * (2 * s + m) + n * (3 * s + 2 * m),
        2 * MEAN + n * (2 * s + m),
        (4 * n, 8 * n + 8),
        (16 * n, 8 * n),
    ),
    # o = α (d_i − θ) + h − h_i; g_i, h_i + (g_i / (K η) − h), d_i − g_i; seven vectors on the server
    "feddc": Hand(
        SGD + K * n * (2 * s + m) + n * (3 * s + m) + n * (4 * s + m),
        2 * MEAN + n * (6 * s + 3 * m),
        (8 * n, 8 * n),
        (8 * n, 4 * n + 4),
    ),
    # o = λ_i − ρ θ; λ_i + ρ (θ_i − θ); θ_i + λ_i / ρ
    "fedpd": Hand(SGD + K * n * (2 * s + m) + n * (4 * s + 3 * m), MEAN, (4 * n, NOTHING), (4 * n, 4 * n)),
    # the same; θ_i is kept, too, and whether it was asked
    "fedpd,begin=own": Hand(
        SGD + K * n * (2 * s + m) + n * (4 * s + 3 * m), MEAN, (8 * n + 4, NOTHING), (4 * n, 4 * n)
    ),
    # c = 2 θ − z_i, o = −c / s; z_i + 2 (θ_i − θ). Whether it was asked takes 4 bytes
    "fedsplit": Hand(SGD + K * n * (2 * s + m) + n * (3 * s + 3 * m), MEAN, (4 * n + 4, NOTHING), (4 * n, 4 * n)),
    # o = (1 − α) h; α ∇L + o in every step; mean(1/K)/η (θ − θ̄')
    "fedcm": Hand(SGD + n * m + K * n * (s + m), 2 * MEAN + n * (s + m), (NOTHING, 4 * n), (8 * n, 4 * n + 4)),
    # o = β h; (1 − β) ∇L + o in every step; (1 − β) (mean of ∇L_i) + β h
    "mimelite": Hand(SGD + G + n * m + K * n * (s + m), 2 * MEAN + n * (s + 2 * m), (NOTHING, 8 * n), (12 * n, 8 * n)),
    # o = −β θ; λ (θ̄_prev − θ̄); θ̄ − h
    "fedacg": Hand(SGD + n * m + K * n * (2 * s + m), MEAN + n * (2 * s + m), (NOTHING, 4 * n), (4 * n, 4 * n)),
    # β m + ∇L; two means
    "local-momentum": Hand(SGD + K * n * (s + m), 2 * MEAN, (NOTHING, 4 * n), (8 * n, 8 * n + 4)),
    # as VRL-SGD
    "scaffnew": Hand(SGD + K * n * s + 2 * n * (2 * s + m), MEAN, (8 * n + 4, NOTHING), (4 * n, 4 * n)),
    # ∇L(w) − ∇L(θ) + h
    "fsvrg": Hand(SGD + G + K * (g + 2 * n * s), 2 * MEAN, (NOTHING, 4 * n), (12 * n, 8 * n + 8)),
    # ∇L(w) − ∇L(w') + m
    "bvr-l-sgd": Hand(SGD + G + K * (g + 2 * n * s), 2 * MEAN, (NOTHING, 4 * n), (12 * n, 8 * n)),
    # (1 − β) (∇L(w) − ∇L(θ)) + h; the server as MimeLite's
    "mime": Hand(SGD + G + K * (g + n * (2 * s + m)), 2 * MEAN + n * (s + 2 * m), (NOTHING, 8 * n), (12 * n, 8 * n)),
    # √v + τ; 1 over that, times 1 − β₁; β₁ h over that; s ∇L + o in every step; five products and two sums for h and v
    "mimelite-adam": Hand(
        SGD + G + n * (s + 4 * m) + K * n * (s + m),
        2 * MEAN + n * (2 * s + 5 * m),
        (NOTHING, 12 * n),
        (16 * n, 8 * n),
    ),
    # w + (r / ‖∇L‖) ∇L
    "fedsam": Hand(SGD + K * (g + n * (s + m)), MEAN, (NOTHING, NOTHING), (4 * n, 4 * n + 4)),
    # both that and FedCM's
    "mofedsam": Hand(
        SGD + n * m + K * (g + n * (2 * s + 2 * m)), 2 * MEAN + n * (s + m), (NOTHING, 4 * n), (8 * n, 4 * n + 4)
    ),
    # both that and FedDyn's
    "fedspeed": Hand(
        SGD + n * (s + m) + K * (g + n * (3 * s + 2 * m)) + 2 * n * s,
        MEAN + n * (2 * s + m) + n * s,
        (4 * n, 4 * n),
        (4 * n, 4 * n),
    ),
    # θ' − θ, its square, times a number; w + e in every step. Whether it was asked takes 4 bytes
    "fedlesam": Hand(SGD + n * (2 * s + 2 * m) + K * n * s, MEAN, (4 * n + 4, NOTHING), (4 * n, 4 * n + 4)),
    # A client keeps its model; private numbers aren't sent
    "fedper": Hand(SGD, MEAN, (4 * n, NOTHING), (4 * n - 4 * q, 4 * n - 4 * q + 4)),
    "fedbn": Hand(SGD, MEAN, (4 * n, NOTHING), (4 * n - 4 * q, 4 * n - 4 * q)),
    # o = −λ θ; two trainings, one of them with a spring
    "ditto": Hand(2 * SGD + n * m + K * n * (2 * s + m), MEAN, (4 * n, NOTHING), (8 * n, 4 * n)),
}

by_hand = pytest.mark.parametrize("name", BY_HAND)


class TestCounts:
    @by_hand
    def test_counted_formulas_are_those_by_hand(self, name: str) -> None:
        found, expected = cost_of(name), BY_HAND[name]
        assert found.client.arithmetic == expected.client
        assert found.server.arithmetic == expected.server
        assert (found.client_bytes, found.server_bytes) == expected.storage
        assert (found.down, found.up) == expected.sent

    def test_a_private_part_is_counted_where_the_model_is_known(self) -> None:
        """Of the paper's MLP on 784 inputs, the last layer has 10 (100 + 1) numbers."""
        known = adabest.round_costs("mlp", algorithms=["fedper", "fedper,layers=2"], input_shape=(784,))
        of = known.algorithms["fedper"]
        assert (str(of.down), str(of.up)) == ("4n - 4040", "4n - 4036")
        assert of.down.value(known.sizes.values()) == 4 * (785 * 100 + 101 * 100)
        assert str(known.algorithms["fedper,layers=2"].down) == f"4n - {4 * (1010 + 10100)}"
        assert not any("private" in note for note in known.notes)

    def test_a_private_part_without_a_model_stays_a_symbol(self) -> None:
        found = adabest.round_costs(algorithms=["fedbn"], parameters=1000)
        assert str(found.algorithms["fedbn"].down) == "4n - 4q"
        assert any("q, of them the private ones, isn't known without a model" in note for note in found.notes)

    def test_a_private_part_that_the_model_lacks_is_refused(self) -> None:
        with pytest.raises(InputError, match=r"no normalisation layers with parameters; it has 1\.weight, 1\.bias"):
            adabest.round_costs("mlp", algorithms=["fedbn"], input_shape=(784,))

    @every_algorithm
    def test_gradients_of_a_step_are_as_many_as_are_listed(self, name: str) -> None:
        """As in K(2g + ...)."""
        gradients = cost_of(name).client.arithmetic.value({"n": 0, "K": 1, "|P|": 1, "g": 1, "G": 0, "s": 1, "m": 1})
        trainings = ALGORITHMS.find(name)().phases.count(Work.TRAIN)
        assert gradients == trainings * (1 + RECORDS[name].two_gradients)

    def test_every_algorithm_was_worked_out_by_hand(self) -> None:
        assert set(NAMES) <= set(BY_HAND)

    @pytest.mark.parametrize("name", [*CORE, "adabest,beta=auto"])
    def test_clipping_decay_and_scored_model_cost_all_the_same(self, name: str) -> None:
        """Clipping scales by one number, of which the norm must be known; weight decay adds λw."""
        found = costs_of(name)
        assert found.guards.arithmetic == K * n * m + K * n * (s + m)
        assert found.guards.other == K * n * symbol("linalg_vector_norm")
        assert (
            found.guards.numbers == 6 * K
        )  # infinite? 1/norm, times c, at most one, a number that is none, which of them
        assert found.scored.arithmetic == P * n * (2 * s + m) + n * m
        assert found.scored.other == P * n * symbol("copy") + 3 * n * symbol("copy")
        assert (found.scored_client_bytes, found.scored_server_bytes) == (4 * n, 8 * n)

    def test_other_operations_are_counted_by_name(self) -> None:
        others = {name: (str(of.client.other), str(of.server.other)) for name, of in core_costs().items()}
        assert others["adabest"] == ("n neg", "n copy")
        assert others["scaffold"] == ("0", "2n copy")
        assert others["scaffold-gradient"] == ("n abs + n amax", "2n copy")
        assert {others[name] for name in ("fedavg", "fedprox", "feddyn")} == {("0", "n copy")}

    def test_an_option_of_an_algorithm_counts(self) -> None:
        """Outside of the clipping FedDyn's μw joins the weight decay, which then adds nothing."""
        found = costs_of("feddyn,clip_proximal=false")
        assert found.client.arithmetic == BY_HAND["feddyn"].client
        assert found.guards.arithmetic == K * n * m

    def test_double_precision_doubles_what_are_numbers(self) -> None:
        found = costs_of("adabest", "float64")
        assert (found.client_bytes, found.server_bytes) == (8 * n + 8, 8 * n + 24)
        assert (found.down, found.up) == (8 * n + 8, 8 * n + 8)
        assert found.client == costs_of("adabest").client

    def test_several_exchanges_add_up(self) -> None:
        found = costs_of(FedDane())
        assert str(found.client.arithmetic) == "K(g + 3ns + 2nm) + G + 2ns + nm"
        assert found.server.arithmetic == 2 * MEAN
        assert (found.down, found.up) == (12 * n, 8 * n)

    @core_and_others
    @settings(deadline=None, max_examples=15)
    @given(st.integers(2, 400), st.integers(1, 7), st.integers(1, 6))
    def test_the_formulas_hold_at_any_size(self, name: str, size: int, steps: int, replies: int) -> None:
        algorithm, sizes, found = ALGORITHMS.find(name)(), Sizes(size, steps, replies), cost_of(name)
        counted = count_round(algorithm, sizes, BARE)
        for counts, compute in ((counted.client, found.client), (counted.server, found.server)):
            gradients, full_gradients = counts.pop("g", 0), counts.pop("G", 0)
            everything = (compute.arithmetic + compute.other + compute.numbers).value(sizes.values())
            assert sum(counts.values()) == everything
            assert gradients in (0, steps)
            assert full_gradients in (0, algorithm.phases.count(Work.GRADIENT))
            for kind in ("s", "m"):
                mine = compute.arithmetic.with_symbol(kind)
                on_numbers = compute.numbers.value(sizes.values())
                assert 0 <= counts.get(kind, 0) - mine.value(sizes.values()) <= on_numbers
        for kind, formula in {
            "client": found.client_bytes,
            "server": found.server_bytes,
            "down": found.down,
            "up": found.up,
        }.items():
            assert counted.sizes[kind] == formula.value(sizes.values())

    @core_and_others
    def test_the_engine_does_no_more(self, name: str) -> None:
        """What the reference engine does to vectors is what is counted; the rest of it is about losses."""
        algorithm, training = ALGORITHMS.find(name)(), LocalTraining(weight_decay=1e-3)
        counts = {}
        for size in (500, 700):
            task = Flat(size)
            simulation = Simulation(
                algorithm, task, np.arange(4), training=training, attendance=Attendance(participation=1.0)
            )
            simulation.step()
            engine, clients, counter = (
                ReferenceEngine(no_heartbeat),
                {0: simulation.client_state(0)},
                OperationCounter(),
            )
            stacked, looked_at = 0, 0
            for phase, work in enumerate(algorithm.phases):
                context = simulation.context(2, phase)
                message = algorithm.downlink(simulation.state.server, simulation.state.cloud, context)
                with counter:
                    (answers,) = engine.exchange([simulation._request(work, clients, message, context)])
                assert isinstance(answers, Answers)
                clients = states_by_client(answers)
                stacked += sum(field.shape[-1] == size for field in (*answers.states, *answers.replies))
                looked_at += sum(field.shape[-1] == size for field in answers.states)
            counts[size] = counter.counts
        found = cost_of(name)
        expected = found.client.arithmetic + found.guards.arithmetic
        more = {kind: Fraction(counts[700][kind] - counts[500][kind], 200) for kind in counts[700]}
        values = {**Sizes(1, steps=Flat.pace).values(), "n": 1}
        for kind in ("s", "m"):
            guards = looked_at if kind == "s" else 0
            assert more[kind] == expected.with_symbol(kind).value(values) + guards
        of_algorithm = (expected + found.client.other + found.guards.other).value(values)
        assert sum(more.values()) == of_algorithm + stacked + looked_at, (
            "answers are copied once, to be stacked, and what is kept is summed once, to see whether it is finite"
        )


def core_costs() -> dict[str, AlgorithmCosts]:
    return {name: cost_of(name) for name in CORE}


@functools.cache
def cost_of(name: str) -> AlgorithmCosts:
    return costs_of(name)


class Flat:
    """Clients whose gradient is the same everywhere."""

    pace = 3
    metrics = (ACCURACY,)

    def __init__(self, size: int) -> None:
        self._gradient = torch.linspace(-1.0, 1.0, size)

    def initial_model(self) -> Tensor:
        return torch.ones_like(self._gradient)

    def samples(self, client: int) -> int:
        return 5 + client

    def steps(self, client: int) -> int:
        return self.pace

    def mask_of(self, part: Part) -> Tensor:
        return torch.arange(len(self._gradient)) == 0

    def local_pass(self, w: Tensor, client: int, round_number: int, step: int) -> LocalPass:
        return LocalPass(self._gradient, torch.zeros(()), torch.zeros(()))

    def full_gradient(self, w: Tensor, client: int) -> Tensor:
        return self._gradient

    def test(self, w: Tensor, heartbeat: Heartbeat = no_heartbeat) -> Scores:
        return Scores(0.0, {"accuracy": 0.0})

    def validate(self, w: Tensor, heartbeat: Heartbeat = no_heartbeat) -> ValidationScores | None:
        return None


class TestPaper:
    """Appendix "Algorithmic Costs": its formulas with n = 10, K = 3, |P| = 4, g = 1000."""

    VALUES = Sizes(10, 3, 4).values() | {"g": 1000}

    @pytest.mark.parametrize(
        ("algorithm", "client", "server"),
        [
            ("fedavg", 3 * 1020, 40),
            ("scaffold-m", 3 * 1020 + 60 + 40, 40 + 20 + 20),
            ("feddyn", 3 * 1020 + 90 + 30 + 20, 40 + 30 + 10),
            ("adabest", 3 * 1020 + 30 + 20, 40 + 20 + 10),
        ],
    )
    def test_compute(self, algorithm: str, client: int, server: int) -> None:
        paper = cost_of(algorithm).paper
        assert paper.client is not None
        assert paper.server is not None
        assert paper.client.value(self.VALUES) == client
        assert paper.server.value(self.VALUES) == server

    def test_storage_and_communication(self) -> None:
        papers = {name: cost_of(name).paper for name in CORE}
        for name in ("scaffold-m", "feddyn", "adabest"):
            assert papers[name].client_storage == papers[name].server_storage == n
        sent = {name: (str(paper.down), str(paper.up)) for name, paper in papers.items() if paper.down is not None}
        assert sent == {
            "scaffold": ("2n", "2n"),
            "scaffold-m": ("2n", "n"),
            "feddyn": ("n", "n"),
            "adabest": ("n", "n"),
        }

    def test_the_paper_leaves_some_costs_out(self) -> None:
        assert set(vars(cost_of("fedprox").paper).values()) == {None}
        assert cost_of("scaffold").paper.client is None
        assert cost_of("fedavg").paper.client_storage is None
        assert set(vars(costs_of(FedDane()).paper).values()) == {None}

    def test_an_algorithm_derived_from_the_papers_has_no_published_costs(self) -> None:
        assert costs_of(Wasteful()).paper.client is None
        assert costs_of(AdaBest(beta=0.5)).paper.client == cost_of("adabest").paper.client

    def test_the_papers_order_of_the_algorithms_is_ours(self) -> None:
        """AdaBest computes least of the three on both sides; a step of SCAFFOLD costs what AdaBest's does, though."""
        values = Sizes(1000).values()
        for side in ("client", "server"):
            theirs = {name: getattr(cost_of(name).paper, side).value(values) for name in ("scaffold-m", "feddyn")}
            ours = {name: getattr(cost_of(name), side).arithmetic.value(values) for name in theirs}
            adabest = cost_of("adabest")
            assert getattr(adabest.paper, side).value(values) < min(theirs.values())
            assert getattr(adabest, side).arithmetic.value(values) < min(ours.values())


@dataclass(frozen=True)
class Wasteful(AdaBest):
    """AdaBest that works out its offset twice, takes a root, and sends its estimate along."""

    class LongReply(NamedTuple):
        model: Model
        samples: Number
        estimate: Vector

    def reply_type(self, phase: int) -> type[Any]:
        return self.LongReply

    def client_start(self, client: Any, message: Any, context: ClientContext) -> Correction:
        correction = super().client_start(client, message, context)
        assert correction.offset is not None
        return correction._replace(offset=(correction.offset + correction.offset.abs().sqrt() * 0.0))

    def client_finish(self, client: Any, message: Any, model: Tensor, context: ClientContext) -> Any:
        kept, reply = super().client_finish(client, message, model, context)
        return kept, self.LongReply(reply.model, reply.samples, kept.h)


@dataclass(frozen=True)
class Squares(FedAvg):
    """FedAvg with a matrix of all products."""

    def server_step(self, server: Any, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        torch.outer(cloud, cloud)
        return super().server_step(server, cloud, replies, context)


@dataclass(frozen=True)
class Broken(FedAvg):
    """FedAvg that fails."""

    def server_step(self, server: Any, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        raise ZeroDivisionError("by hand")


class TestOwnAlgorithms:
    @pytest.mark.usefixtures("trusting")
    def test_waste_is_seen(self) -> None:
        wasteful, plain = costs_of(f"{__name__}:Wasteful"), cost_of("adabest")
        assert wasteful.client.arithmetic - plain.client.arithmetic == n * s + n * m
        assert wasteful.client.other - plain.client.other == n * symbol("abs") + n * symbol("sqrt")
        assert wasteful.up - plain.up == 4 * n
        assert wasteful.server.arithmetic == plain.server.arithmetic  # nobody averages it

    def test_an_undeclared_reply_is_told(self) -> None:
        class Undeclared(Wasteful):
            def reply_type(self, phase: int) -> type[Any]:
                return self.Reply

        with pytest.raises(
            InputError, match=r"it has the fields model, samples, estimate; they should be model, samples"
        ):
            costs_of(Undeclared())

    def test_unknown_operations_are_told_in_the_notes(self) -> None:
        found = adabest.round_costs(parameters=100, algorithms=["adabest", Wasteful()])
        (note,) = [note for note in found.notes if note.startswith("Neither s nor m")]
        assert "n neg (adabest); n abs + n neg + n sqrt (wasteful)" in note

    def test_costs_without_a_formula_are_refused(self) -> None:
        with pytest.raises(
            InputError, match=r"no formula for the costs of squares: \d+ of 'm' were counted at n = 3000"
        ):
            costs_of(Squares())

    def test_an_algorithms_error_says_when_it_was_made(self) -> None:
        with pytest.raises(ZeroDivisionError) as caught:
            costs_of(Broken())
        assert caught.value.__notes__ == ["while the costs of broken were counted"]


class TestRuns:
    """The bytes that a run counts are those of the table."""

    @pytest.mark.parametrize("algorithm", [*CORE, f"{__name__}:Wasteful", "feddane"])
    @pytest.mark.parametrize("precision", ["float32", "float64"])
    def test_bytes(self, algorithm: str, precision: Any, tmp_path: Path) -> None:
        done = run(tmp_path / "run", algorithm=algorithm, precision=precision, rounds=3, unbalance=0.3)
        table = adabest.round_costs(
            "mlp,hidden=8",
            algorithms=[algorithm],
            input_shape=(1, 6, 6),
            classes=3,
            participants=3,
            population=8,
            precision=precision,
        )
        assert table.sizes.parameters == done.identity["parameters"]
        (row,) = table.tables["communication-down"].rows
        assert done.final["bytes_down"] == 3 * 3 * int(row[4].replace(",", ""))
        (row,) = table.tables["communication-up"].rows
        assert done.final["bytes_up"] == 3 * 3 * int(row[4].replace(",", ""))

    @every_algorithm
    def test_storage(self, name: str) -> None:
        """What a checkpoint would hold."""
        size, clients = 50, 6
        simulation = Simulation(
            ALGORITHMS.find(name)(), Flat(size), np.arange(clients), attendance=Attendance(participation=0.5)
        )
        for _ in range(6):
            simulation.step()
        tensors, seen = simulation.snapshot().tensors, len(simulation.state.clients)
        assert 3 < seen <= clients

        def kept(prefix: str) -> int:
            return sum(t.numel() * t.element_size() for key, t in tensors.items() if key.startswith(prefix))

        found, values = cost_of(name), {"n": size}
        assert kept("server.") == found.server_bytes.value(values)
        assert kept("clients.state.") == seen * found.client_bytes.value(values)
        assert kept("clients.model") == seen * found.scored_client_bytes.value(values)
        assert kept("scored.total") == found.scored_server_bytes.value(values)
