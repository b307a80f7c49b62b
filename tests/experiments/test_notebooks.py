"""What the Python API returns, as people look at it: short texts, escaped tables, figures, frames, and its objects."""

import dataclasses
import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from clock import Clock
from matplotlib.figure import Figure
from tiny_runs import run, stripes, tiny
from torch import nn

import adabest
from adabest import InputError, extras
from adabest.report.frame import as_frame
from adabest.report.table import Table
from adabest.runs.callbacks.board import LineBoard
from adabest.runs.callbacks.progress import LineReporter, in_notebook, terminal_console


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> adabest.Comparison:
    """A finished comparison, to look at only."""
    out = tmp_path_factory.mktemp("notebook") / "all"
    return adabest.compare(algorithms=["fedavg", "adabest"], seeds=[0, 1], out=out, show=False, **tiny())


def network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 7), nn.Tanh(), nn.Dropout(0.2), nn.Linear(7, 3))


def test_texts_of_results_are_short_and_say_what_they_are(compared: adabest.Comparison, tmp_path: Path) -> None:
    one = compared.runs["fedavg,seed=1"]
    accuracy = 100 * one.final["scored_accuracy"]
    assert repr(one).startswith(f"Run('{compared.folder}/fedavg,seed=1': fedavg on stripes, finished, round ")
    assert repr(one).endswith(f", accuracy {accuracy:.1f} %)")
    assert repr(compared) == f"Comparison('{compared.folder}': 2 entries, 4 runs)"
    assert repr(Table(("", "a"), (("x", "1"), ("y", "2")))) == "Table(2 rows: a)"
    assert repr(adabest.list_runs(compared.folder)) == "RunList(4 runs)"
    data = stripes()
    samples = f"{len(data.y_train)} training and {len(data.y_test)} test samples of shape {data.input_shape}"
    assert repr(data) == f"Dataset({data.name}: {samples}, 3 classes)"
    clients = one.partition.clients
    own = f"Partition({len(clients.training)} training and {len(clients.validation)} validation clients, "
    assert repr(clients) == f"{own}{len(clients.indices)} samples)"
    assert repr(one.partition) == f"CutPartition(stripes, dirichlet: {clients!r})"


def test_tables_in_notebooks_are_escaped_and_keep_bold() -> None:
    table = Table(("<a>", "b"), (("<script>alert(1)</script>", "**1 & 2** ± 3"),), "x < y")
    assert table._repr_html_() == (
        "<table><caption>x &lt; y</caption><thead><tr><th>&lt;a&gt;</th><th>b</th></tr></thead><tbody><tr>"
        "<td>&lt;script&gt;alert(1)&lt;/script&gt;</td><td><strong>1 &amp; 2</strong> ± 3</td></tr></tbody></table>"
    )


def test_results_are_tables_in_notebooks(compared: adabest.Comparison) -> None:
    one = compared.runs["adabest,seed=0"]
    assert compared._repr_html_() == compared.table.html()
    assert "<td>adabest</td>" in compared._repr_html_()
    assert f"<td>{one.folder}</td>" in one._repr_html_()
    assert "samples used" in one.partition._repr_html_()


def test_plots_have_the_lines_of_the_metrics(compared: adabest.Comparison) -> None:
    figure = compared.plot()
    assert isinstance(figure, Figure)
    lines = {line.get_label(): line for line in figure.axes[0].get_lines()}
    assert list(lines) == ["fedavg", "adabest"]
    runs = compared.entries["adabest"]
    mean = np.mean([one.curve("scored_accuracy")[1] for one in runs], axis=0)
    np.testing.assert_allclose(np.asarray(lines["adabest"].get_ydata()), mean)
    (line,) = runs[0].plot(title="mine").axes[0].get_lines()
    np.testing.assert_array_equal(np.asarray(line.get_ydata()), runs[0].curve("scored_accuracy")[1])
    assert runs[0].partition.plot().axes[0].get_xlabel().startswith("clients")


def test_figures_are_pictures_in_notebooks(compared: adabest.Comparison) -> None:
    figure: Any = compared.plot()
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_a_sweep_and_a_tuning_are_drawn_by_validation(tmp_path: Path) -> None:
    swept = adabest.sweep(vary={"learning_rate": [0.1, 0.01]}, out=tmp_path / "sweep", show=False, **tiny())
    tuned = adabest.tune(vary={"learning_rate": [0.1, 0.01]}, out=tmp_path / "tune", show=False, **tiny())
    for made in (swept, tuned):
        assert made.plot().axes[0].get_title() == "Validation accuracy of the scored model"
    assert repr(tuned).startswith("Tuning(")


def test_frames_have_the_metrics(compared: adabest.Comparison) -> None:
    pytest.importorskip("pandas")
    one = compared.runs["fedavg,seed=1"]
    frame = one.to_pandas()
    assert list(frame["scored_accuracy"]) == one.curve("scored_accuracy")[1]
    every = compared.to_pandas()
    assert list(every.columns[:2]) == ["entry", "seed"]
    mine = every[(every["entry"] == "fedavg") & (every["seed"] == 1)]
    assert list(mine["cloud_norm"]) == list(frame["cloud_norm"])
    assert len(every) == sum(len(run.metrics) for run in compared.runs.values())
    table = Table(("", "a"), (("x", "**1**"), ("y", "2"))).to_pandas()
    assert table.to_dict("list") == {"0": ["x", "y"], "a": ["1", "2"]}


