"""A file somebody sends never runs code: a name is imported only if the call itself named it."""

import contextlib
import contextvars
import importlib
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import make_run, store
from paper_results import made, of
from small_specification import make_specification
from tiny_runs import arguments, break_off, command, ends_after, results, resume, run, stripes, tiny

import adabest
from adabest.cli import main
from adabest.errors import InputError, Interrupted
from adabest.paper import reproduce
from adabest.registry import Registry, allowing, also_named, blaming, named_now, naming, own_names, stands_for
from adabest.runs.build import cut_partition
from adabest.runs.results_file import Choice, write_choices
from adabest.runs.settings.resolution import resolve

# Leaves a file behind when it is imported, and has something for every setting that can name a thing.
MODULE = """
from dataclasses import dataclass, replace
from pathlib import Path

Path(__file__).with_suffix(".ran").touch()

from tiny_runs import Quiet as Log
from tiny_runs import dropping as network
from tiny_runs import stripes
from torch.nn.functional import cross_entropy as loss

from adabest import Defaults, FedAvg
from adabest.data.augmentation import AUGMENTATIONS
from adabest.federation.partitioners import PARTITIONERS
from adabest.federation.sampling import SAMPLERS

augment, deal, sample = AUGMENTATIONS.find("none"), PARTITIONERS.find("iid"), SAMPLERS.find("uniform")


@dataclass(frozen=True)
class Mine(FedAvg):
    gamma: float = 0.5


def data(size: int = 3):
    return stripes()


def with_a_model():
    return replace(stripes(), defaults=Defaults(model="received:wide,width=5", batch_size=8))


def wide(input_shape, classes, width: int = 4):
    return network(input_shape, classes)


def broken():
    raise ZeroDivisionError("my own mistake")
"""

FIELDS: dict[str, str] = {
    "dataset": "received:data,size=4",
    "algorithm": "received:Mine",
    "model": "received:wide,width=5",
    "loss": "received:loss",
    "partition": "received:deal",
    "augmentation": "received:augment",
    "sampler": "received:sample",
    "loggers": "received:Log",
}
REGISTRY: Registry[Any] = Registry(kind="thing", group="adabest.tests", builtin={})


