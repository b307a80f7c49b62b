"""The benchmarks: the protocol between arms and their parent, the arithmetic, tables, figures, and what is refused."""

import argparse
import json
import shutil
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import docs_pages
import numpy as np
import pytest
import torch
from matplotlib.patches import Rectangle
from torch.nn.utils import parameters_to_vector

from adabest.errors import InputError
from adabest.models.classifiers import cnn, mlp
from adabest.models.factory import build_model
from adabest.models.resnet import resnet
from benchmarks import (
    catalog,
    environments,
    files,
    machine,
    measures,
    page,
    partitioners,
    process,
    samplers,
    scale,
    speed,
    waves,
)
from benchmarks.__main__ import main
from benchmarks.arms import adabest as adabest_arm
from benchmarks.arms import plain, torch_model, torch_vmap
from benchmarks.arms.adabest import prepare, settings
from benchmarks.catalog import Arm
from benchmarks.process import ArmFailedError, Process
from benchmarks.tasks import (
    CNN,
    FEMNIST_CNN,
    GROUPNORM_CNN,
    MLP,
    PAPER,
    PFL_CIFAR,
    RESNET,
    TASKS,
    VGG,
    Convolution,
    GroupNorm,
    Linear,
    Mean,
    Relu,
    Residual,
    Task,
)

ROOT = Path(__file__).parents[2]
SMALL = Task("mlp", "small", (6,), (Linear(5), Relu(), Linear(3)), 8, 10, 4, 2, 10, 0.1, classes=3)

# An arm that prints what it shouldn't, and notes each round that it is asked for in a file.
FAKE = """\
    import os
    import sys
    import time

    from benchmarks.arms.worker import serve

    def prepare(arguments):
        print("a package that prints")
        os.system("echo and a process that it starts")
        if arguments.mood == "broken":
            raise ValueError("it is broken")
        if arguments.mood == "silent":
            time.sleep(600)
        return arguments

    def train(arguments, number):
        if arguments.mood == "mortal" and number > 1:
            raise RuntimeError("it is tired")
        with open("notes.txt", "a") as notes:
            notes.write(f"{arguments.mood} {arguments.task} {arguments.clients} {number}\\n")

    def options(parser):
        parser.add_argument("--mood", default="good")

    if "rude" in sys.argv:
        print("nonsense")
    serve(prepare, train, packages=["numpy"], options=options)
"""


def arm(mood: str = "good", **others: Any) -> Arm:
    return Arm(mood, f"a {mood} one", "hand-written", "fake", ("--mood", mood), **others)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which there is one arm, the fake one."""
    arms = tmp_path / "benchmarks" / "arms"
    arms.mkdir(parents=True)
    for package in (arms, arms.parent):
        (package / "__init__.py").touch()
    shutil.copy(ROOT / "benchmarks" / "arms" / "worker.py", arms)
    (arms / "fake.py").write_text(dedent(FAKE), encoding="utf-8")
    monkeypatch.setattr(process, "ROOT", tmp_path)
    monkeypatch.setattr(process, "_FAREWELL", 5.0)
    return tmp_path


def notes(place: Path) -> list[str]:
    return (place / "notes.txt").read_text(encoding="utf-8").splitlines()


# --- The protocol -----------------------------------------------------------------------------------------------------


def test_an_arm_is_warmed_up_and_trains_as_many_rounds_as_asked_for(place: Path) -> None:
    running = Process(arm(), "mlp", clients=7, rounds=3)
    assert notes(place) == ["good mlp 7 0"]
    assert 0 < running.startup_seconds < 600
    assert running.versions.keys() == {"python", "numpy"}
    first, second = running.measure(), running.measure()
    running.end()
    assert notes(place) == [f"good mlp 7 {number}" for number in range(7)]
    assert 0 < first.seconds < 600
    assert 2**20 < first.peak_memory <= second.peak_memory
    assert running._process.returncode == 0


@pytest.mark.parametrize(
    ("mood", "words"), [("broken", "ValueError: it is broken"), ("rude", "should have said ready.*nonsense")]
)
def test_an_arm_that_fails_says_why(place: Path, mood: str, words: str) -> None:
    with pytest.raises(ArmFailedError, match=words):
        Process(arm(mood), "mlp", 1, 1)


def test_nobody_waits_for_ever(place: Path) -> None:
    with pytest.raises(ArmFailedError, match=r"said nothing for 0\.5 seconds"):
        Process(arm("silent"), "mlp", 1, 1, patience=0.5)


def test_an_arm_ends_with_its_parent(place: Path) -> None:
    running = Process(arm(), "mlp", 1, 1)
    assert running._process.stdin is not None
    running._process.stdin.close()
    assert running._process.wait(60) == 0
    running.end()


# --- Side by side -----------------------------------------------------------------------------------------------------


@pytest.fixture
def quick(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Only fake arms, and a machine whose peak is found at once."""
    fakes = {fake.name: fake for fake in (arm(), arm("other"), arm("mortal"), arm("broken"))}
    fakes["absent"] = arm("absent", environment="absent")
    monkeypatch.setitem(vars(catalog)["ARMS"], "cpu", fakes)
    monkeypatch.setattr(machine, "_SIZES", {"cpu": 8})
    return place


