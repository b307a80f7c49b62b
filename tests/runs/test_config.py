"""One configuration: the same names in a file, in Python and on the command line, and errors that name them."""

import copy
import dataclasses
import functools
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import tiny_runs
import torch
from tiny_runs import Several, arguments, command, dropping, results, run, stripes, tiny
from torch import Tensor, nn
from torch.nn import functional

import adabest
from adabest import AdaBest, Config, FedAvg, InputError
from adabest.data.dataset import from_arrays
from adabest.runs.settings.resolution import resolve, resolve_again
from adabest.runs.settings.toml_file import read_toml, to_toml

# Every setting of a run, each at a value that isn't its default.
EVERYTHING: dict[str, Any] = {
    "dataset": "stripes",
    "data_dir": str(Path(__file__).parent),
    "algorithm": "feddyn",
    "model": "logistic",
    "task": "small_tasks:Classes",
    "loss": "torch.nn.functional:cross_entropy",
    "batch_norm": "group",
    "clients": 9,
    "validation_clients": 3,
    "partition": "dirichlet-legacy",
    "alpha": 0.8,
    "shards": 3,
    "unbalance": 0.2,
    "local_test": 0.25,
    "participation": 0.5,
    "sampler": "weighted",
    "churn": 0.1,
    "schedule": ["1:leave:0", "1:join:0"],
    "rounds": 1,
    "epochs": 2,
    "batch_size": 7,
    "batching": "short",
    "learning_rate": 0.07,
    "learning_rate_decay": 0.9,
    "weight_decay": 0.0,
    "clip": 0.0,
    "augmentation": "flip-crop",
    "local_steps": "mean",
    "local_optimizer": "adam,beta1=0.8",
    "bad_replies": "stop",
    "reply_limit": "1e6",
    "state_commit": "confirmed",
    "server_rate": 0.5,
    "scored_clients": "all",
    "score": "averaged",
    "metrics": ["f1_macro"],
    "average_from": 0.5,
    "seed": 5,
    "partition_seed": 6,
    "evaluate_every": 3,
    "stop_at": 0.99,
    "stop_after": 8,
    "checkpoint_every": 4,
    "tensorboard": True,
    "loggers": ["tiny_runs:Diary,title=all"],
    "callbacks": ["tiny_runs:Quiet,title=own"],
    "engine": "reference",
    "device": "cpu",
    "precision": "float64",
    "clients_in_parallel": 2,
    "backend": "gloo",
    "threads": 1,
    "client_memory": "1MiB",
    "client_device_memory": "2MiB",
    "client_disk": "3MiB",
    "mu": 0.3,
    "clip_proximal": False,
    "spring": 0.5,
    "sample_mean": "progressive",
}
OWN = {"mu", "clip_proximal", "sample_mean", "spring"}  # FedDyn's hyper-parameters


def write_toml(folder: Path, settings: dict[str, Any]) -> Path:
    path = folder / "settings.toml"
    path.write_text(to_toml(settings), encoding="utf-8")
    return path