class Received:
    """What was sent: runs in a folder, and a module that isn't to be imported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def ran(self) -> bool:
        """Whether the module has been imported since it was forgotten."""
        return "received" in sys.modules or (self.folder / "received.ran").exists()

    def forget(self) -> None:
        sys.modules.pop("received", None)
        (self.folder / "received.ran").unlink(missing_ok=True)

    def begun(self, **settings: Any) -> Path:
        """A run that was broken off."""
        break_off(Path("run"), 30, Interrupted, **_listed(settings))
        self.forget()
        return Path("run")

    def finished(self, **settings: Any) -> Path:
        run(Path("run"), **_listed({"rounds": 2, **settings}))
        self.forget()
        return Path("run")


def _listed(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: [value] if name == "loggers" else value for name, value in settings.items()}


@pytest.fixture
def received(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Received]:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "received.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path / "modules")
    monkeypatch.chdir(tmp_path)
    importlib.invalidate_caches()
    received = Received(tmp_path / "modules")
    received.forget()
    yield received
    received.forget()


@pytest.fixture(params=FIELDS)
def field(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def own(field: str) -> str:
    """The name in a field, without options."""
    return FIELDS[field].split(",", maxsplit=1)[0]


Said = Callable[[], str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    return lambda: capsys.readouterr().err


class TestReceivedRuns:
    def test_looking_at_a_run_imports_nothing(self, received: Received, field: str) -> None:
        folder = received.begun(**{field: FIELDS[field]})
        assert command("show", folder) == 0
        assert command("list", ".") == 0
        assert adabest.load(folder).config.flat()[field] in (FIELDS[field], [FIELDS[field]])
        assert not received.ran

    def test_a_run_that_names_code_is_not_resumed(self, received: Received, field: str, said: Said) -> None:
        folder = received.begun(**{field: FIELDS[field]})
        said()
        assert command("resume", folder) == 2
        told = said()
        assert f"{own(field)!r} isn't imported: it was named by a file, not by this call" in told
        assert f"--allow {own(field)}" in told
        with pytest.raises(InputError, match=f"{own(field)}.*trust=True"):
            resume(folder)
        assert not received.ran

    def test_a_run_is_resumed_by_a_call_that_names_its_code(self, received: Received, field: str) -> None:
        folder = received.begun(**{field: FIELDS[field]})
        with pytest.raises(InputError):
            resume(folder, allow=["received:something_else"])
        assert not received.ran
        assert command("resume", folder, "--allow", "other:thing", own(field)) == 0
        assert received.ran
        straight = run(Path("straight"), **_listed({field: FIELDS[field]}))
        assert results(folder) == results(straight.folder)

    def test_a_partition_that_is_still_in_memory_is_no_exception(self, received: Received) -> None:
        folder = received.begun(partition="received:deal")
        with naming("received:deal"):
            kept = cut_partition(*resolve(adabest.load(folder).config.flat()))
        assert kept.fingerprint == adabest.load(folder).identity["partition"]["fingerprint"]
        with pytest.raises(InputError, match=r"partition.* 'received:deal' isn't imported"):
            resume(folder)

    def test_a_run_is_resumed_by_a_call_that_trusts_it(self, received: Received, field: str) -> None:
        folder = received.begun(**{field: FIELDS[field]})
        assert command("resume", folder, "--trust") == 0
        assert adabest.load(folder).status == "finished"

    def test_a_report_imports_nothing(self, received: Received, field: str) -> None:
        folder = received.finished(**{field: FIELDS[field]})
        assert command("report", folder) == 0
        assert not received.ran
        page = Path("report.html").read_text(encoding="utf-8")
        refused = "isn&#x27;t imported" in page or "isn't imported" in page
        assert refused == (field in ("dataset", "partition")), "the map of a partition is all that needs them"

    @pytest.mark.parametrize("field", ["dataset", "partition"])
    @pytest.mark.parametrize("how", ["allow", "trust"])
    def test_a_report_draws_what_it_may(self, received: Received, field: str, how: str) -> None:
        folder = received.finished(**{field: FIELDS[field]})
        assert command("report", folder, *(["--trust"] if how == "trust" else ["--allow", own(field)])) == 0
        assert received.ran
        assert "can’t be shown" not in Path("report.html").read_text(encoding="utf-8")
        options: dict[str, Any] = {"trust": True} if how == "trust" else {"allow": own(field)}
        assert adabest.write_report(folder, **options) == Path("report.html")

    def test_models_are_loaded_without_an_import(self, received: Received, field: str, said: Said) -> None:
        folder = received.finished(**{field: FIELDS[field]})
        loaded = adabest.load(folder)
        assert command("export", folder, "--format", "safetensors", "--out", "m.safetensors") == 0
        said()
        if field == "model":
            with pytest.raises(InputError, match="model 'received:wide' isn't imported"):
                _ = loaded.model
            with pytest.raises(InputError, match="model 'received:wide' isn't imported"):
                loaded.predict(stripes().x_test[:2])
            assert command("export", folder, "--format", "onnx", "--out", "m.onnx") == 2
            assert "--allow received:wide" in said()
        else:
            assert loaded.predict(stripes().x_test[:2]).shape == (2, 3)
        assert not received.ran

    def test_a_model_that_is_allowed_is_imported(self, received: Received) -> None:
        folder = received.finished(model="received:wide,width=5")
        inputs = stripes().x_test[:2]
        expected = adabest.load(folder, allow="received:wide").predict(inputs)
        received.forget()
        assert adabest.load(folder, trust=True).predict(inputs).equal(expected)
        assert command("export", folder, "--format", "onnx", "--allow", "received:wide") == 0
        assert command("export", folder, "--format", "onnx", "--trust", "--overwrite") == 0

    def test_a_run_remembers_what_its_call_named(self, received: Received) -> None:
        done = run(Path("run"), rounds=1, model="received:network")
        assert done.predict(stripes().x_test[:2]).shape == (2, 3)
        assert done == adabest.load("run")
        assert "received" not in repr(done).replace("model='received:network'", "")

    @pytest.mark.usefixtures("received")
    def test_the_hidden_command_of_a_page_is_not_run(self, tmp_path: Path, said: Said) -> None:
        hidden = f"subprocess:getoutput,cmd=touch {tmp_path / 'hidden'}"
        identity = dict(run(tmp_path / "other", rounds=1).identity)
        folder = store(make_run(dataset=hidden, identity=identity), tmp_path / "run")
        assert command("show", folder) == 0
        assert command("list", tmp_path) == 0
        assert command("report", folder, "--html", tmp_path / "page.html") == 0
        assert "subprocess:getoutput" in (tmp_path / "page.html").read_text(encoding="utf-8")
        status = json.loads((folder / "status.json").read_text())
        (folder / "status.json").write_text(json.dumps({**status, "status": "interrupted"}))
        said()
        assert command("resume", folder, "--unverified") == 2
        assert "'subprocess:getoutput' isn't imported" in said()
        assert not (tmp_path / "hidden").exists()

    def test_the_folder_where_a_run_began_is_searched_only_with_trust(
        self, received: Received, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The folder of the modules is only in the run's environment now, which a file says."""
        monkeypatch.chdir(received.folder)
        break_off(received.folder.parent / "run", 30, Interrupted, algorithm="received:Mine")
        monkeypatch.chdir(received.folder.parent)
        monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(received.folder)])
        received.forget()
        with pytest.raises(InputError, match="can't import module 'received'"):
            resume(Path("run"), allow="received:Mine")
        assert resume(Path("run"), trust=True).status == "finished"