def results(place: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((place / "docs" / page.RESULTS).read_text(encoding="utf-8"))
    return found


def command(place: Path, *words: str) -> int:
    return main([*words, "--out", str(place / "docs"), "--commit", "abc"])


def test_arms_take_turns(quick: Path) -> None:
    assert command(quick, "speed", "--tasks", "1", "--arms", "good", "other", "--repeats", "2", "--rounds", "1") == 0
    assert notes(quick) == [f"{name} mlp 10 {number}" for number in range(3) for name in ("good", "other")]
    found = results(quick)
    (run,) = found["runs"]
    assert (run["commit"], run["repeats"], run["device"]) == ("abc", 2, "cpu")
    assert run["command"].startswith("python -m benchmarks speed --tasks 1 --arms good other")
    assert run["hardware"]["cores"] >= 1
    assert run["versions"]["torch"] == torch.__version__
    for row in found["results"]:
        assert len(row["measurements"]) == 2
        assert row["seconds_a_round"] == min(row["measurements"]) <= row["median_seconds_a_round"]


def test_what_fails_or_is_missing_is_said_and_the_others_go_on(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(quick, "speed", "--tasks", "mlp", "pfl-cifar", "--repeats", "2", "--rounds", "1") == 0
    rows = {(row["task"], row["arm"]): row for row in results(quick)["results"]}
    assert {name for (_, name), row in rows.items() if "seconds_a_round" in row} == {"good", "other"}
    assert rows["mlp", "mortal"]["error"] == "RuntimeError: it is tired"
    assert rows["pfl-cifar", "broken"]["error"] == "ValueError: it is broken"
    assert rows["mlp", "absent"]["not_installed"] == "python -m benchmarks install-peers absent"
    written = (quick / "docs" / "results" / "speed.md").read_text(encoding="utf-8")
    assert "- a absent one: not installed; `python -m benchmarks install-peers absent`" in written
    assert "- a mortal one: failed: `RuntimeError: it is tired`" in written
    assert "### MLP 784-100-100-10, 10 clients a round" in written
    assert "### pfl-research's CIFAR10 task, 50 clients a round" in written
    assert "absent: not installed" in capsys.readouterr().err
    assert (quick / "docs" / "assets" / "speed-cpu.png").stat().st_size > 1000
    assert docs_pages.read("speed.md", written).steps == ()  # the test of the docs must not measure


def test_an_arm_that_lacks_layers_leaves_a_task_out(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    catalog.ARMS["cpu"]["other"] = arm("other", plain_only=True)  # type: ignore[index]
    words = ("--tasks", "cnn", "vgg", "--arms", "good", "other", "--repeats", "1", "--rounds", "1")
    assert command(quick, "speed", *words) == 0
    rows = {(row["task"], row["arm"]): row for row in results(quick)["results"]}
    assert {key for key, row in rows.items() if "seconds_a_round" in row} == {
        *(("cnn", "good"), ("cnn", "other"), ("vgg", "good"))
    }
    assert "no padding, GroupNorm or residual blocks" in rows["vgg", "other"]["left_out"]
    assert "other vgg 10 0" not in notes(quick)  # not even started
    written = (quick / "docs" / "results" / "speed.md").read_text(encoding="utf-8")
    assert "- a other one: left out; its program has no padding" in written
    assert "other: left out" in capsys.readouterr().err


def test_later_results_join_earlier_ones(quick: Path) -> None:
    words = ("speed", "--tasks", "1", "--repeats", "1", "--rounds", "1")
    command(quick, *words, "--arms", "good", "other")
    before = results(quick)
    command(quick, *words, "--arms", "other", "--merge")
    after = results(quick)
    assert [row["arm"] for row in after["results"]] == ["good", "other"]
    assert after["results"][0] == before["results"][0]
    assert [row["run"] for row in after["results"]] == [0, 1]
    command(quick, *words, "--arms", "good")
    assert [row["arm"] for row in results(quick)["results"]] == ["good"]


# --- What is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("speed", "--arms", "fedjx"), "no cpu arm 'fedjx'; did you mean 'fedjax'?"),
        (("speed", "--tasks", "9"), "no task '9'; Known: 1, 2, 3, 4, 5, 6, 7, 8, cnn, femnist-cnn"),
        (("speed", "--device", "cuda", "--arms", "fedsim"), "no cuda arm 'fedsim'"),
        (("scale", "--parts", "client"), "no part 'client'; did you mean 'clients'?"),
        (("install-peers", "flwer"), "no peer 'flwer'; did you mean 'flower'?"),
    ],
)
def test_unknown_names(words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", ["speed", "scale"])
def test_no_gpu(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main([name, "--device", "cuda"]) == 2
    assert "torch finds no CUDA device" in capsys.readouterr().err


def test_files_that_are_no_results_are_not_merged_with(tmp_path: Path) -> None:
    path = tmp_path / "speed.json"
    assert files.read(path, {"runs"}) is None
    for text, words in (("{", "is damaged"), ('{"other": 1}', "something else"), ("[]", "something else")):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match=words):
            files.read(path, {"runs"})


# --- The arithmetic ---------------------------------------------------------------------------------------------------


def test_figures_by_hand() -> None:
    task = replace(SMALL, samples=20, batch_size=10, epochs=3, cohort=4)  # 6 steps, 240 samples a round
    assert (task.steps, task.samples_a_round) == (6, 240)
    # 6·5 + 5·3 = 45 weights: 2·45 forward, 2·45 weight gradients, 2·15 input gradients of the second layer
    assert task.flops_a_sample == 90 + 90 + 30
    found = measures.figures(task, [4.0, 3.0, 8.0], rounds=2, peak=1e5)
    assert found == {
        "seconds_a_round": 1.5,
        "median_seconds_a_round": 2.0,
        "samples_a_second": 160.0,
        "microseconds_a_client_step": 1.5e6 / 24,
        "share_of_peak": pytest.approx(210 * 240 / 1.5 / 1e5),
    }


def test_merged_runs_are_numbered_anew() -> None:
    def row(name: str, run: int) -> dict[str, Any]:
        return {"device": "cpu", "task": "mlp", "clients": 10, "arm": name, "run": run}

    before = {"runs": ["a", "b"], "results": [row("x", 0), row("y", 1)]}
    after = {"runs": ["c"], "results": [row("x", 0)]}
    assert measures.merge(before, after) == {"runs": ["b", "c"], "results": [row("y", 0), row("x", 1)]}
    other = {"runs": ["c"], "results": [{**row("x", 0), "clients": 50}]}
    assert len(measures.merge(before, other)["results"]) == 3


def test_short_numbers() -> None:
    assert [measures.short(value) for value in (0.01234, 1.5, 99.94, 12345.6)] == ["0.0123", "1.5", "99.9", "12,346"]


# --- The tasks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "model"), [(MLP, mlp), (CNN, cnn)])
def test_models_are_those_of_the_package(task: Task, model: Any) -> None:
    own, ours = torch_model.build(task), build_model(model, torch.zeros(2, *task.input_shape), 10, seed=0)
    shapes = [[tuple(p.shape) for p in module.parameters()] for module in (own, ours)]
    assert shapes[0] == shapes[1]
    assert task.parameters == sum(p.numel() for p in own.parameters())


def test_the_resnet_computes_what_the_package_s_does() -> None:
    own, ours = torch_model.build(RESNET), resnet(RESNET.input_shape, 10)
    sizes = [[tuple(p.shape) for p in module.parameters()] for module in (own, ours)]
    assert sizes[0] == sizes[1]
    with torch.no_grad():
        for mine, theirs in zip(own.parameters(), ours.parameters(), strict=True):
            mine.copy_(theirs + 0.1 * torch.randn_like(theirs))  # GroupNorm's ones and zeros would hide its places
            theirs.copy_(mine)
        x = torch.randn(4, 3, 32, 32)
        torch.testing.assert_close(own(x), ours(x), rtol=0, atol=0)


@pytest.mark.parametrize("task", [GROUPNORM_CNN, RESNET, VGG, FEMNIST_CNN], ids=lambda task: task.name)
def test_this_package_trains_as_many_parameters_as_the_task_says(task: Task) -> None:
    built = torch_model.build(task)
    assert task.parameters == sum(p.numel() for p in built.parameters())
    assert built(torch.zeros(2, *task.input_shape)).shape == (2, task.classes)
    assert task.samples % task.batch_size == 0  # JAX's arms and those on a GPU need that
    threads = torch.get_num_threads()
    arguments = argparse.Namespace(task=task.name, clients=2, device="cpu", engine="reference", precision=None)
    try:
        _, simulation = prepare(arguments)
    finally:
        adabest_arm.ARITHMETIC.close()
        torch.set_num_threads(threads)
    assert simulation.state.cloud.numel() == task.parameters


def test_layers_of_the_usual_models_are_counted_by_hand() -> None:
    block = Residual((Convolution(3, 4, padding=1, stride=2, bias=False), GroupNorm(2)), (Convolution(1, 4, stride=2),))
    task = replace(
        SMALL, input_shape=(2, 8, 6), layers=(Convolution(3, 2, padding=1), block, Relu(), Mean(), Linear(3))
    )
    assert [after for _, _, after in task.shapes()] == [(2, 8, 6), (4, 4, 3), (4, 4, 3), (4,), (3,)]
    # first convolution 2·9·2 + 2, body 2·9·4 and two of each channel, shortcut 2·4 + 4, linear layer 4·3 + 3
    assert task.parameters == 38 + 72 + 8 + 12 + 15
    assert task.parameters == sum(p.numel() for p in torch_model.build(task).parameters())
    # products forward: 18·2·48 pixels, 18·4·12, 2·4·12, 4·3; the first has no gradient of its input
    assert task.flops_a_sample == 2 * (2 * 1728 + 3 * (864 + 96 + 12))


def test_numbers_of_the_usual_models() -> None:
    found = {task.name: (task.parameters, task.steps, task.classes) for task in (GROUPNORM_CNN, RESNET, VGG)}
    assert found == {
        "groupnorm-cnn": (896 + 64 + 18_496 + 128 + 40_970, 10, 10),
        "resnet": (77_850, 10, 10),
        "vgg": (896 + 9_248 + 18_496 + 36_928 + 524_416 + 1_290, 4, 10),
    }
    assert FEMNIST_CNN.parameters == 832 + 51_264 + 1_606_144 + 31_806
    assert FEMNIST_CNN.layers[-3:] == (Linear(512), Relu(), Linear(62))


def test_tasks_that_are_not_plain_are_told_apart() -> None:
    assert [task.name for task in TASKS.values() if task.is_plain] == ["mlp", "cnn", "pfl-cifar", "paper"]
    for wave in waves.WAVES:
        assert TASKS[wave.task].is_plain or not any(arm.plain_only for arm in wave.chosen())


def test_by_default_everything_but_the_gpu_s_headline_is_measured() -> None:
    chosen = [task.name for task in speed.choose_tasks([])]
    assert chosen == [name for name in TASKS if name != PAPER.name]


def test_numbers_of_the_tasks() -> None:
    assert (MLP.parameters, CNN.parameters, PFL_CIFAR.parameters) == (89_610, 797_962, 1_626_442)
    assert (MLP.steps, CNN.steps, PFL_CIFAR.steps) == (50, 50, 5)
    assert 45 * CNN.flops_a_sample == pytest.approx(3.63e9, rel=1e-3)
    assert torch_model.build(PFL_CIFAR)(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert PFL_CIFAR.with_cohort(2000).population == 2000


def test_all_arms_see_the_same_data_and_clients() -> None:
    assert SMALL.inputs().shape == (8, 10, 6)
    assert np.array_equal(SMALL.inputs(), SMALL.inputs())
    assert abs(float(SMALL.inputs().mean())) < 0.2
    assert SMALL.labels().max() < 3
    cohorts = [SMALL.cohort_of(number).tolist() for number in (1, 1, 2)]
    assert cohorts[0] == cohorts[1] != cohorts[2]
    assert len(set(cohorts[0])) == 4


# --- The arms ---------------------------------------------------------------------------------------------------------


def trained(kind: Any, *options: Any) -> torch.Tensor:
    federation = kind(SMALL, *options)
    for number in (1, 2):
        federation.train_round(number)
    server = federation._server
    return parameters_to_vector(server.values() if isinstance(server, dict) else server).detach()


def test_loops_by_hand_do_the_same_work() -> None:
    """One batch holds all samples of a client, so its order doesn't matter."""
    threads = torch.get_num_threads()
    try:
        loop = trained(plain.Federation, False, 1)
    finally:
        torch.set_num_threads(threads)
    start = parameters_to_vector(torch_model.build(SMALL).parameters()).detach()
    assert float((loop - start).norm()) > 0.01
    torch.testing.assert_close(trained(torch_vmap.Federation), loop)


def test_settings_of_this_package_are_those_of_the_task() -> None:
    given = settings(SMALL)
    assert given["participation"] == 0.5
    assert (given["epochs"], given["batch_size"], given["learning_rate"]) == (2, 10, 0.1)
    assert given["dataset"].x_train.shape == (80, 6)  # type: ignore[attr-defined]


def test_every_arm_has_a_program_and_pins() -> None:
    for device, arms in catalog.ARMS.items():
        for name, entry in arms.items():
            assert (entry.name, entry.device) == (name, device)
            program = ROOT / "benchmarks" / "arms" / f"{entry.module.replace('.', '/')}.py"
            assert "serve(" in program.read_text(encoding="utf-8")
            assert entry.environment is None or entry.environment in environments.names()
    for name in environments.names():
        lines = (environments.PINS / f"{name}.txt").read_text(encoding="utf-8").split()
        assert all("==" in line for line in lines)


# --- Pages and the other commands -------------------------------------------------------------------------------------


def row(name: str, kind: str, seconds: float, **others: Any) -> dict[str, Any]:
    task = TASKS["mlp"]
    figures = measures.figures(task, [seconds], 1, 1e11)
    about = {"run": 0, "device": "cpu", "task": "mlp", "clients": 10, "precision": "float32", "rounds": 1}
    return {
        "arm": name,
        "label": name,
        "kind": kind,
        "startup_seconds": 1,
        "peak_memory": 5e8,
        **about,
        **figures,
        **others,
    }


def test_the_table_is_sorted_and_says_how_much_slower_the_others_are() -> None:
    rows = [row("slow", "framework", 0.5), row("ours", "adabest", 0.1), row("quick", "hand-written", 0.05)]
    table = page.table([*rows, {"label": "absent", "error": "it failed"}])
    assert [cells[0] for cells in table.rows] == ["quick", "**ours**", "slow"]
    assert [cells[3] for cells in table.rows] == ["0.50", "1.00", "5.00"]
    assert table.rows[1][1:3] == ("0.1", "0.1")
    assert table.rows[1][4:6] == ("250,000", "200")


def two_calls() -> dict[str, Any]:
    """Half of the arms of a task measured on one machine, the others on one that is ten times as fast."""
    runs = [{**machine.describe("cpu", command, "abc"), "repeats": 1, "peaks": {"float32": 1e11}} for command in "xy"]
    rows = [row("ours", "adabest", 0.5), row("theirs", "framework", 0.6)]
    rows += [row("plain", "hand-written", 0.1, run=1)]
    return {"runs": runs, "results": rows}


def test_no_ratio_goes_across_calls() -> None:
    found = two_calls()
    written = page.page(found)
    assert "| theirs | 0.6 | 0.6 | 1.20 |" in written
    assert "| plain | 0.1 | 0.1 | – |" in written
    assert written.index("\nCall 1.\n") < written.index("| theirs |") < written.index("\nCall 2.\n")
    assert written.index("\nCall 2.\n") < written.index("| plain |")
    assert f"Call 2. {machine.words(found['runs'][1])}" in written
    found["results"] = found["results"][:2]
    assert "Call" not in page.page(found)


def test_the_figure_of_a_cpu_has_a_panel_for_each_call_of_a_task_three_in_a_line() -> None:
    found = two_calls()
    others = [row("ours", "adabest", 0.2, task=name) for name in ("cnn", "pfl-cifar")]
    drawn = page.figure({**found, "results": [*found["results"], *others]}, "cpu")
    titles = ["MLP 784-100-100-10, call 1", "MLP 784-100-100-10, call 2", "CNN of the paper"]
    assert [axes.get_title() for axes in drawn.axes] == [*titles, PFL_CIFAR.title]
    tops = [round(axes.get_position().y1, 3) for axes in drawn.axes]
    assert tops[0] == tops[1] == tops[2] > tops[3]


def on_gpu(name: str, kind: str, micros: float, clients: int) -> dict[str, Any]:
    task = TASKS["mlp"].with_cohort(clients)
    about = {"device": "cuda", "clients": clients, "precision": "bf16"}
    return row(name, kind, 1.0, **about) | measures.figures(task, [micros * clients * task.steps / 1e6], 1, 1e11)


GPU_ROWS = (
    on_gpu("adabest", "adabest", 20, 100),
    on_gpu("adabest", "adabest", 5, 500),
    on_gpu("jax-bf16", "hand-written", 120, 100),
    on_gpu("drjax-im2col-bf16", "framework", 90, 100),
    on_gpu("jax-bf16", "hand-written", 60, 10),
    on_gpu("pfl-5", "framework", 600, 10),
    on_gpu("pfl", "framework", 2700, 10),
    on_gpu("eager-bf16", "hand-written", 2500, 10),
)


def gpu_results(**others: Any) -> dict[str, Any]:
    run = {**machine.describe("cpu", "x", "abc"), "repeats": 1, "peaks": {"bf16": 1e11}}
    return {"runs": [run], "results": list(GPU_ROWS), **others}


def test_a_family_has_its_best_arm_at_100_clients_or_the_most_it_was_given() -> None:
    found = {name: (row["arm"], row["clients"]) for name, row in page.families(GPU_ROWS).items()}
    assert found == {
        "adabest": ("adabest", 100),
        "JAX or DrJAX, vmap": ("drjax-im2col-bf16", 100),
        "pfl, 5 processes": ("pfl-5", 10),
        "a loop over clients: torch or pfl": ("eager-bf16", 10),
    }
    assert next(iter(found)) == "adabest"


def test_the_figure_of_a_gpu_has_a_labelled_bar_for_each_family(tmp_path: Path) -> None:
    (axes,) = page.figure(gpu_results(), "cuda").axes
    assert [bar.get_width() for bar in axes.patches if isinstance(bar, Rectangle)] == pytest.approx([20, 90, 600, 2500])
    assert [text.get_text() for text in axes.texts] == ["20 µs", "90 µs", "600 µs", "2,500 µs"]
    assert len({bar.get_facecolor() for bar in axes.patches}) == 2
    assert axes.get_yticklabels()[2].get_text() == "pfl, 5 processes (10 clients)"
    paths = files.write(tmp_path, page.files(gpu_results()))
    assert [path.relative_to(tmp_path).as_posix() for path in paths] == [
        *("results/speed.json", "results/speed.md", "assets/speed-cuda.png")
    ]
    assert "## On a GPU" in paths[1].read_text(encoding="utf-8")


def test_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "MLP", SMALL)
    monkeypatch.setattr(scale, "CLIENTS", {"cpu": (1, 4)})
    monkeypatch.setattr(scale, "WIDTHS", {"cpu": (2, 4)})
    words = ("scale", "--engine", "reference", "--repeats", "1")
    assert command(tmp_path, *words, "--parts", "clients") == 0
    assert command(tmp_path, *words, "--parts", "model", "--merge") == 0
    found = json.loads((tmp_path / "docs" / scale.RESULTS).read_text(encoding="utf-8"))["cpu"]["parts"]
    assert [point["size"] for point in found["clients"]] == [1, 4]
    assert [point["size"] for point in found["model"]] == [29, 63]
    assert "### Clients in parallel" in (tmp_path / "docs" / "results" / "scale.md").read_text(encoding="utf-8")
    assert len(scale.figure(found).axes) == 2


def test_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioners, "SIZES", ((200, 4), (60_000, 4)))
    monkeypatch.setattr(samplers, "POPULATIONS", (50, 100))
    monkeypatch.setattr(samplers, "ROUNDS", 2)
    assert command(tmp_path, "partition") == 0
    found = json.loads((tmp_path / "docs" / "results" / "partition.json").read_text(encoding="utf-8"))
    assert found["seconds"]["dirichlet-legacy"][1] is None
    assert found["seconds"]["iid"][1] > 0
    written = (tmp_path / "docs" / "results" / "partition.md").read_text(encoding="utf-8")
    assert "| samples / clients | 200 / 4 | 60,000 / 4 |" in written
    assert "| 10 of | 50 | 100 |" in written
    assert (tmp_path / "docs" / "assets" / "partitioners.png").stat().st_size > 1000


def test_a_whole_number_above_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["speed", "--repeats", "0"])
    assert "0 isn't at least 1" in capsys.readouterr().err