class TestOneConfiguration:
    def test_the_settings_of_these_tests_are_all_there_are(self) -> None:
        defaults = Config()
        names = {field.name for field in dataclasses.fields(Config)} - {"hyperparameters"}
        assert names == EVERYTHING.keys() - OWN
        same = {name for name in names if EVERYTHING[name] == getattr(defaults, name)}
        assert same == {"device"}  # there is only one to choose from here

    @pytest.mark.usefixtures("trusting")
    @pytest.mark.filterwarnings("ignore:.* has no effect")  # not all of these settings can have one in the same run
    def test_python_file_and_command_line_say_the_same(self, tmp_path: Path) -> None:
        expected, _ = resolve(EVERYTHING)
        assert expected.flat() == EVERYTHING

        by_python = adabest.run(out=tmp_path / "python", show=False, **tiny_runs.with_algorithm(EVERYTHING))
        by_file = adabest.run(write_toml(tmp_path, EVERYTHING), out=tmp_path / "file", show=False)
        assert command("run", *arguments(**EVERYTHING, out=tmp_path / "options")) == 0
        assert command("run", tmp_path / "settings.toml", "--out", tmp_path / "both") == 0
        by_options, by_both = adabest.load(tmp_path / "options"), adabest.load(tmp_path / "both")
        assert by_python.config == by_file.config == by_options.config == by_both.config == expected

    def test_given_settings_override_the_file(self, tmp_path: Path) -> None:
        path = write_toml(tmp_path, tiny(rounds=4, beta=0.1, mu=0.2))
        by_python = adabest.run(path, out=tmp_path / "python", show=False, rounds=1, algorithm="adabest,beta=0.3")
        assert command("run", path, "--rounds", 1, "--beta", 0.3, "--out", tmp_path / "options") == 0
        by_options = adabest.load(tmp_path / "options")
        assert by_python.config == by_options.config
        assert by_options.config.rounds == 1
        assert by_options.config.clients == 8
        assert by_options.config.hyperparameters == vars(AdaBest(mu=0.2, beta=0.3))

    def test_an_option_overrides_a_specification_in_the_file(self, tmp_path: Path) -> None:
        path = write_toml(tmp_path, tiny(rounds=1, algorithm="adabest,beta=0.5,mu=0.1"))
        assert command("run", path, "--beta", 0.7, "--out", tmp_path / "run") == 0
        assert adabest.load(tmp_path / "run").config.hyperparameters == vars(AdaBest(mu=0.1, beta=0.7))

    def test_beta_is_a_number_or_auto_everywhere(self, tmp_path: Path) -> None:
        plain = tiny(rounds=1)
        ways = {
            "option": ["--beta", "auto"],
            "specification": ["--algorithm", "adabest,beta=auto"],
            "number": ["--beta", "0.5"],
        }
        for name, given in ways.items():
            assert command("run", *arguments(**plain, out=tmp_path / name), *given) == 0
        found = {name: adabest.load(tmp_path / name).config.hyperparameters["beta"] for name in ways}
        assert found == {"option": "auto", "specification": "auto", "number": 0.5}
        by_file = adabest.run(write_toml(tmp_path, {**plain, "beta": "auto"}), out=tmp_path / "file", show=False)
        assert by_file.config == adabest.load(tmp_path / "option").config
        assert by_file.config == resolve({**plain, "algorithm": AdaBest(beta="auto")})[0]

    def test_a_specification_overrides_the_file(self, tmp_path: Path) -> None:
        path = write_toml(tmp_path, tiny(rounds=1, beta=0.9))
        by_python = adabest.run(path, out=tmp_path / "python", show=False, algorithm="adabest,beta=0.5")
        assert command("run", path, "--algorithm", "adabest,beta=0.5", "--out", tmp_path / "options") == 0
        assert by_python.config == adabest.load(tmp_path / "options").config
        assert by_python.config.hyperparameters["beta"] == 0.5

    def test_a_file_that_says_two_things_means_one(self, tmp_path: Path) -> None:
        path = write_toml(tmp_path, tiny(rounds=1, algorithm="adabest,beta=0.5", beta=0.9))
        by_python = adabest.run(path, out=tmp_path / "python", show=False)
        assert command("run", path, "--out", tmp_path / "options") == 0
        assert by_python.config == adabest.load(tmp_path / "options").config

    def test_a_specification_sets_hyper_parameters(self) -> None:
        config, components = resolve({"algorithm": "adabest, beta=0.5"})
        assert config.algorithm == "adabest"
        assert config.hyperparameters == vars(AdaBest(mu=0.02, beta=0.5))
        assert components.algorithm == AdaBest(beta=0.5)

    def test_out_and_overwrite_may_stand_in_the_file(self, tmp_path: Path) -> None:
        path = write_toml(tmp_path, tiny(rounds=1, out=str(tmp_path / "here"), overwrite=True))
        first = adabest.run(path, show=False)
        assert first.folder == tmp_path / "here"
        assert command("run", path, "--rounds", 2) == 0
        assert adabest.load(tmp_path / "here").round == 2