@pytest.mark.usefixtures("no_figure")
class TestObjects:
    """What is passed to ``adabest.resume`` counts as named, and is checked against the name that is stored."""

    def objects(self) -> dict[str, Any]:
        module: Any = importlib.import_module("received")
        return {
            "dataset": module.data(),
            "algorithm": module.Mine(),
            "model": module.wide,
            "loss": module.loss,
        }

    @pytest.mark.parametrize("field", ["dataset", "algorithm", "model", "loss"])
    def test_an_object_stands_for_a_name(self, received: Received, field: str) -> None:
        folder = received.begun(**{field: FIELDS[field]})
        done = resume(folder, **{field: self.objects()[field]})
        assert (done.status, getattr(done.config, field)) == ("finished", FIELDS[field])
        assert results(folder) == results(run(Path("straight"), **_listed({field: FIELDS[field]})).folder)

    def test_objects_must_stand_for_all_names(self, received: Received) -> None:
        names = {name: FIELDS[name] for name in self.objects()}
        folder = received.begun(**names)
        with pytest.raises(InputError, match="received:Mine"):
            resume(folder, **{name: thing for name, thing in self.objects().items() if name != "algorithm"})
        assert resume(folder, **self.objects()).config.flat().items() >= names.items()

    @pytest.mark.parametrize(
        ("field", "other"),
        [
            ("algorithm", adabest.FedAvg()),
            ("model", lambda shape, classes: None),
            ("loss", max),
            ("dataset", 3),
        ],
    )
    def test_another_object_is_refused(self, received: Received, field: str, other: Any) -> None:
        folder = received.begun(**{field: FIELDS[field]})
        with pytest.raises(InputError, match=f"its {field} is {own(field)}|should be a name or a Dataset"):
            resume(folder, **{field: other})
        assert not received.ran

    def test_other_hyper_parameters_are_refused(self, received: Received) -> None:
        folder = received.begun(algorithm="received:Mine", gamma=0.3)
        module: Any = importlib.import_module("received")
        with pytest.raises(InputError, match="this isn't what the run began with: gamma differs"):
            resume(folder, algorithm=module.Mine(gamma=0.4))
        assert resume(folder, algorithm=module.Mine(gamma=0.3)).config.hyperparameters == {"gamma": 0.3}

    def test_a_text_names_what_it_says(self, received: Received) -> None:
        folder = received.begun(algorithm="received:Mine")
        assert resume(folder, algorithm="received:Mine").status == "finished"

    def test_the_lanes_of_a_comparison_need_no_names(self, received: Received) -> None:
        """The run's own name is that of an importable class, which the call has as an object."""
        module: Any = importlib.import_module("received")

        def compare() -> adabest.Comparison:
            return adabest.compare(algorithms=["fedavg", module.Mine()], out="both", show=False, **tiny())

        with ends_after(60), pytest.raises(Interrupted):
            compare()
        done = compare()
        assert [one.status for one in done.runs.values()] == ["finished", "finished"]
        assert done.runs["mine"].config.algorithm == "received:Mine"

    def test_a_named_data_set_may_bring_a_model_along(self, received: Received, said: Said) -> None:
        folder = received.begun(dataset="received:with_a_model")
        assert adabest.load(folder).config.model == "received:wide,width=5"
        assert command("resume", folder, "--allow", "received:with_a_model") == 0


