"""One local step by hand, for one client or many; the settings of local training."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from adabest.algorithms.base import Correction
from adabest.engine.local_step import Adam, Carried, LocalTraining, local_step, whole_step
from adabest.engine.step_numbers import UniformSteps
from adabest.errors import InputError


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a.double(), b.double(), rtol=1e-10, atol=1e-12)


class TestLocalStep:
    W = torch.tensor([1.0, 2.0], dtype=torch.float64)
    GRADIENT = torch.tensor([3.0, 4.0], dtype=torch.float64)
    OFFSET = torch.tensor([-1.0, 0.0], dtype=torch.float64)

    def step(self, training: LocalTraining, eta: float = 0.5, **correction: Any) -> list[float]:
        moved = local_step(self.W, self.GRADIENT, Correction(self.W, **correction), eta, training)
        assert torch.equal(self.W, torch.tensor([1.0, 2.0], dtype=torch.float64))  # the argument is untouched
        return moved.tolist()

    def test_a_local_step_is_that_by_hand(self) -> None:
        free = LocalTraining(clip=0)
        assert self.step(free) == [1 - 1.5, 2 - 2.0]
        assert self.step(free, scale=2.0) == [1 - 3.0, 2 - 4.0]
        assert self.step(free, offset=self.OFFSET) == [1 - 0.5 * 2, 2 - 0.5 * 4]
        assert self.step(free, rho=0.5) == [1 - 0.5 * 3.5, 2 - 0.5 * 5]
        assert self.step(free, rho_prime=0.5) == [1 - 0.5 * 3.5, 2 - 0.5 * 5]
        # 2 (3, 4) + (-1, 0) + .5 (1, 2) + (.25 + .25) (1, 2) = (6, 10)
        all_of_it: dict[str, Any] = {"scale": 2.0, "offset": self.OFFSET, "rho": 0.5, "rho_prime": 0.25}
        assert self.step(LocalTraining(clip=0, weight_decay=0.25), **all_of_it) == [1 - 3.0, 2 - 5.0]

    def test_clipping_covers_the_corrections_but_no_decay(self) -> None:
        # (3, 4) has norm 5 and becomes (1.5, 2); λ and ρ' come on top.
        assert self.step(LocalTraining(clip=2.5)) == pytest.approx([1 - 0.75, 2 - 1.0])
        decayed = self.step(LocalTraining(clip=2.5, weight_decay=2.0), rho_prime=1.0)
        assert decayed == pytest.approx([1 - 0.5 * (1.5 + 3), 2 - 0.5 * (2 + 6)])
        # ρ w and the offset are inside: (3, 4) + (3, 2) + 2 (1, 2) = (8, 10), cut to norm 1.
        inside = self.step(LocalTraining(clip=1.0), offset=torch.tensor([3.0, 2.0]).double(), rho=2.0)
        assert inside == pytest.approx([1 - 4 / math.hypot(8, 10), 2 - 5 / math.hypot(8, 10)])
        # The scale is inside too: half of (3, 4) is short enough.
        assert self.step(LocalTraining(clip=2.5), scale=0.5) == pytest.approx([1 - 0.75, 2 - 1.0])

    def test_clipping_leaves_short_gradients_alone(self) -> None:
        assert self.step(LocalTraining(clip=5.0)) == self.step(LocalTraining(clip=0))
        assert self.step(LocalTraining(clip=1e6)) == self.step(LocalTraining(clip=0))

    def test_a_gradient_of_zero_moves_nothing(self) -> None:
        still = local_step(self.W, torch.zeros_like(self.W), Correction(self.W), 0.5, LocalTraining(clip=1.0))
        assert torch.equal(still, self.W)

    @given(st.integers(0, 1000))
    def test_a_step_of_many_is_that_of_each(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        w, gradient, offset = torch.randn(3, 4, 5, 6, generator=generator, dtype=torch.float64) * 3
        scale, rho, rho_prime = torch.rand(3, 4, 5, 1, generator=generator, dtype=torch.float64)
        training = LocalTraining(clip=4.0, weight_decay=0.1)
        together = local_step(w, gradient, Correction(w, scale, offset, rho, rho_prime), 0.1, training)
        for place in np.ndindex(4, 5):
            numbers = [float(x[place]) for x in (scale, rho, rho_prime)]
            correction = Correction(w[place], numbers[0], offset[place], numbers[1], numbers[2])
            close(local_step(w[place], gradient[place], correction, 0.1, training), together[place])


class TestWholeStep:
    """Steps of a client with ∇L(w) = w − (4, 6), which starts at (1, 2), at a rate of 1/2."""

    W = torch.tensor([1.0, 2.0], dtype=torch.float64)
    ETA = 0.5

    def walk(self, correction: Correction, steps: int = 1, **training: Any) -> tuple[list[list[float]], Carried]:
        """The points after each step, and what is carried from the last one."""
        settings = LocalTraining(**{"clip": 0.0, **training})
        w, carried, points = self.W, Carried.at_start(correction, settings), []
        passed: list[Tensor] = []

        def gradient_at(point: Tensor) -> Tensor:
            passed[:] = [point - torch.tensor([4.0, 6.0], dtype=torch.float64)]
            return passed[0]

        for _ in range(steps):
            w, carried = whole_step(w, gradient_at, correction, self.ETA, settings, carried=carried)
            points.append(w.tolist())
        return points, carried

    def vector(self, *values: float) -> Tensor:
        return torch.tensor(values, dtype=torch.float64)

    def test_an_affine_correction_makes_the_plain_step(self) -> None:
        # ∇L = (−3, −4)
        assert self.walk(Correction(self.W)) == ([[2.5, 4.0]], Carried(1))

    def test_a_diagonal_scales_each_number(self) -> None:
        assert self.walk(Correction(self.W, scale=self.vector(2.0, 0.5)))[0] == [[1 + 3.0, 2 + 1.0]]

    def test_a_shift_moves_the_point_of_the_gradient_alone(self) -> None:
        # ∇L(2, 0) = (−2, −6); ρ w and the decay are at w.
        found, _ = self.walk(Correction(self.W, shift=self.vector(1.0, -2.0), rho=1.0), weight_decay=1.0)
        assert found == [[1 - 0.5 * (-2 + 1 + 1), 2 - 0.5 * (-6 + 2 + 2)]]

    def test_a_radius_goes_along_the_unclipped_gradient(self) -> None:
        # (−3, −4) / 5 · 10 = (−6, −8): the gradient at (−5, −6) is (−9, −12), which is cut to a norm of 5.
        assert self.walk(Correction(self.W, radius=10.0))[0] == [[1 + 4.5, 2 + 6.0]]
        clipped, _ = self.walk(Correction(self.W, radius=10.0, scale=3.0), clip=5.0)
        assert clipped[0] == pytest.approx([1 + 1.5, 2 + 2.0])

    def test_a_radius_with_a_shift_starts_there(self) -> None:
        # At (1, 2) + (3, 0) the gradient is (0, −4), so e = (3, 0) + (0, −2).
        found, _ = self.walk(Correction(self.W, radius=2.0, shift=self.vector(3.0, 0.0)))
        assert found == [[1 - 0.0, 2 + 3.0]]

    def test_a_radius_along_no_gradient_is_no_shift(self) -> None:
        still = Correction(self.W, radius=10.0, shift=self.vector(3.0, 4.0))  # to the minimum
        assert self.walk(still)[0] == [self.W.tolist()]

    def test_an_anchors_gradient_is_subtracted_before_the_scale(self) -> None:
        # ∇L(w) − ∇L(0, 0) = w
        found, _ = self.walk(Correction(self.W, scale=2.0, anchor=self.vector(0.0, 0.0)), steps=2)
        assert found == [[0.0, 0.0], [0.0, 0.0]]

    def test_the_point_before_is_an_anchor(self) -> None:
        # SARAH: the first step is along the velocity (2, 4), the next gradients are m + ∇L(w) − ∇L(w before).
        correction = Correction(self.W, previous=True, momentum=1.0, velocity=self.vector(2.0, 4.0))
        points, carried = self.walk(correction, steps=3)
        assert points == [[0.0, 0.0], [-0.5, -1.0], [-0.75, -1.5]]
        assert carried.velocity is not None
        assert carried.velocity.tolist() == [0.5, 1.0]

    def test_an_anchor_is_the_point_before_the_first_step(self) -> None:
        # w₋₁ = (3, 2): u = (−2, 0)
        found, _ = self.walk(Correction(self.W, previous=True, anchor=self.vector(3.0, 2.0)), steps=2)
        assert found == [[2.0, 2.0], [1.5, 2.0]]

    def test_momentum_is_heavy_ball_with_a_given_beginning(self) -> None:
        correction = Correction(self.W, momentum=0.5, velocity=self.vector(2.0, 0.0))
        points, carried = self.walk(correction, steps=2)
        assert points[0] == [1 - 0.5 * (1 - 3), 2 - 0.5 * -4]  # m = (1, 0) + (−3, −4)
        second = [0.5 * -2 + (2 - 4), 0.5 * -4 + (4 - 6)]
        assert points[1] == [2 - 0.5 * second[0], 4 - 0.5 * second[1]]
        assert carried.velocity is not None
        assert carried.velocity.tolist() == second

    def test_clipping_is_inside_of_the_momentum(self) -> None:
        # (−3, −4) becomes (−1.5, −2), and m is longer than the clip.
        found, _ = self.walk(Correction(self.W, momentum=0.5, velocity=self.vector(-6.0, -8.0)), clip=2.5)
        assert found[0] == pytest.approx([1 + 0.5 * 4.5, 2 + 0.5 * 6.0])

    def test_a_sum_of_all_directions_is_clipped_in_the_step_alone(self) -> None:
        correction = Correction(self.W, momentum=1.0, velocity=self.vector(-3.0, -4.0))
        points, carried = self.walk(correction, clip=5.0)
        assert points[0] == pytest.approx([1 + 1.5, 2 + 2.0])
        assert carried.velocity is not None
        assert carried.velocity.tolist() == [-6.0, -8.0]

    def test_plain_momentum_is_that_of_torch(self) -> None:
        w = self.W.clone().requires_grad_()
        optimiser = torch.optim.SGD([w], lr=self.ETA, momentum=0.9, weight_decay=0.0)
        points, _ = self.walk(Correction(self.W, momentum=0.9), steps=4)
        for point in points:
            w.grad = (w - torch.tensor([4.0, 6.0])).detach()
            optimiser.step()
            assert point == pytest.approx(w.tolist(), rel=1e-12)

    @pytest.mark.parametrize("decay", [0.0, 0.1])
    def test_adam_is_that_of_torch(self, decay: float) -> None:
        w = self.W.clone().requires_grad_()
        optimiser = torch.optim.AdamW([w], lr=self.ETA, betas=(0.8, 0.99), eps=1e-3, weight_decay=decay)
        adam = Adam(beta1=0.8, beta2=0.99, eps=1e-3)
        points, _ = self.walk(Correction(self.W), steps=5, optimizer=adam, weight_decay=decay)
        for point in points:
            w.grad = (w - torch.tensor([4.0, 6.0])).detach()
            optimiser.step()
            assert point == pytest.approx(w.tolist(), rel=1e-12)

    def test_adam_gets_the_clipped_direction_with_its_momentum(self) -> None:
        # The first step of Adam is one of length η along the sign of what it gets; here m = (1, −8).
        correction = Correction(self.W, momentum=0.5, velocity=self.vector(8.0, -8.0))
        found, carried = self.walk(correction, optimizer=Adam(eps=1e-30))
        assert found[0] == pytest.approx([1 - 0.5, 2 + 0.5])
        assert carried.first is not None
        assert carried.first.tolist() == pytest.approx([0.1 * 1, 0.1 * -8])

    def test_an_infinite_ascent_is_no_step_of_length_zero(self) -> None:
        correction = Correction(torch.ones(4), radius=1.0)
        w, training = torch.ones(4), LocalTraining(clip=0)
        stepped, _ = whole_step(w, lambda point: 1e30 * point, correction, 0.1, training, carried=Carried())
        assert stepped.isnan().all()

    def test_a_step_of_many_is_that_of_each(self) -> None:
        generator = torch.Generator().manual_seed(0)
        w, centre, shift, anchor, velocity, scale = torch.randn(6, 4, 5, generator=generator, dtype=torch.float64)
        radius, momentum = torch.rand(2, 4, 1, generator=generator, dtype=torch.float64)
        momentum[2] = 1.0  # a sum among averages
        training = LocalTraining(clip=1.0, weight_decay=0.1, optimizer=Adam())

        def three_steps(w: Tensor, centre: Tensor, correction: Correction) -> tuple[Tensor, Carried]:
            carried = Carried.at_start(correction, training)
            for _ in range(3):
                w, carried = whole_step(w, lambda point: point - centre, correction, 0.1, training, carried=carried)
            return w, carried

        for previous in (False, True):
            many = Correction(w, scale, None, 0.1, 0.0, shift, radius, anchor, previous, momentum, velocity)
            together, carried = three_steps(w, centre, many)
            for row in range(4):
                own_fields: Any = [x[row] if isinstance(x, Tensor) else x for x in many]
                one = Correction(*own_fields)
                after, own = three_steps(w[row], centre[row], one)
                close(after, together[row])
                assert own.velocity is not None
                assert carried.velocity is not None
                close(own.velocity, carried.velocity[row])


class TestUniformSteps:
    def test_every_number_is_as_likely(self) -> None:
        drawn = UniformSteps(2, 5).of(3, 7, np.arange(40_000))
        assert np.unique(drawn).tolist() == [2, 3, 4, 5]
        assert np.allclose(np.bincount(drawn)[2:] / 40_000, 0.25, atol=0.01)

    def test_a_clients_number_depends_on_seed_round_and_client(self) -> None:
        steps, some = UniformSteps(1, 1000), np.array([5, 2])
        drawn = steps.of(0, 1, np.arange(9))
        assert steps.of(0, 1, some).tolist() == drawn[some].tolist()
        others = [steps.of(seed, t, np.arange(9)).tolist() for seed, t in ((0, 1), (1, 1), (0, 2))]
        assert len({tuple(one) for one in others}) == 3

    def test_a_text_is_a_range(self) -> None:
        assert UniformSteps.parse("uniform:1:5") == UniformSteps(1, 5)
        assert UniformSteps.parse("own") is None
        for wrong in ("uniform:0:5", "uniform:3:2", f"uniform:1:{2**31}"):
            with pytest.raises(InputError, match="begin with 1 at least"):
                UniformSteps.parse(wrong)


class TestAdam:
    @pytest.mark.parametrize(("name", "value"), [("beta1", 1.0), ("beta2", -0.1), ("eps", 0.0), ("eps", math.inf)])
    def test_options_out_of_range_are_refused(self, name: str, value: float) -> None:
        with pytest.raises(InputError, match=f"{name} = {value}: it must be finite"):
            Adam(**{name: value})


class TestLocalTraining:
    def test_the_rate_decays_from_round_to_round(self) -> None:
        training = LocalTraining(learning_rate=0.1, learning_rate_decay=0.5)
        assert [training.eta(t) for t in (1, 2, 4)] == [0.1, 0.05, 0.0125]
        assert LocalTraining() == LocalTraining(0.1, 0.998, 0.0, 10.0)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("learning_rate", 0.0),
            ("learning_rate", -1.0),
            ("learning_rate", math.inf),
            ("learning_rate_decay", 0.0),
            ("learning_rate_decay", 1.001),
            ("weight_decay", -1e-9),
            ("weight_decay", math.nan),
            ("clip", -1.0),
            ("clip", math.inf),
        ],
    )
    def test_settings_out_of_range_are_refused(self, name: str, value: float) -> None:
        with pytest.raises(InputError, match=f"{name} = {value}: it must be finite and"):
            LocalTraining(**{name: value})  # type: ignore[arg-type]


def test_a_norm_too_large_for_a_number_is_no_step_of_length_zero() -> None:
    huge = torch.full((4,), 1e30)
    stepped = local_step(torch.ones(4), huge, Correction(torch.ones(4)), 0.1, LocalTraining(clip=10.0))
    assert stepped.isnan().all()