class TestDefaults:
    def test_the_data_set_fills_in_defaults(self) -> None:
        config, _ = resolve({"dataset": "stripes"})
        assert (config.model, config.batch_size, config.weight_decay) == ("mlp,hidden=8", 8, 1e-3)
        assert config.augmentation == "none"
        digits, _ = resolve({})
        assert (digits.dataset, digits.model, digits.batch_size) == ("digits", "mlp,hidden=50", 10)

    def test_given_settings_stay_even_if_zero(self) -> None:
        config, _ = resolve(tiny(weight_decay=0, validation_clients=0, checkpoint_every=0, seed=4, partition_seed=0))
        assert (config.weight_decay, config.validation_clients, config.checkpoint_every) == (0.0, 0, 0)
        assert config.partition_seed == 0

    def test_the_partition_seed_is_the_seed(self) -> None:
        assert resolve(tiny(seed=4))[0].partition_seed == 4

    @pytest.mark.parametrize(
        # In floating point a tenth of the last is rounded away.
        ("clients", "held_out"),
        [(1, 1), (9, 1), (10, 1), (11, 2), (100, 10), (101, 11), (10**17 + 1, 10**16 + 1)],
    )
    def test_a_tenth_of_the_clients_validates(self, clients: int, held_out: int) -> None:
        assert resolve(tiny(clients=clients))[0].validation_clients == held_out

    def test_none_is_the_default(self) -> None:
        assert resolve(tiny(model=None, batch_size=None, threads=None)) == resolve(tiny())


