"""Settings that were given and change nothing are told of, each in a sentence."""

import warnings
from pathlib import Path
from typing import Any

import pytest

import adabest
from adabest.cli import main
from adabest.runs.settings.config import Config
from adabest.runs.settings.idle_settings import warn_of_idle_settings

COMPLETE: dict[str, Any] = {"dataset": "digits", "partition": "dirichlet", "precision": "float32"}


def told(given: dict[str, Any], *others: dict[str, Any], seeds: list[int] | None = None) -> list[str]:
    configs = [Config(**{**COMPLETE, **given, **one}) for one in others or ({},)]
    with warnings.catch_warnings(record=True, action="always") as caught:
        warn_of_idle_settings(given, configs, seeds)
    return [str(one.message) for one in caught]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"alpha": 0.1, "partition": "iid"}, "partition iid has no Dirichlet priors"),
        ({"alpha": 0.1, "partition": "natural"}, "partition natural has no Dirichlet priors"),
        ({"shards": 3}, "partition dirichlet cuts no shards"),
        ({"local_steps": "mean"}, "the same number of samples"),
        ({"sampler": "weighted", "participation": 1.0}, "with participation = 1"),
        ({"churn": 0.1, "rounds": 1}, "there is only one"),
        ({"learning_rate_decay": 0.9, "rounds": 1}, "there is only one"),
        ({"stop_after": 20, "rounds": 20}, "no run of 20 rounds, evaluated every 10, is 20 rounds without"),
        ({"stop_after": 5, "rounds": 20, "evaluate_every": 10}, "before its last evaluation"),
        ({"stop_after": 19, "rounds": 20, "evaluate_every": 1}, "before its last evaluation"),
        ({"stop_at": 0.9, "rounds": 20, "evaluate_every": 20}, "the first evaluation is that of the last round"),
        ({"epochs": 2, "local_steps": "uniform:1:5"}, "draws the number of steps"),
        ({"epochs": 2, "algorithm": "scaffnew"}, "scaffnew says itself how many steps its clients make"),
        ({"local_steps": "uniform:1:5", "algorithm": "scaffnew"}, "scaffnew says itself how many steps"),
        ({"local_steps": "mean", "algorithm": "scaffnew", "unbalance": 0.3}, "scaffnew says itself how many steps"),
        ({"sampler": "weighted", "participation": 0.99, "clients": 20}, "with participation = 0.99"),
        ({"schedule": ("30:leave:0-4",), "rounds": 20}, "its first event is in round 30"),
        ({"clients_in_parallel": 4, "engine": "reference"}, "one client after another"),
        ({"clients_in_parallel": 4, "precision": "bf16"}, "one client trains at a time"),
        ({"client_device_memory": "1GiB"}, "device cpu has no GPU memory"),
        ({"backend": "gloo"}, "torchrun"),
        ({"hyperparameters": {"patience": 9}}, "beta_decay = 1 leaves β as it is"),
        ({"data_dir": "data"}, "only the published data sets"),
    ],
)
def test_each_idle_setting_is_named_with_its_reason(given: dict[str, Any], why: str) -> None:
    messages = told(given)
    assert len(messages) == 1
    name = next(iter(given.get("hyperparameters", given)))
    assert messages[0].startswith(f"{name} has no effect: ")
    assert why in messages[0]


@pytest.mark.parametrize(
    "given",
    [
        {"alpha": 0.1},
        {"alpha": 0.1, "partition": "dirichlet-legacy"},
        {"alpha": 0.1, "shards": 5, "partition": "my_module:mine", "local_steps": "mean"},
        {"shards": 3, "partition": "shards"},
        {"local_steps": "mean", "unbalance": 0.3},
        {"sampler": "weighted"},
        {"sampler": "my_module:mine", "participation": 1.0},
        {"churn": 0.1, "learning_rate_decay": 0.9, "rounds": 2},
        {"stop_after": 18, "rounds": 20, "evaluate_every": 1},
        {"stop_at": 0.9, "rounds": 20, "evaluate_every": 19},
        {"epochs": 2, "local_steps": "mean", "unbalance": 0.3},
        {"epochs": 2, "algorithm": "vrl-sgd"},
        {"epochs": 2, "algorithm": "a_module_that_nobody_named:Mine"},
        {"sampler": "bernoulli", "participation": 0.99, "clients": 20},
        {"sampler": "weighted", "participation": 0.97, "clients": 20},
        {"hyperparameters": {"patience": 9, "beta_decay": 0.5}},
        {"schedule": ("30:leave:0-4", "2:leave:7"), "rounds": 20},
        {"client_device_memory": "1GiB", "device": "cuda"},
        {"data_dir": "data", "dataset": "mnist"},
        {"data_dir": "data", "dataset": "my_module:mine"},
        {"partition": "iid"},
        {"partition": "iid", "alpha": 0.3},
    ],
)
def test_settings_with_an_effect_or_at_their_default_are_not_told_of(given: dict[str, Any]) -> None:
    assert told(given) == []


def test_a_setting_is_idle_only_where_it_is_so_in_every_run() -> None:
    given = {"alpha": 0.1}
    assert told(given, {"partition": "iid"}, {"partition": "dirichlet"}) == []
    assert len(told(given, {"partition": "iid"}, {"partition": "shards"})) == 1


def test_a_hyper_parameter_is_idle_only_where_it_is_so_in_every_run() -> None:
    runs = [{"hyperparameters": {"patience": 9, "beta_decay": decay}} for decay in (1.0, 0.5)]
    assert told({}, *runs) == []
    assert len(told({}, runs[0], {"algorithm": "fedavg"})) == 1


def test_a_seed_beside_seeds_is_told_of() -> None:
    assert told({"seed": 3}, seeds=[0, 1]) == ["seed has no effect: the seeds of these runs are those of seeds"]
    assert told({"seed": 3}) == []


def test_every_call_tells_of_idle_settings(tmp_path: Path, no_figure: None) -> None:
    small: dict[str, Any] = {
        "model": "logistic",
        "clients": 4,
        "rounds": 1,
        "epochs": 1,
        "partition": "iid",
        "alpha": 1,
    }
    alpha = "alpha has no effect: partition iid"
    with pytest.warns(UserWarning, match=alpha):
        adabest.partition(clients=4, partition="iid", alpha=1)
    with pytest.warns(UserWarning, match=alpha):
        adabest.run(out=tmp_path / "run", show=False, **small)
    with pytest.warns(UserWarning, match=alpha):
        adabest.compare(algorithms=["fedavg"], out=tmp_path / "compare", show=False, **small)
    with pytest.warns(UserWarning, match=alpha):
        adabest.tune(vary={"beta": [0.5]}, out=tmp_path / "tune", show=False, **small)
    small.pop("alpha")
    with pytest.warns(UserWarning, match=alpha):
        adabest.sweep(vary={"alpha": [0.1, 1.0]}, out=tmp_path / "sweep", show=False, **small)


def test_the_command_line_tells_of_what_was_given_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_figure: None
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match="alpha has no effect") as caught:
        assert main(["partition", "--clients", "4", "--partition", "iid", "--alpha", "0.1"]) == 0
    assert len(caught) == 1
    assert main(["partition", "--clients", "4", "--partition", "iid"]) == 0