@pytest.mark.usefixtures("no_figure")
class TestReceivedComparisons:
    def begin(self, received: Received, *words: Any, **settings: Any) -> None:
        """Begins several runs, and breaks them off."""
        with ends_after(60):
            assert command(*words, *arguments(**tiny(**_listed(settings)), out="all")) == 130
        received.forget()

    def refused(self, received: Received, name: str, said: Said) -> None:
        said()
        assert command("list", ".") == 0
        assert command("report", "all") == 0
        assert command("resume", "all") == 2
        assert f"{name!r} isn't imported" in said()
        assert not received.ran

    @pytest.mark.parametrize("field", [name for name in FIELDS if name != "algorithm"])
    def test_a_comparison_that_names_code_is_not_resumed(self, received: Received, field: str, said: Said) -> None:
        self.begin(received, "compare", "--algorithms", "fedavg", "adabest", **{field: FIELDS[field]})
        assert f"adabest resume all --allow {own(field)}\n" in said()
        self.refused(received, own(field), said)
        assert command("resume", "all", "--allow", own(field)) == 0

    def test_algorithms_of_a_comparison_are_not_imported(self, received: Received, said: Said) -> None:
        given = ["compare", "--algorithms", "fedavg", "received:Mine,gamma=0.2"]
        self.begin(received, *given, partition="received:deal")
        assert "adabest resume all --allow received:deal received:Mine\n" in said()
        self.refused(received, "received:Mine", said)
        said()
        assert command("resume", "all", "--allow", "received:Mine") == 2
        assert "'received:deal' isn't imported" in said()
        received.forget()
        assert command("resume", "all", "--trust") == 0

    def test_the_same_command_names_the_code_again(self, received: Received) -> None:
        given = ["compare", "--algorithms", "fedavg", "received:Mine,gamma=0.2"]
        self.begin(received, *given)
        assert command(*given, *arguments(**tiny(), out="all")) == 0

    def test_runs_that_lie_in_the_folder_name_nothing(self, received: Received, said: Said) -> None:
        """Who watches is no setting that is compared, so it is read from the folder."""
        self.begin(received, "compare", "--algorithms", "fedavg", loggers="received:Log")
        said()
        assert command("compare", "--algorithms", "fedavg", *arguments(**tiny(), out="all")) == 2
        assert "logger 'received:Log' isn't imported" in said()
        assert not received.ran

    @pytest.mark.parametrize("kind", ["sweep", "tune"])
    def test_varied_values_are_not_imported(self, received: Received, kind: str, said: Said) -> None:
        self.begin(received, kind, "--vary", "model=received:network,logistic")
        assert "adabest resume all --allow received:network\n" in said()
        self.refused(received, "received:network", said)
        assert command("resume", "all", "--allow", "received:network") == 0

    @pytest.mark.parametrize("kind", ["sweep", "tune"])
    def test_the_algorithm_of_a_sweep_is_not_imported(self, received: Received, kind: str, said: Said) -> None:
        self.begin(received, kind, "--vary", "gamma=0.1,0.2", algorithm="received:Mine")
        self.refused(received, "received:Mine", said)
        assert command("resume", "all", "--trust") == 0

    def test_values_of_a_space_are_not_imported(self, received: Received, said: Said) -> None:
        pytest.importorskip("optuna")
        self.begin(received, "tune", "--space", "model=received:network,logistic", "--trials", 2)
        self.refused(received, "received:network", said)

    @pytest.mark.parametrize("line", ['config = "mine.toml"', "overwrite = true"])
    def test_the_file_of_a_comparison_cannot_say_more_than_settings(self, received: Received, line: str) -> None:
        self.begin(received, "compare", "--algorithms", "fedavg", "adabest", loss="received:loss")
        Path("mine.toml").write_text('loss = "received:loss"\n')
        path = Path("all/comparison.toml")
        path.write_text(f"{line}\n{path.read_text()}")
        before = (Path("all/fedavg/config.toml").stat().st_ino, Path("all/fedavg/metrics.jsonl").read_bytes())
        assert command("resume", "all") == 2
        assert not received.ran
        assert before == (Path("all/fedavg/config.toml").stat().st_ino, Path("all/fedavg/metrics.jsonl").read_bytes())