class Complaints:
    """Gives settings in one of four ways, and returns what is said about the mistake in them."""

    def __init__(self, way: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.way, self._folder, self._capsys = way, folder, capsys

    def about(self, **mistake: Any) -> str:
        out, settings = self._folder / "run", tiny(**mistake)
        match self.way:
            case "python":
                own: dict[str, Any] = {name: settings.pop(name) for name in ("beta", "mu") if name in settings}
                if own:
                    settings = tiny_runs.with_algorithm({**settings, **own})
                text = self._raised(lambda: adabest.run(out=out, show=False, **settings))
            case "file":
                path = write_toml(self._folder, settings)
                text = self._raised(lambda: adabest.run(path, out=out, show=False))
            case "command line with a file":
                text = self._printed(write_toml(self._folder, settings), "--out", out)
            case _:
                # Joined with "=", so that a negative number isn't taken for an option.
                options = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
                text = self._printed(*options, "--out", out)
        assert not out.exists(), "a run was begun in spite of a mistake"
        return text

    def _raised(self, call: Callable[[], object]) -> str:
        with pytest.raises(InputError) as caught:
            call()
        return str(caught.value)

    def _printed(self, *given: Any) -> str:
        assert command("run", *given) == 2
        printed = self._capsys.readouterr()
        assert printed.out == ""
        return " ".join(printed.err.replace("│", " ").split())  # without the frames that the parser draws


@pytest.fixture(params=["python", "file", "command line with a file", "command line"])
def complaints(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Complaints:
    return Complaints(request.param, tmp_path, capsys)


class TestMistakes:
    @pytest.mark.parametrize(
        ("wrong", "right"), [("rouns", "rounds"), ("betta", "beta"), ("partition_sed", "partition_seed")]
    )
    def test_unknown_settings_are_refused_with_the_nearest(
        self, complaints: Complaints, wrong: str, right: str
    ) -> None:
        message = complaints.about(**{wrong: 3})
        if complaints.way == "command line":
            assert f"--{wrong.replace('_', '-')}" in message
            assert f"Perhaps you meant: --{right.replace('_', '-')}" in message
        else:
            assert f"unknown setting {wrong!r}" in message
            assert f"did you mean {right!r}?" in message

    def test_unknown_options_of_a_specification_are_refused(self, complaints: Complaints) -> None:
        assert "'betta'; did you mean 'beta'?" in complaints.about(algorithm="adabest,betta=0.5")
        assert "'mu'" in complaints.about(algorithm="fedavg,mu=0.5")

    @pytest.mark.parametrize(
        ("name", "value", "words"),
        [
            ("rounds", "many", "rounds should be a whole number, not 'many'"),
            ("rounds", 2.5, "rounds should be a whole number, not 2.5"),
            ("alpha", "big", "alpha should be a number, not 'big'"),
            ("beta", "big", "beta should be a number or 'auto', not 'big'"),
            ("beta", "automatic", "beta should be a number or 'auto', not 'automatic'"),
            (
                "batching",
                "replace",
                "batching = 'replace' isn't one of its values; did you mean 'replacement'? "
                "Known: replacement, short, top-up",
            ),
            ("precision", "float46", "did you mean 'float64'?"),
        ],
    )
    def test_values_of_wrong_types_are_refused(self, complaints: Complaints, name: str, value: Any, words: str) -> None:
        message = complaints.about(**{name: value})
        if complaints.way == "command line":  # the parser's own words
            assert f"--{name.replace('_', '-')}" in message
            assert str(value) in message
        else:
            assert words in message

    @pytest.mark.parametrize(
        ("name", "value", "words"),
        [
            ("rounds", 0, "rounds = 0: it must be at least 1"),
            ("evaluate_every", 0, "evaluate_every = 0: it must be at least 1"),
            ("epochs", 0, "epochs = 0: it must be at least 1"),
            ("batch_size", 0, "batch_size = 0: it must be at least 1"),
            ("checkpoint_every", -1, "checkpoint_every = -1: it must be at least 0"),
            ("client_memory", "6 gigs", "client_memory = '6 gigs': a size looks like 6GiB, 500MB or 0"),
            ("local_steps", "men", "local_steps = 'men' isn't one of its values; did you mean 'mean'?"),
            ("local_steps", "uniform:3:2", "uniform:3:2: the numbers of local steps begin with 1 at least"),
            ("local_optimizer", "adm", "local_optimizer = 'adm' isn't one of its values; did you mean 'adam'?"),
            ("local_optimizer", "adam,beta=1", "local_optimizer 'adam' has no option 'beta'"),
            ("local_optimizer", "adam,beta1=1", "beta1 = 1.0: it must be finite, at least 0 and below 1"),
            ("client_device_memory", "-1GB", "client_device_memory = '-1GB': a size looks like"),
            ("client_disk", "", "client_disk = '': a size looks like"),
            ("threads", 0, "threads = 0: it must be at least 1"),
            ("clients", 0, "clients = 0: at least one client must train"),
            ("clients", 220, "242 clients (220 to train, 22 to validate) are more than the 241 training samples"),
            ("validation_clients", -1, "validation_clients = -1: it can't be negative"),
            ("alpha", 0.0, "alpha = 0.0: the Dirichlet concentration must be above 0"),
            ("alpha", math.inf, "alpha = inf: the Dirichlet concentration must be above 0 and finite"),
            ("unbalance", -1.0, "unbalance = -1.0: the lognormal σ must be at least 0"),
            ("participation", 0.0, "participation = 0.0: it must be above 0 and at most 1"),
            ("participation", 1.5, "participation = 1.5: it must be above 0 and at most 1"),
            ("learning_rate", 0.0, "learning_rate = 0.0: it must be"),
            ("learning_rate_decay", 1.5, "learning_rate_decay = 1.5: it must be"),
            ("weight_decay", -1.0, "weight_decay = -1.0: it must be"),
            ("clip", -1.0, "clip = -1.0: it must be"),
            ("server_rate", 0.0, "server_rate = 0.0: it must be above 0"),
            ("beta", 1.5, "beta = 1.5 is out of range: it must be a finite number in [0, 1]"),
            ("mu", -0.1, "mu = -0.1 is out of range: it must be a finite number at least 0"),
            ("mu", math.nan, "mu = nan is out of range"),
            ("device", "gpu", "device 'gpu' is unknown; use cpu, cuda or cuda:N"),
            ("device", "meta", "device 'meta' isn't supported; use cpu, cuda or cuda:N"),
        ],
    )
    def test_values_out_of_range_are_refused(self, complaints: Complaints, name: str, value: Any, words: str) -> None:
        assert words in complaints.about(**{name: value})

    @pytest.mark.parametrize(
        ("name", "wrong", "right"),
        [
            ("dataset", "digit", "digits"),
            ("algorithm", "fedavgg", "fedavg"),
            ("model", "mpl", "mlp"),
            ("loss", "crossentropy", "cross-entropy"),
            ("partition", "dirichle", "dirichlet"),
            ("augmentation", "flipcrop", "flip-crop"),
        ],
    )
    def test_unknown_components_are_refused_with_the_nearest(
        self, complaints: Complaints, name: str, wrong: str, right: str
    ) -> None:
        kind = name.replace("dataset", "data set")
        assert f"unknown {kind} {wrong!r}; did you mean {right!r}?" in complaints.about(**{name: wrong})


@pytest.mark.usefixtures("trusting")
class TestMistakesInPython:
    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"rounds": True}, "rounds should be a whole number, not True"),
            ({"rounds": [1]}, r"rounds should be a whole number, not \[1\]"),
            ({"dataset": 5}, "dataset should be a name or a Dataset, not a int"),
            (
                {"dataset": np.zeros(3)},
                r"not a numpy ndarray; adabest\.from_arrays\(x_train, y_train, x_test, y_test\)",
            ),
            ({"dataset": pandas.DataFrame({"a": [1]})}, r"not a pandas DataFrame; adabest\.from_frame\(…\) makes one"),
            ({"algorithm": AdaBest}, "algorithm should be a name or an Algorithm"),
            ({"algorithm": AdaBest(), "beta": 0.5}, "unknown setting 'beta'"),
            ({"algorithm": "adabest,betta=0.5"}, "unknown setting 'betta'; did you mean 'beta'?"),
            ({"algorithm": "adabest,beta"}, "'beta' should be an option of the form key=value"),
            ({"algorithm": "math:pi"}, "algorithm 'math:pi' should be a subclass of adabest.Algorithm, not a float"),
            (
                {"algorithm": "adabest:Algorithm"},
                "algorithm 'adabest:Algorithm' lacks .*: client_finish, client_start, ",
            ),
            ({"algorithm": "builtins:int"}, "a subclass of adabest.Algorithm, not the class int"),
            ({"hyperparameters": {"beta": 0.5}}, "unknown setting 'hyperparameters'"),
        ],
    )
    def test_bad_settings_in_python_are_refused(self, settings: dict[str, Any], words: str) -> None:
        with pytest.raises(InputError, match=words):
            resolve(tiny(**settings))

    @pytest.mark.parametrize("model", [5, nn.Linear])
    def test_an_object_that_is_no_model_is_refused(self, model: Any, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="model"):
            tiny_runs.run(tmp_path / "run", model=model)

    def test_an_object_that_is_no_loss_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="loss"):
            tiny_runs.run(tmp_path / "run", loss=5)


