"""Requests that no machine could meet are refused with an estimate, before they take its memory or its time."""

import math
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import adabest
from adabest import machine
from adabest.cli import main
from adabest.errors import InputError
from adabest.experiments.search import plan_search
from adabest.experiments.sweep import plan_sweep
from adabest.federation.batches import batch_table
from adabest.federation.partition import Scheme, cut
from adabest.federation.partitioners import Deal
from adabest.models.factory import build_model
from adabest.registry import naming
from adabest.runs.callbacks.memory_use import memory_used
from adabest.runs.settings.demand import MOST_RUNS, Demand, refuse_many_runs, refuse_many_threads
from adabest.runs.settings.resolution import resolve
from adabest.runs.settings.toml_file import read_toml

GIB = 2**30


@pytest.fixture(autouse=True)
def small_machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine with 8 GiB, and no test may take half of one more than those before it."""
    monkeypatch.setattr(machine, "total_memory", lambda: 8 * GIB)
    before = memory_used() or 0
    yield
    assert (memory_used() or 0) - before < GIB // 2


def refused(tmp_path: Path, **settings: Any) -> str:
    with pytest.raises(InputError) as refusal:
        adabest.run(out=tmp_path / "run", show=False, **{"rounds": 1, **settings})
    assert not (tmp_path / "run").exists()
    return str(refusal.value)


class TestRuns:
    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"epochs": 10**9}, "a client would make 2,000,000,000 local steps in a round"),
            ({"epochs": 10**7}, "about 29.6 GB of memory (29.6 GB for the samples of 20,000,000 steps"),
            ({"batch_size": 10**9}, "for the samples of 5 steps in batches of 1,000,000,000"),
            ({"batch_size": 10**9, "engine": "reference"}, "a round would need about 752 GB of memory"),
            ({"threads": 100_000}, "threads = 100,000: this machine has"),
            ({"model": "mlp,hidden=1000000000000"}, "would need about 2.4 PB of memory (2.4 PB for 8 vectors"),
            ({"model": "mlp,hidden=100000x100000"}, "8 vectors of 10,007,600,010 parameters"),
            ({"model": "mlp,hidden=9223372036854775807x9"}, "are too large to be made"),
            ({"model": "mlp,hidden=" + "x".join(["1"] * 1001)}, "hidden names 1,001 layers"),
            ({"model": "resnet,blocks=1000000000"}, "blocks = 1000000000"),
            ({"dataset": "synthetic,samples=1000000000000"}, "about 48 TB of memory (48 TB for labels of"),
            ({"dataset": "synthetic,shape=100000x100000"}, "1,000 samples to test with"),
            ({"dataset": "synthetic,classes=1000000000"}, "prototypes of 1,000,000,000 classes"),
            ({"dataset": "synthetic,test=1000000000000"}, "for 1,000,000,000,000 samples to test with"),
            ({"clients": 10**12}, "are more than the 1437 training samples"),
            ({"validation_clients": 10**12}, "are more than the 1437 training samples"),
            ({"partition": "shards", "shards": 10**12}, "110 clients × 1,000,000,000,000 shards"),
            ({"schedule": ["1:leave:0-" + "9" * 5000]}, "should look like 100:leave:0-49"),
            ({"client_memory": "9" * 400}, "a size looks like 6GiB"),
            ({"seed": 10**30}, "seed should be a whole number from -2⁶³ to below 2⁶³"),
            ({"rounds": 16**5000}, "not a number or list too long to be shown"),
            ({"alpha": 16**5000}, "not a number or list too long to be shown"),
        ],
        ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
    )
    def test_a_run_that_needs_too_much_is_refused(self, settings: dict[str, Any], words: str, tmp_path: Path) -> None:
        assert words in refused(tmp_path, **settings)

    def test_memory_of_clients_at_a_time_is_counted(self, tmp_path: Path) -> None:
        settings = {"epochs": 60_000, "participation": 1.0, "clients": 1000}
        assert "for 1,000 at a time" in refused(tmp_path, **settings)
        assert "for 500 at a time" in refused(tmp_path, clients_in_parallel=500, **settings)

    def test_the_largest_client_counts(self, tmp_path: Path) -> None:
        refused_even = refused(tmp_path, epochs=2 * 10**6)
        refused_uneven = refused(tmp_path, epochs=10**6, unbalance=1.5, clients=30)
        assert "steps in batches of 10" in refused_even
        assert "steps in batches of 10" in refused_uneven

    def test_a_million_rounds_ahead_take_nothing(self, tmp_path: Path) -> None:
        run = adabest.run(
            out=tmp_path / "run", show=False, rounds=10**15, evaluate_every=1, stop_at=0.001, clients=5, epochs=1
        )
        assert run.round < 5

    def test_sensible_runs_are_left_alone(self) -> None:
        resolve({"dataset": "synthetic,samples=1000000,shape=3x32x32,classes=10,test=10", "clients": 900_000})
        resolve({"threads": 256, "epochs": 1000, "batch_size": 1000})

    def test_an_estimate_is_above_what_is_measured(self) -> None:
        demand = Demand(epochs=400, batch_size=10, largest=100, clients=5, inputs=1, held_out=0)
        tracemalloc.start()
        try:
            batch_table(0, 1, np.arange(5), np.full(5, 100), epochs=400, batch_size=10)
            assert sum(demand.bytes().values()) > tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    def test_a_machine_with_more_cores_may_use_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("os.cpu_count", lambda: 1000)
        refuse_many_threads(1000)
        with pytest.raises(InputError, match="at most 1,000 threads"):
            refuse_many_threads(1001)


class TestPlans:
    NINE = tuple(k / 10 for k in range(1, 10))

    def test_a_sweep_of_nine_to_the_sixth_is_refused(self) -> None:
        axes = dict.fromkeys(("beta", "mu", "alpha", "learning_rate", "weight_decay", "clip"), self.NINE)
        with pytest.raises(InputError, match=r"531,441 combinations, .* are more than the 10,000 runs"):
            plan_sweep(axes, {})
        with pytest.raises(InputError, match="531,441 combinations"):
            plan_search({}, vary={("server_rate" if name == "alpha" else name): axes[name] for name in axes})

    def test_seeds_count(self) -> None:
        with pytest.raises(InputError, match=r"9 combinations × 2,000 seeds = 18,000 runs"):
            plan_sweep({"beta": self.NINE}, {}, seeds=list(range(2000)))

    def test_trials_count(self) -> None:
        pytest.importorskip("optuna")
        with pytest.raises(InputError, match="1,000,000,000 combinations"):
            plan_search({}, space=["beta=0:1"], trials=10**9)

    def test_too_many_values_of_one_setting_are_refused(self) -> None:
        with pytest.raises(InputError, match="200,000 combinations"):
            plan_search({}, space={"beta": [k / 10**6 for k in range(200_000)]})

    def test_the_limit_itself_is_taken(self) -> None:
        refuse_many_runs(MOST_RUNS)
        refuse_many_runs(MOST_RUNS // 10, 10)


class TestCosts:
    def test_batches_that_fit_nowhere_are_refused(self) -> None:
        with pytest.raises(InputError, match=r"one mini-batch gradient would need about 98\.3 PB"):
            adabest.round_costs(model="cnn", batch_size=10**12)

    def test_drawings_of_too_many_rounds_are_refused(self) -> None:
        with pytest.raises(InputError, match="at most 1,000 are drawn"):
            adabest.illustrate(rounds=10**12)


class TestConfigurations:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            (b"a = " + b"[" * 10**5, "isn't valid TOML: it is nested too deeply"),
            (b"a = " + b"{a=" * 10**5, "isn't valid TOML: it is nested too deeply"),
            (b"rounds = " + b"1" * 5000, "isn't valid TOML: Exceeds the limit"),
            (b"a." * 10**5 + b"a = 1", "has a key of over 100 parts"),
            (b'"a" . ' * 10**5 + b"a = 1", "has a key of over 100 parts"),
            (b"[" + b"a." * 10**5 + b"a]", "has a key of over 100 parts"),
            (b"#" * (2**20 + 1), "has more than 1,048,576 bytes"),
            (b"\xff", "isn't valid TOML"),
            (b"a = 1\0", "isn't valid TOML"),
            (b"a = 2020-99-99", "isn't valid TOML"),
        ],
        ids=lambda value: repr(value)[:20],
    )
    def test_hostile_files_are_refused(self, text: bytes, words: str, tmp_path: Path) -> None:
        path = tmp_path / "config.toml"
        path.write_bytes(text)
        with pytest.raises(InputError, match="the configuration ") as refusal:
            read_toml(path)
        assert words in str(refusal.value)
        assert str(path) in str(refusal.value)

    def test_long_rows_of_numbers_are_no_keys(self, tmp_path: Path) -> None:
        path = tmp_path / "config.toml"
        numbers = ", ".join(["0.5"] * 1000)
        path.write_text(f"vary = [\n{numbers}\n]\r\nout = 'a{'.b' * 150}'\n")
        assert len(read_toml(path)["vary"]) == 1000

    @pytest.mark.skipif(not Path("/dev/zero").exists(), reason="has no endless file")
    def test_an_endless_file_is_refused(self) -> None:
        with pytest.raises(InputError, match="has more than"):
            read_toml(Path("/dev/zero"))

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("rounds = 2020-01-01", "rounds should be a whole number, not datetime.date(2020, 1, 1)"),
            ("learning_rate = 10:00:00", "learning_rate should be a number"),
            ("dataset = 2020-01-01", "dataset should be"),
            ("algorithm = 2020-01-01", "unknown algorithm '2020-01-01'"),
            ("rounds = 0x" + "f" * 5000, "not a number or list too long to be shown"),
            ("alpha = 0x" + "f" * 5000, "not a number or list too long to be shown"),
            ("schedule = [0x" + "f" * 5000 + "]", "too long to be shown"),
            ("learning_rate = nan", "learning_rate = nan"),
            ("alpha = inf", "alpha = inf"),
            ("clip = -1", "clip = -1.0"),
            ("clip = nan", "clip = nan"),
            ("participation = nan", "participation = nan"),
            ("stop_at = nan", "stop_at = nan"),
            ('dataset = "mnist"\ndata_dir = "\\u0000"', "there is no such folder"),
            (f"dataset = 'mnist'\ndata_dir = '{'a' * 5000}'", "there is no such folder"),
            ("data_dir = '~nobody-has-this-name/data'", "name the folder with the data in full"),
            ("dataset = 'leaf,path=~nobody-has-this-name'", "path should be a path"),
        ],
    )
    def test_hostile_values_are_refused(
        self, line: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "config.toml").write_text(line + "\n")
        assert main(["run", "config.toml", "--rounds", "1"] if "rounds" not in line else ["run", "config.toml"]) == 2
        error = capsys.readouterr().err
        assert words in error
        assert "Traceback" not in error


def of_nobody(deal: Deal) -> Any:
    raise LookupError("nobody is there")


def too_short(deal: Deal) -> Any:
    return np.arange(3)


def no_numbers(deal: Deal) -> Any:
    return np.zeros(deal.sizes.sum())


def beyond(deal: Deal) -> Any:
    return np.arange(deal.sizes.sum()) + len(deal.labels)


def backwards(deal: Deal) -> Any:
    return list(range(deal.sizes.sum()))[::-1]


def silent(draw: Any) -> Any:
    raise RuntimeError


def ragged(draw: Any) -> Any:
    return [[1], [2, 3]]


def smaller(images: Tensor, keys: Tensor) -> Tensor:
    return images[..., 1:]


def broken_model(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    raise ValueError("no such weights")


def broken_data(size: int = 3) -> Any:
    raise KeyError("column")


def endless(what: "Nowhere") -> Any:  # type: ignore[name-defined] # noqa: F821
    return what


class TestComponents:
    """Functions of one's own that raise something, or give something else than they should."""

    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"partition": "os:system"}, "partition 'os:system' raised TypeError"),
            ({"partition": "math:pi"}, "raised TypeError: 'float' object is not callable"),
            ({"partition": "builtins:print"}, "gave a NoneType for all clients, not a list of whole numbers"),
            ({"partition": "builtins:exit"}, "raised SystemExit"),
            (
                {"partition": f"{__name__}:of_nobody"},
                "raised LookupError: nobody is there (test_demand.py, line",
            ),
            (
                {"partition": f"{__name__}:too_short"},
                "gave an array of 3 sample indices, but deal.sizes has 1430",
            ),
            ({"partition": f"{__name__}:no_numbers"}, "gave float64 of shape (1430,)"),
            (
                {"partition": f"{__name__}:beyond"},
                "gave client 0 the sample index 1437, but there are samples from 0",
            ),
            ({"sampler": "os:system"}, "the sampler 'os:system' raised TypeError"),
            ({"sampler": f"{__name__}:silent"}, "raised RuntimeError (test_demand.py"),
            ({"sampler": f"{__name__}:ragged"}, "gave [[1], [2, 3]] in round 1; it should give"),
            ({"augmentation": "builtins:print"}, "should return inputs as it got them"),
            ({"augmentation": f"{__name__}:smaller"}, "not torch.float32 of shape (2, 1, 8, 7)"),
            ({"loss": "os:system"}, "the loss system can't be computed"),
            ({"model": "os:system"}, "can't be called with (input_shape, classes)"),
            (
                {"model": f"{__name__}:broken_model"},
                "raised ValueError: no such weights (test_demand.py, line",
            ),
            ({"dataset": f"{__name__}:broken_data"}, "raised KeyError: 'column' (test_demand.py, line"),
            ({"dataset": f"{__name__}:endless"}, "can't be read off its signature: NameError"),
            ({"dataset": "os:listdir"}, "gave a list, not an adabest Dataset"),
            ({"dataset": "os:listdir,path=/nowhere"}, "raised FileNotFoundError: [Errno 2] No such file"),
        ],
    )
    def test_nonsense_is_refused(
        self, settings: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(InputError) as refusal:
            adabest.run(out=tmp_path / "run", show=False, rounds=1, **settings)
        assert words in str(refusal.value)

    def test_a_list_of_indices_will_do(self) -> None:
        scheme = Scheme(2, 1, f"{__name__}:backwards", alpha=1.0, unbalance=0.0, seed=0)
        with naming(scheme.partitioner):
            assert cut(np.zeros(6, np.int64), 1, scheme).indices.tolist() == [5, 4, 3, 2, 1, 0]

    def test_models_are_counted_without_a_draw(self) -> None:
        example = torch.zeros(2, 1, 8, 8)
        state = torch.get_rng_state()
        model = build_model("mlp,hidden=20", example, 10, seed=3)
        assert torch.equal(torch.get_rng_state(), state)
        weights = next(model.parameters()).detach()
        assert not weights.is_meta
        assert 0 < float(weights.std()) < 1 / math.sqrt(64)