@pytest.mark.usefixtures("no_figure")
class TestReceivedFiles:
    @pytest.mark.parametrize("field", ["dataset", "partition", "algorithm", "model", "loss", "loggers"])
    def test_a_file_of_results_imports_nothing(self, received: Received, tmp_path: Path, field: str) -> None:
        hidden = f"subprocess:getoutput,cmd=touch {tmp_path / 'hidden'}"
        for name in (hidden, FIELDS[field]):
            settings = {"dataset": "stripes", "clients": 8, **_listed({field: name})}
            run = made("emnist-l/10/iid", "adabest", [50, 60], bytes_up=1, bytes_down=1, settings=settings)
            run.partition["fingerprint"] = "x"
            of([run]).write(tmp_path / "table1.json")
            assert command("report", "table1.json") == 0
            page = Path("report.html").read_text(encoding="utf-8")
            assert name.split(",")[0] in page
            assert command("reproduce", "table1", "--results", "table1.json", "--out", "made") == 0
            assert not received.ran
            assert not (tmp_path / "hidden").exists()

    @pytest.mark.parametrize(
        "chosen",
        [
            {"dataset": "received:data"},
            {"loggers": ["received:Log"]},
            {"algorithm": "received:Mine"},
            {"model": "received:network"},
            {"rounds": 10**9},
        ],
        ids=lambda chosen: str(next(iter(chosen))),
    )
    @pytest.mark.parametrize("kept", [False, True])
    def test_choices_may_hold_hyper_parameters_only(
        self, received: Received, chosen: dict[str, Any], kept: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cell = {"iid/few": {"dataset": "stripes"}}
        small = make_specification(name="population", shares="population", axes={"scenario": cell}, apart=[])
        monkeypatch.setattr(reproduce, "read_specification", lambda _: small)
        Path("out").mkdir()
        path = Path("out/choices.json") if kept else Path("mine.json")
        write_choices(path, [Choice("*", "adabest", {"beta": 0.2, **chosen}, [], 2, [0])])
        with pytest.raises(InputError, match=f"say '{next(iter(chosen))}', which isn't one of its hyper-parameters"):
            adabest.reproduce("population", out="out", choices=None if kept else path, seeds=[0], show=False)
        assert not received.ran


@pytest.mark.usefixtures("no_figure")
class TestNamed:
    """What a person says counts: on the command line, in Python, and in a file that they name as configuration."""

    def test_a_configuration_file_names_code(self, received: Received, field: str) -> None:
        value = json.dumps(_listed({field: FIELDS[field]})[field])
        Path("mine.toml").write_text(f"{field} = {value}\n")
        settings = {name: given for name, given in tiny(rounds=1).items() if name != field}
        assert command("run", "mine.toml", *arguments(**settings), "--out", "run") == 0
        assert received.ran
        received.forget()
        adabest.run("mine.toml", out="python", show=False, **settings)
        assert received.ran

    def test_other_calls_name_code(self, received: Received) -> None:
        assert command("partition", "--dataset", "received:data", "--partition", "received:deal", "--clients", 8) == 0
        assert command("costs", "--algorithms", "received:Mine", "--model", "received:wide,width=3") == 0
        assert command("illustrate", "--algorithms", "received:Mine") == 0
        Path("mine.toml").write_text('algorithm = "received:Mine"\nspace = ["gamma=0:1"]\ntrials = 1\n')
        assert command("tune", "mine.toml", "--help") == 0

    def test_one_call_does_not_count_for_the_next(self, received: Received) -> None:
        run(Path("one"), rounds=1, algorithm="received:Mine")
        break_off(Path("run"), 30, Interrupted, algorithm="received:Mine")
        with pytest.raises(InputError, match="isn't imported"):
            resume(Path("run"))

    @pytest.mark.parametrize("name", ["my_module", "my_module:", "--x:y", "a:b\n", 3])
    def test_values_that_cannot_be_allowed_are_refused(self, name: Any, received: Received) -> None:
        with pytest.raises(InputError, match="what can be allowed has the form module:attribute"):
            adabest.load("run", allow=[name])


class TestRule:
    def test_nothing_is_named_by_default(self) -> None:
        assert named_now().names == frozenset()
        with pytest.raises(InputError, match="thing 'math:pi' isn't imported"):
            REGISTRY.find("math:pi")

    def test_names_count_while_entered(self) -> None:
        with naming("math:pi"):
            with naming({"any": ["math:e"]}):
                assert (REGISTRY.find("math:pi"), REGISTRY.find("math:e")) == (
                    sys.modules["math"].pi,
                    2.718281828459045,
                )
            with pytest.raises(InputError, match="isn't imported"):
                REGISTRY.find("math:e")
        with pytest.raises(InputError, match="isn't imported"):
            REGISTRY.find("math:pi")

    def test_names_end_with_an_error(self) -> None:
        with pytest.raises(ZeroDivisionError), naming("math:pi", trust=True):
            raise ZeroDivisionError
        assert not named_now().everything
        assert "math:pi" not in named_now()

    def test_trust_is_for_everything(self) -> None:
        with naming(trust=True), naming("math:e"):
            assert REGISTRY.find("math:pi") > 3

    def test_another_thread_has_named_nothing(self) -> None:
        found = []
        with naming(trust=True):
            thread = threading.Thread(target=contextvars.Context().run, args=(lambda: found.append(named_now()),))
            thread.start()
            thread.join()
        assert [one.everything for one in found] == [False]

    @pytest.mark.parametrize(
        ("values", "names"),
        [
            ("my:Alg", ["my:Alg"]),
            (" my.own:Alg.Inner , beta=0.9", ["my.own:Alg.Inner"]),
            ("adabest,beta=0.9", []),
            ("leaf,path=os:system", []),
            ("model=my:a,my:b", ["my:a", "my:b"]),
            ("model=my:a,width=3;my:b,width=4", ["my:a", "my:b"]),
            ("beta=0:1", []),
            ("mu=0.001:0.1:log", []),
            ("100:leave:0-49", []),
            ({"model": ["my:a", "mlp"], "my:key": 3}, ["my:a"]),
            ([["my:a"], ("my:a", "my:b")], ["my:a", "my:b"]),
            ([None, 3, object(), Path("my:a"), b"my:a"], []),
            ("my:Alg()", []),
            ("../my:Alg", []),
            (":Alg", []),
            ("my:", []),
        ],
    )
    def test_names_are_found_in_values(self, values: Any, names: list[str]) -> None:
        assert own_names(values) == names

    def test_code_that_runs_may_name_more(self) -> None:
        also_named("math:pi")
        assert "math:pi" not in named_now()
        with allowing([], trust=False):
            also_named("math:pi")
            assert REGISTRY.find("math:pi") > 3
        assert "math:pi" not in named_now()

    def test_a_name_is_that_of_a_thing(self) -> None:
        assert stands_for(f"{__name__}:Received", Received)
        assert stands_for("tiny_runs:stripes", stripes)
        assert stands_for("adabest.data.digits:Defaults", adabest.Defaults)  # where it is imported to
        assert not stands_for("tiny_runs:stripes", run)
        assert not stands_for("not_there:stripes", stripes)
        assert not stands_for("tiny_runs:nothing", None)

    def test_a_module_is_asked_for_what_it_computes_only_if_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "lazy_names.py").write_text("def __getattr__(name):\n    return len\n")
        monkeypatch.syspath_prepend(tmp_path)
        importlib.import_module("lazy_names")
        assert not stands_for("lazy_names:anything", len)
        with naming("lazy_names:anything"):
            assert stands_for("lazy_names:anything", len)
        del sys.modules["lazy_names"]