class TestDevices:
    @pytest.mark.parametrize("name", ["cuda", "cuda:1"])
    def test_a_device_is_refused_where_there_is_none(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        with pytest.raises(InputError, match=f"device '{name}': torch finds no CUDA device here; use --device cpu"):
            tiny_runs.run(tmp_path / "run", device=name)

    def test_a_device_is_refused_where_there_are_too_few(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        with pytest.raises(InputError, match="device 'cuda:2': there are only 2 CUDA devices"):
            tiny_runs.run(tmp_path / "run", device="cuda:2")


@dataclasses.dataclass(frozen=True)
class Own(FedAvg):
    """An algorithm that can be imported."""

    gamma: float = 0.5


@dataclasses.dataclass(frozen=True)
class Demanding(FedAvg):
    """An algorithm with a hyper-parameter that has no default."""

    gamma: float


@dataclasses.dataclass(frozen=True)
class Clashing(FedAvg):
    """An algorithm that calls a hyper-parameter what every run calls something else."""

    learning_rate: float = 0.5


class Handmade(FedAvg):
    """Not a dataclass, so its hyper-parameter can't be read off."""

    def __init__(self, gamma: float = 0.5) -> None:
        object.__setattr__(self, "gamma", gamma)


def local_algorithm(gamma: float) -> FedAvg:
    @dataclasses.dataclass(frozen=True)
    class Local(FedAvg):
        gamma: float = 0.5

    return Local(gamma)


@pytest.mark.usefixtures("trusting")
class TestHyperparameters:
    def test_types_are_checked_and_kept(self) -> None:
        config, components = resolve({"algorithm": "tiny_runs:Several,often=yes,count=4,how=thus"})
        assert components.algorithm == Several(often=True, count=4, how="thus")
        assert {"often": True, "count": 4, "how": "thus"}.items() <= config.hyperparameters.items()
        with pytest.raises(InputError, match="often should be true or false, not 'perhaps'"):
            resolve({"algorithm": "tiny_runs:Several,often=perhaps"})
        for settings in ({"rounds": "2"}, {"learning_rate": "0.1"}, {"alpha": True}, {"clients": [3]}):
            with pytest.raises(InputError, match=f"{next(iter(settings))} should be a"):
                resolve(settings)
        with pytest.raises(InputError, match="algorithm should be a name or an Algorithm"):
            resolve({"algorithm": 5})
        with pytest.raises(InputError, match=r"AdaBest\(\), not AdaBest"):
            resolve({"algorithm": AdaBest})
        with pytest.raises(
            InputError, match=r"unknown setting 'beta'; it belongs to adabest.*; choose one of them, or leave beta out"
        ):
            resolve({"algorithm": "fedavg", "beta": 0.5})

    @pytest.mark.parametrize("seed", [-1, 2**63])
    @pytest.mark.parametrize("name", ["seed", "partition_seed"])
    def test_seeds_that_would_wrap_around_are_refused(self, name: str, seed: int) -> None:
        with pytest.raises(
            InputError, match=rf"{name} (= -1: it must be at least 0|should be a whole number .* below 2⁶³, not {seed})"
        ):
            resolve({name: seed})

    def test_hyper_parameters_of_several_numbers_survive_the_file(self) -> None:
        config, components = resolve(tiny(algorithm="tiny_runs:Several", rates=[0.3, 0.4]))
        assert components.algorithm == Several(rates=(0.3, 0.4))
        again, components = resolve_again(config.flat(), {})
        assert components.algorithm == Several(rates=(0.3, 0.4)), "a resumed run would use other hyper-parameters"
        assert again == config

    def test_a_missing_hyper_parameter_is_named(self) -> None:
        with pytest.raises(InputError, match=rf"algorithm '{__name__}:Demanding' needs a value for gamma"):
            resolve({"algorithm": f"{__name__}:Demanding"})
        assert resolve({"algorithm": f"{__name__}:Demanding", "gamma": 1})[0].hyperparameters == {"gamma": 1.0}

    def test_a_clash_with_a_setting_is_refused(self) -> None:
        words = "names a hyper-parameter 'learning_rate', which is a setting of every run"
        with pytest.raises(InputError, match=words):
            resolve({"algorithm": f"{__name__}:Clashing"})

    def test_a_clash_is_refused_in_objects_too(self) -> None:
        # Else config.toml would hold the algorithm's value where the run's learning rate belongs.
        with pytest.raises(InputError, match="learning_rate"):
            resolve({"algorithm": Clashing()})


def squares(scores: Tensor, y: Tensor) -> Tensor:
    return ((scores - functional.one_hot(y, scores.shape[1])) ** 2).mean()


@pytest.mark.usefixtures("trusting")
class TestObjects:
    def test_algorithms_are_named(self) -> None:
        config, components = resolve(tiny(algorithm=AdaBest(beta=0.5)))
        assert (config.algorithm, config.hyperparameters) == ("adabest", vars(AdaBest(mu=0.02, beta=0.5)))
        assert components.algorithm == AdaBest(beta=0.5)
        assert config == resolve(tiny(algorithm="adabest", beta=0.5))[0]

        importable, _ = resolve(tiny(algorithm=Own(0.3)))
        assert importable == resolve(tiny(algorithm=f"{__name__}:Own", gamma=0.3))[0]

        local, _ = resolve(tiny(algorithm=local_algorithm(0.3)))
        assert (local.algorithm, local.hyperparameters) == ("python-object:Local", {"gamma": 0.3})

    def test_an_algorithm_that_its_name_does_not_give_back_is_refused_or_kept(self) -> None:
        # A run of it must not be resumed, or taken for the same run, with the default in place of 0.9.
        config, _ = resolve(tiny(algorithm=Handmade(0.9)))
        try:
            _, components = resolve_again(config.flat(), {})
        except InputError:
            return
        assert vars(components.algorithm) == {"gamma": 0.9}

    def test_data_sets_models_and_losses_are_named(self) -> None:
        model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
        config, components = resolve(tiny(dataset=stripes(), model=model, loss=squares))
        assert config.dataset == "python-object:stripes"
        assert config.model == "python-object:Sequential"
        assert config.loss == "python-object:squares"
        assert (components.dataset, components.model, components.loss) == (stripes(), model, squares)
        assert resolve(tiny(model=dropping))[0].model == "python-object:dropping"
        assert resolve(tiny(loss=functools.partial(squares)))[0].loss == "python-object:partial"

    def test_an_object_must_be_given_again(self) -> None:
        algorithm, model = local_algorithm(0.3), nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
        given = {"algorithm": algorithm, "dataset": stripes(), "model": model, "loss": squares}
        config, components = resolve(tiny(**given))
        assert resolve_again(config.flat(), given) == (config, components)
        for key in given:
            rest = {name: value for name, value in given.items() if name != key}
            with pytest.raises(InputError, match=rf"pass it again, as in adabest.resume\(folder, {key}=...\)"):
                resolve_again(config.flat(), rest)

    def test_another_object_is_refused(self) -> None:
        config, _ = resolve(tiny(algorithm=local_algorithm(0.3)))
        with pytest.raises(InputError, match="this isn't what the run began with: gamma differs"):
            resolve_again(config.flat(), {"algorithm": local_algorithm(0.4)})
        with pytest.raises(InputError, match="algorithm, gamma differs"):
            resolve_again(config.flat(), {"algorithm": AdaBest()})

    def test_objects_that_have_a_name_are_not_used(self) -> None:
        config, components = resolve(tiny())
        assert resolve_again(config.flat(), {"algorithm": FedAvg(), "loss": squares}) == (config, components)


@pytest.mark.usefixtures("trusting")
class TestDigest:
    def test_settings_of_execution_do_not_count(self) -> None:
        config, _ = resolve(EVERYTHING)
        elsewhere: dict[str, Any] = {"data_dir": None, "checkpoint_every": None, "threads": None, "device": "cuda:1"}
        sizes = ("client_memory", "client_device_memory", "client_disk")
        elsewhere |= dict.fromkeys(("clients_in_parallel", *sizes))
        same = dataclasses.replace(config, **elsewhere, tensorboard=False, loggers=())
        assert same.digest() == config.digest()

    def test_all_other_settings_count(self) -> None:
        config, _ = resolve(EVERYTHING)
        digests = {config.digest()}
        execution = {"data_dir", "checkpoint_every", "threads", "device", "tensorboard", "loggers", "backend"}
        execution |= {"clients_in_parallel", "client_memory", "client_device_memory", "client_disk"}
        others = EVERYTHING.keys() - execution - OWN
        for name in others:
            value = getattr(config, name)
            changed: Any = value + ("x" if isinstance(value, str) else ("x",) if isinstance(value, tuple) else 1)
            digests.add(dataclasses.replace(config, **{name: changed}).digest())
        digests.add(dataclasses.replace(config, hyperparameters={"mu": 0.4}).digest())
        assert len(digests) == len(others) + 2

    def test_the_digest_names_the_default_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        run = adabest.run(show=False, **tiny(rounds=1))
        assert run.folder == Path("runs") / f"stripes-adabest-{run.config.digest()}"
        with pytest.raises(InputError, match="holds a finished run"):
            adabest.run(show=False, **tiny(rounds=1, checkpoint_every=3))


@pytest.mark.usefixtures("trusting")
class TestToml:
    def test_all_settings_survive_the_file(self, tmp_path: Path) -> None:
        config, _ = resolve(EVERYTHING)
        path = write_toml(tmp_path, config.flat())
        assert read_toml(path) == config.flat()
        assert resolve(read_toml(path))[0] == config

    def test_the_file_of_a_run_repeats_it(self, tmp_path: Path) -> None:
        first = tiny_runs.run(tmp_path / "first", algorithm="adabest,beta=0.7", unbalance=0.3, seed=3)
        again = adabest.run(first.folder / "config.toml", out=tmp_path / "again", show=False)
        assert again.config == first.config
        assert results(again.folder) == results(first.folder)
        assert (again.folder / "config.toml").read_bytes() == (first.folder / "config.toml").read_bytes()

    def test_a_missing_file_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"can't read the configuration .*none.toml: No such file"):
            adabest.run(tmp_path / "none.toml")

    def test_a_folder_in_place_of_a_file_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="can't read the configuration"):
            adabest.run(tmp_path)

    @pytest.mark.parametrize("content", [b"rounds = = 3", b'dataset = "\xff"', b"rounds = 3\nrounds = 4"])
    def test_text_that_is_no_toml_is_refused(
        self, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "bad.toml"
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"bad.toml isn't valid TOML"):
            adabest.run(path)
        assert command("run", path) == 2
        assert "isn't valid TOML" in capsys.readouterr().err