def test_a_missing_pandas_is_named(compared: adabest.Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "is_installed", lambda package: package != "pandas")
    for thing in (compared, compared.table, next(iter(compared.runs.values()))):
        with pytest.raises(InputError, match=r'pip install "adabest\[pandas\]"'):
            thing.to_pandas()
    with pytest.raises(InputError, match=r"^per_client needs a package"):
        as_frame({}, "per_client")


def test_the_partition_of_a_run_is_the_one_it_was_made_with(compared: adabest.Comparison) -> None:
    made = compared.runs["fedavg,seed=1"]
    loaded = adabest.load(made.folder)
    for one in (made, loaded):
        clients = one.partition.clients
        assert clients.fingerprint == one.identity["partition"]["fingerprint"]
        counted = np.bincount(stripes().y_train.numpy()[clients.of(2)], minlength=3)
        np.testing.assert_array_equal(counted, clients.label_counts[2])
    frame = loaded.partition.to_pandas()
    assert list(frame[frame["client"] == 2]["sample"]) == list(clients.of(2))
    assert set(frame[frame["role"] == "validation"]["client"]) == set(clients.validation)


def test_a_partition_of_other_data_is_refused(tmp_path: Path) -> None:
    one = run(tmp_path / "mine", dataset=dataclasses.replace(stripes(), name="mine"))
    assert len(one.partition.clients.indices) > 0
    with pytest.raises(InputError, match=r"was a Python object.*adabest\.partition\(dataset="):
        _ = adabest.load(tmp_path / "mine").partition
    changed = dataclasses.replace(one, identity={"partition": {"fingerprint": "another"}})
    with pytest.raises(InputError, match="has changed since"):
        _ = changed.partition


@pytest.mark.parametrize("given", [network(), lambda shape, classes: network()], ids=["module", "function"])
def test_a_model_object_is_there_right_after_its_run(given: Any, tmp_path: Path) -> None:
    one = run(tmp_path / "mine", model=given)
    expected = one.load_model(module=network()).eval()
    inputs = torch.rand(5, *stripes().input_shape)
    torch.testing.assert_close(one.model(inputs), expected(inputs), rtol=0, atol=0)
    assert one.model is not given
    assert one.predict(stripes().x_test).shape == (len(stripes().y_test), 3)
    with pytest.raises(InputError, match="pass it again, as module="):
        _ = adabest.load(tmp_path / "mine").model


def test_the_users_own_module_keeps_its_weights(tmp_path: Path) -> None:
    mine = network()
    before = [parameter.detach().clone() for parameter in mine.parameters()]
    trained = run(tmp_path / "mine", model=mine).model
    assert all(map(torch.equal, before, mine.parameters()))
    assert not all(map(torch.equal, before, trained.parameters()))


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes this process look like the kernel of a notebook, to us and to rich."""
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)


@pytest.mark.usefixtures("kernel")
def test_progress_in_a_notebook_is_one_line_that_is_rewritten() -> None:
    stream, clock = io.StringIO(), Clock()
    with LineReporter("mine", 0, 3, stream, clock) as reporter:
        clock.now += 1
        reporter.show(1, {"scored_accuracy": 0.5}, 1000.0)
        clock.now += 0.5
        reporter.show(2, None, 10.0)  # too early for news
        clock.now += 0.5
        reporter.show(3, None, 10.0)
    first = "mine: round 1/3, accuracy 50.0 %, 1,000 steps/s, 2 s left"
    last = "mine: round 3/3, accuracy 50.0 %, 10 steps/s, 0 s left"
    assert stream.getvalue() == f"\r{first}\r{last.ljust(len(first))}\n"


@pytest.mark.usefixtures("kernel")
def test_several_runs_in_a_notebook_share_a_line_and_keep_their_ends() -> None:
    stream, clock = io.StringIO(), Clock()
    with LineBoard([2, 2], stream, clock) as board:
        with board.reporter("one", 0, 2) as one:
            clock.now += 1
            one.show(1, None, 10.0)
        two = board.reporter("two", 0, 2)
        clock.now += 1
        two.show(1, None, 10.0)
    news, kept, rest = stream.getvalue().removeprefix("\r").split("\r")
    assert news.startswith("0 of 2 runs done, 1 at work")
    assert kept == "one: round 1/2, accuracy –".ljust(len(news)) + "\n"
    assert rest.startswith("1 of 2 runs done, 1 at work")
    assert rest.endswith("\n")  # what is printed next starts a line of its own


def test_rich_draws_no_widgets_in_a_notebook(kernel: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_notebook()
    assert terminal_console(io.StringIO()) is None
    monkeypatch.delitem(sys.modules, "IPython")
    assert not in_notebook()