class TestOnesOwnMistakes:
    def test_a_data_set_says_where_it_broke(self, received: Received, said: Said) -> None:
        assert command("run", "--dataset", "received:broken") == 2
        told = said()
        assert "data set 'received:broken' raised ZeroDivisionError: my own mistake" in told
        line = MODULE.splitlines().index('    raise ZeroDivisionError("my own mistake")') + 1
        assert f"received.py, line {line})" in told

    def test_mistakes_of_the_package_stay_what_they_are(self) -> None:
        with pytest.raises(ZeroDivisionError), blaming("data set", "digits"):
            raise ZeroDivisionError

    def test_a_partition_says_where_it_broke(self, received: Received, said: Said) -> None:
        assert command("partition", "--dataset", "stripes", "--partition", "received:broken", "--clients", 8) == 2
        assert "partition 'received:broken' raised TypeError" in said()


class TestWorkingDirectory:
    @pytest.fixture
    def here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        """A working directory that isn't searched, with a module in it."""
        (tmp_path / "only_here.py").write_text("from adabest import FedAvg as Mine\nimport beside\n")
        (tmp_path / "beside.py").write_text("")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", list(sys.path))
        importlib.invalidate_caches()
        yield tmp_path
        for name in ("only_here", "beside"):
            sys.modules.pop(name, None)

    def test_the_working_directory_is_not_searched_for_packages(self, here: Path) -> None:
        """Else a received folder could hold the package of a logger that isn't installed."""
        run(here / "run", rounds=1)
        for words in (["list", "."], ["show", "run"], ["report", "run"], ["resume", "run"], ["run", "--help"]):
            before = list(sys.path)
            with contextlib.suppress(SystemExit):  # how the parser ends when it has shown its help
                assert main(words) == 0
            assert sys.path == before
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("beside")

    def test_a_named_module_is_found_in_the_working_directory(self, here: Path) -> None:
        before = list(sys.path)
        with naming("only_here:Mine"):
            assert REGISTRY.find("only_here:Mine") is adabest.FedAvg
        assert sys.path == [*before, str(here)], "last, so that it stands in for nothing"

    def test_a_module_that_is_not_there_leaves_nothing(self, here: Path) -> None:
        before = list(sys.path)
        with naming("not_there:Mine"), pytest.raises(InputError, match="can't import module 'not_there'"):
            REGISTRY.find("not_there:Mine")
        assert sys.path == before

    def test_a_module_that_lacks_another_is_told_of_that(self, here: Path) -> None:
        (here / "beside.py").write_text("import not_installed\n")
        with naming("only_here:Mine"), pytest.raises(InputError, match="No module named 'not_installed'"):
            REGISTRY.find("only_here:Mine")

    def test_a_working_directory_that_is_gone_is_not_searched(
        self, here: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def gone() -> str:
            raise FileNotFoundError(2, "No such file or directory")

        monkeypatch.setattr("os.getcwd", gone)
        with naming("only_here:Mine"), pytest.raises(InputError, match="can't import module 'only_here'"):
            REGISTRY.find("only_here:Mine")