class TestThreads:
    def used(self, folder: Path, **settings: Any) -> int:
        tiny_runs.run(folder, rounds=1, **settings)
        threads: int = json.loads((folder / "environment.json").read_text())["threads"]
        return threads

    def test_threads_are_set_for_the_run_only(self, tmp_path: Path) -> None:
        before = torch.get_num_threads()
        assert self.used(tmp_path / "run", threads=before + 1) == before + 1
        assert torch.get_num_threads() == before

    def test_a_small_model_has_one_thread(self, tmp_path: Path) -> None:
        before = torch.get_num_threads()
        torch.set_num_threads(2)
        try:
            assert self.used(tmp_path / "small") == 1
            assert self.used(tmp_path / "large", model="mlp,hidden=2500") == 2
            assert torch.get_num_threads() == 2
        finally:
            torch.set_num_threads(before)


def test_products_in_bfloat16_leave_models_in_float32(tmp_path: Path) -> None:
    done = adabest.run(out=tmp_path / "run", show=False, **tiny(rounds=1, precision="bf16", engine="batched"))
    assert adabest.load(done.folder).config.precision == "bf16"
    assert {parameter.dtype for parameter in done.load_model().parameters()} == {torch.float32}


def test_the_default_precision_depends_on_where_it_runs() -> None:
    assert resolve({})[0].precision == "float32"
    assert resolve({"device": "cuda"})[0].precision == "bf16"
    assert resolve({"device": "cuda", "engine": "reference"})[0].precision == "float32"


