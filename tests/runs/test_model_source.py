"""One run builds one model and one engine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import dropping, tiny
from torch import nn

from adabest.engine.batched import BatchedEngine
from adabest.engine.lanes import advance_together
from adabest.engine.reference import ReferenceEngine
from adabest.errors import InputError
from adabest.models import factory
from adabest.runs import build, model_source
from adabest.runs.build import build_federation
from adabest.runs.execution import run_lanes
from adabest.runs.files.folder import RunFolder
from adabest.runs.model_source import count_run_parameters, take_model
from adabest.runs.process_settings import ProcessSettings
from adabest.runs.run_loop import PendingRun
from adabest.runs.settings.resolution import resolve


def make_factory(calls: list[int]) -> Callable[..., nn.Module]:
    """A factory of a user's own, which writes down its calls."""

    def own(input_shape: tuple[int, ...], classes: int) -> nn.Module:
        calls.append(classes)
        return dropping(input_shape, classes)

    return own


def planned(folder: Path, number: int, **changes: Any) -> PendingRun:
    config, components = resolve(tiny(**changes))
    return PendingRun(RunFolder(folder / str(number)), config, components, False)


class TestModels:
    @pytest.mark.parametrize("runs", [1, 3])
    def test_a_users_own_factory_is_called_once_per_run(self, runs: int, tmp_path: Path) -> None:
        calls: list[int] = []
        own = make_factory(calls)
        run_lanes([planned(tmp_path, number, model=own, seed=number, rounds=1) for number in range(runs)])
        assert len(calls) == runs

    @pytest.mark.parametrize("model", ["mlp,hidden=8", "logistic"])
    def test_a_built_in_model_is_counted_without_being_built(self, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
        config, components = resolve(tiny(model=model))
        built = take_model(config, components)
        monkeypatch.setattr(model_source, "build_model", None)
        assert count_run_parameters(config, components) == sum(p.numel() for p in built.parameters())

    def test_a_built_in_model_is_built_once_for_all_runs_that_share_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(model_source, "_BUILT", type(model_source._BUILT)())
        config, components = resolve(tiny(model="mlp,hidden=8"))
        first = take_model(config, components)
        expected = [parameter.detach().clone() for parameter in first.parameters()]
        with torch.no_grad():
            next(first.parameters()).zero_()
        monkeypatch.setattr(model_source, "build_model", None)
        second = list(take_model(config, components).parameters())
        assert all(torch.equal(one, other) for one, other in zip(second, expected, strict=True))

    @pytest.mark.parametrize("changes", [{"seed": 7}, {"model": "mlp,hidden=9"}, {"model": "logistic"}])
    def test_runs_with_other_seeds_or_models_build_their_own(
        self, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(model_source, "_BUILT", type(model_source._BUILT)())
        take_model(*resolve(tiny(model="mlp,hidden=8")))
        shared = take_model(*resolve(tiny(model="mlp,hidden=8") | changes))
        monkeypatch.setattr(model_source, "_BUILT", type(model_source._BUILT)())
        alone = take_model(*resolve(tiny(model="mlp,hidden=8") | changes))
        assert all(torch.equal(*pair) for pair in zip(shared.parameters(), alone.parameters(), strict=True))

    def test_few_built_in_models_are_kept_and_no_large_ones(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(model_source, "_BUILT", type(model_source._BUILT)())
        monkeypatch.setattr(model_source, "_LARGEST_KEPT", 500)
        for seed in range(model_source._KEPT + 2):
            take_model(*resolve(tiny(model="mlp,hidden=8", seed=seed)))
        assert len(model_source._BUILT) == model_source._KEPT
        kept = list(model_source._BUILT)
        take_model(*resolve(tiny(model="mlp,hidden=100")))
        assert list(model_source._BUILT) == kept

    def test_frozen_parameters_arent_counted(self) -> None:
        module = dropping((1, 6, 6), 3)
        next(module.parameters()).requires_grad_(False)
        assert factory.count_parameters(module, (1, 6, 6), 3) == 8 + 8 * 3 + 3

    def test_a_model_that_was_counted_has_the_weights_of_its_seed(self) -> None:
        calls: list[int] = []
        own = make_factory(calls)
        config, components = resolve(tiny(model=own, seed=5))
        count_run_parameters(config, components)
        counted, anew = (list(take_model(config, components).parameters()) for _ in range(2))
        assert len(calls) == 2
        assert all(torch.equal(one, other) for one, other in zip(counted, anew, strict=True))
        other_seed = take_model(*resolve(tiny(model=own, seed=6)))
        assert not torch.equal(counted[0], next(other_seed.parameters()))

    def test_factories_with_the_same_name_are_told_apart(self) -> None:
        narrow, wide = _linear(4), _linear(5)
        counts = [count_run_parameters(*resolve(tiny(model=own))) for own in (narrow, wide)]
        assert counts == [36 * 4 + 4 * 3, 36 * 5 + 5 * 3]

    def test_few_factories_are_remembered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(model_source, "_REMEMBERED", 2)
        monkeypatch.setattr(model_source, "_COUNTED", type(model_source._COUNTED)())
        for _ in range(4):
            count_run_parameters(*resolve(tiny(model=make_factory([]))))
        assert len(model_source._COUNTED) == 2

    def test_layers_of_open_size_are_refused(self) -> None:
        module = nn.Sequential(nn.Flatten(), nn.LazyLinear(3))
        with pytest.raises(InputError, match="size is still open"):
            count_run_parameters(*resolve(tiny(model=module)))


def _linear(width: int) -> Any:
    def make(input_shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(36, width, bias=False), nn.Linear(width, classes, bias=False))

    return make


class TestEngines:
    @pytest.mark.parametrize("engine", ["batched", "reference"])
    def test_lanes_share_the_only_engine(self, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        made: list[Any] = []

        def counted(*given: Any) -> Any:
            made.append(given)
            return BatchedEngine(*given) if engine == "batched" else ReferenceEngine(*given)

        monkeypatch.setattr(build, "BatchedEngine" if engine == "batched" else "ReferenceEngine", counted)
        run_lanes([planned(tmp_path, number, engine=engine, seed=number, rounds=1) for number in range(2)])
        assert len(made) == 1

    def test_a_simulation_makes_its_engine_with_its_first_step(self) -> None:
        config, components = resolve(tiny())
        with ProcessSettings.of(config, components).entered():
            simulation = build_federation(config, components).simulation
            advance_together([simulation.round()], ReferenceEngine(lambda: None))
            assert "engine" not in vars(simulation)
            simulation.step()
            assert simulation.engine is simulation.engine