class TestTypeOfFloats:
    """What a process asks torch for doesn't reach into a run."""

    @pytest.fixture
    def double(self) -> Iterator[None]:
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        yield
        torch.set_default_dtype(before)

    @pytest.mark.parametrize("engine", ["reference", "batched"])
    def test_another_default_changes_no_byte(self, engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
        settings = tiny(rounds=2, engine=engine, algorithm="feddyn")
        adabest.run(out=tmp_path / "usual", show=False, **settings)
        request.getfixturevalue("double")
        run = adabest.run(out=tmp_path / "double", show=False, **settings)
        assert torch.get_default_dtype() == torch.float64
        assert results(tmp_path / "usual") == results(tmp_path / "double")
        assert {parameter.dtype for parameter in run.load_model().parameters()} == {torch.float32}

    @pytest.mark.usefixtures("double")
    def test_a_module_of_doubles_is_converted_to_the_precision_of_the_run(self, tmp_path: Path) -> None:
        module = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
        for precision, dtype in (("float32", torch.float32), ("float64", torch.float64)):
            settings = tiny(rounds=1, model=module, precision=precision)
            run = adabest.run(out=tmp_path / precision, show=False, **settings)
            assert {p.dtype for p in run.load_model(module=copy.deepcopy(module)).parameters()} == {dtype}

    @pytest.mark.usefixtures("double")
    def test_a_failed_run_leaves_the_default_as_it_was(self, tmp_path: Path) -> None:
        with pytest.raises(InputError):
            adabest.run(out=tmp_path / "run", show=False, **tiny(model="tiny_runs:missing"))
        assert torch.get_default_dtype() == torch.float64


@pytest.mark.parametrize("name", ["out", "show", "target", "config", "overwrite", "algorithms", "hyperparameters"])
def test_a_hyper_parameter_with_the_name_of_a_setting_is_refused(name: str) -> None:
    kind = dataclasses.make_dataclass("Own", [(name, float, 1.0)], bases=(FedAvg,), frozen=True)
    with pytest.raises(InputError, match=f"names a hyper-parameter '{name}', which is a setting of every run"):
        adabest.run(algorithm=kind())


def test_the_path_of_a_data_file_is_kept_as_an_absolute_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    x = np.zeros((40, 4), dtype=np.float32)
    np.savez("data.npz", x_train=x, y_train=np.arange(40) % 2, x_test=x, y_test=np.arange(40) % 2)
    done = run(tmp_path / "run", rounds=1, dataset="data.npz", model="logistic")
    assert Path(done.config.dataset).is_absolute()


@pytest.mark.parametrize("clients", [1, 2, 11, 12, 13, 23, 34, 110])
def test_defaults_for_a_natural_data_set_leave_no_client_out(clients: int) -> None:
    owner = np.repeat(np.arange(clients), 3)
    x, y = np.zeros((len(owner), 2), dtype=np.float32), np.arange(len(owner)) % 2
    config, _ = resolve({"dataset": from_arrays(x, y, x, y, clients=owner)})
    assert config.clients is not None
    assert config.validation_clients is not None
    assert config.clients + config.validation_clients == clients
    assert config.clients >= 1
    assert config.validation_clients == (0 if clients == 1 else -(-clients // 11))


def test_an_unknown_partition_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"unknown partition 'shard'; did you mean 'shards'\? Known: .*natural, shards"
    ):
        run(tmp_path / "run", partition="shard")
