"""What is told of a model's layers: each with its way on a GPU and on a CPU, which are the ways that trainers take."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import odd_models
import pytest
import torch
from side_by_side import Case, StackedEngine, make_dataset, simulate
from tiny_runs import command
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import adabest
from adabest.algorithms.adabest import AdaBest
from adabest.data import download
from adabest.data.dataset import Dataset, from_arrays
from adabest.engine.batched import BatchedEngine
from adabest.engine.cpu.linear import Chain
from adabest.engine.cpu.trainer import CpuTrainer
from adabest.engine.gpu import trainer as gpu_trainer
from adabest.engine.gpu.layers import ConvolutionWork, LinearWork, NormWork, PoolWork, SumWork
from adabest.engine.gpu.trainer import GpuTrainer
from adabest.errors import InputError
from adabest.models.keyed import prepare
from adabest.runs.build import make_batched_engine
from adabest.tasks.base import Heartbeat

KERNELS, STACKED, IN_TURN = "kernels", "torch.func, clients stacked", "one client after another"
CHAIN, AUTOGRAD = "scripted chain", "autograd on each core"
SHAPE = odd_models.INPUT


def vgg(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Convolutions, one of them dilated, and dropout."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=2, dilation=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 64, 12),
        nn.ReLU(),
        nn.Dropout(),
        nn.Linear(12, classes),
    )


def normed(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """GroupNorm between a convolution and its relu."""
    layers = [nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(8 * 225, classes))


def tanh_then_relu(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Tanh(), nn.ReLU(), nn.Flatten(), nn.Linear(7200, classes))


class DroppingBlock(nn.Module):
    """A residual block with dropout."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.stem, self.body = nn.Conv2d(3, 8, 5, stride=4), nn.Conv2d(8, 8, 3, padding=1)
        self.dropout, self.out = nn.Dropout(), nn.Linear(8 * 49, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        scores: Tensor = self.out((self.dropout(self.body(x)) + x).flatten(1))
        return scores


class Reader(nn.Module):
    """Token ids, looked up and read one after another, or all at once."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, recurrent: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 8)
        self.cell = nn.LSTM(8, 6, batch_first=True) if recurrent else None
        self.out = nn.Linear(6 if recurrent else 8, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.words(x)
        scores: Tensor = self.out(x.mean(dim=1) if self.cell is None else self.cell(x)[0][:, -1])
        return scores


def recurrent(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return Reader(input_shape, classes, recurrent=True)


def averaging(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return Reader(input_shape, classes, recurrent=False)


class Dropping(nn.Module):
    """Dropout as a function."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.first, self.out = nn.Linear(72, 6), nn.Linear(6, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.dropout(functional.relu(self.first(x.flatten(1))), training=self.training)
        scores: Tensor = self.out(x)
        return scores


def ids() -> Dataset:
    x, y = torch.arange(240).reshape(24, 10) % 50, torch.arange(24) % 4
    return from_arrays(x, y, x, y, name="ids")


def summary(found: adabest.ModelLayers) -> list[tuple[str, str]]:
    """Each layer with its way on a GPU."""
    return [(row.layer, row.gpu) for row in found.rows]


class TestWays:
    @pytest.mark.parametrize(
        ("model", "dataset", "cpu", "rows"),
        [
            ("logistic", "mnist", CHAIN, [("linear 784→10", KERNELS)]),
            ("mlp,hidden=5x4", "mnist", CHAIN, ["linear 784→5 + relu", "linear 5→4 + relu", "linear 4→10"]),
            (
                "cnn",
                "cifar10",
                AUTOGRAD,
                [
                    "conv 3→64, 5×5 + relu + max-pool 2×2",
                    "conv 64→64, 5×5 + relu + max-pool 2×2",
                    "linear 1600→384 + relu",
                    "linear 384→192 + relu",
                    "linear 192→10",
                ],
            ),
            (
                vgg,
                "cifar10",
                AUTOGRAD,
                [
                    "conv 3→8, 3×3 + relu",
                    ("conv 8→8, 3×3, dilation 2×2", STACKED),
                    ("relu", STACKED),
                    ("max-pool 2×2", STACKED),
                    "conv 8→16, 3×3 + relu + max-pool 2×2",
                    "linear 1024→12 + relu",
                    ("dropout", STACKED),
                    "linear 12→10",
                ],
            ),
            (
                normed,
                "cifar10",
                AUTOGRAD,
                ["conv 3→8, 3×3", "GroupNorm + relu + max-pool 2×2", "linear 1800→10"],
            ),
            (averaging, ids(), AUTOGRAD, [("Embedding 50→8", STACKED), ("mean", STACKED), "linear 8→4"]),
            (
                recurrent,
                ids(),
                AUTOGRAD,
                [("Embedding 50→8", STACKED), ("LSTM 8→6", STACKED), "linear 6→4"],
            ),
            (
                odd_models.make("depends on data"),
                make_dataset(SHAPE),
                AUTOGRAD,
                [("linear 72→5", IN_TURN), ("linear 5→3", IN_TURN)],
            ),
            (
                odd_models.make("branching"),
                make_dataset(SHAPE),
                AUTOGRAD,
                [("linear 72→5", STACKED), ("linear 5→3", STACKED)],
            ),
            (Dropping, make_dataset(SHAPE), AUTOGRAD, [("linear 72→6", STACKED), ("linear 6→3", STACKED)]),
        ],
        ids=[
            "logistic",
            "mlp",
            "cnn",
            "vgg",
            "group norm",
            "embedding",
            "lstm",
            "in turn",
            "untraceable",
            "dropout function",
        ],
    )
    def test_each_layer_has_its_way(self, model: Any, dataset: Any, cpu: str, rows: list[Any]) -> None:
        found = adabest.layers(model=model, dataset=dataset)
        assert summary(found) == [(row, KERNELS) if isinstance(row, str) else row for row in rows]
        assert {row.cpu for row in found.rows} == {cpu}

    def test_a_residual_network_has_kernels(self) -> None:
        found = adabest.layers(model="resnet", dataset="cifar10")
        block = ["conv 32→64, 3×3, stride 2×2", "GroupNorm + relu", "conv 64→64, 3×3", "GroupNorm"]
        shortcut = ["conv 32→64, 1×1, stride 2×2", "add + relu"]
        assert [row.layer for row in found.rows[-8:-2]] == block + shortcut
        assert {row.gpu for row in found.rows} == {KERNELS}

    @pytest.mark.parametrize(
        ("precision", "gpu", "cpu"),
        [
            ("float32", KERNELS, AUTOGRAD),
            ("float64", "plain torch, clients stacked", AUTOGRAD),
            ("tf32", KERNELS, "–"),
            ("bf16", KERNELS, "plain torch, one client at a time"),
        ],
    )
    def test_precision_decides(self, precision: Any, gpu: str, cpu: str) -> None:
        found = adabest.layers(model="cnn", dataset="cifar10", precision=precision)
        assert {(row.gpu, row.cpu) for row in found.rows} == {(gpu, cpu)}
        assert all(f"({precision}): " in note for note in found.notes[:2])

    def test_a_task_of_another_kind_has_no_chain(self) -> None:
        x = torch.linspace(0, 1, 72).reshape(24, 3)
        numbers = from_arrays(x, x.sum(dim=1), x, x.sum(dim=1), name="numbers")
        found = adabest.layers(model="mlp,hidden=4", dataset=numbers, task="regression")
        assert {(row.gpu, row.cpu) for row in found.rows} == {(KERNELS, AUTOGRAD)}
        text = "\n".join(found.notes)
        assert "On a GPU, torch.func computes the loss, too." in text
        assert "no scripted chain computes it: the loss isn't cross-entropy of classes." in text

    def test_short_batches_of_a_model_that_looks_at_others_are_computed_in_turn(self) -> None:
        settings: Any = {"model": odd_models.make("batch statistics"), "dataset": make_dataset(SHAPE)}
        assert IN_TURN not in {row.gpu for row in adabest.layers(**settings).rows}
        found = adabest.layers(**settings, batching="short")
        assert {(row.gpu, row.cpu) for row in found.rows} == {(IN_TURN, AUTOGRAD)}
        assert "since the model's outputs for a sample depend on the others of its batch; batches that are " in (
            "\n".join(found.notes)
        )

    def test_batch_norm_is_replaced_as_in_a_run(self) -> None:
        model = nn.Sequential(nn.Conv2d(2, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(128, 3))
        dataset = make_dataset(SHAPE)
        with pytest.raises(InputError, match="batch_norm=group"):
            adabest.layers(model=model, dataset=dataset)
        found = adabest.layers(model=model, dataset=dataset, batch_norm="group")
        assert summary(found)[1] == ("GroupNorm", KERNELS)


class TestFigures:
    @pytest.mark.parametrize("name", odd_models.MODELS | odd_models.ONE_BY_ONE)
    def test_layers_sum_up_to_the_model(self, name: str) -> None:
        module = odd_models.make(name)
        found = adabest.layers(model=module, dataset=make_dataset(SHAPE))
        trained = sum(p.numel() for p in module.parameters() if p.requires_grad)
        assert sum(row.parameters for row in found.rows) == trained
        prepared = prepare(module, torch.zeros(2, *SHAPE))
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            prepared(torch.zeros(1, *SHAPE))
        # Torch counts nothing within its fused LSTM.
        assert found.flops == counter.get_total_flops() + (5280 if name == "recurrent" else 0)
        assert found.rows[-1].output is not None
        assert math.prod(found.rows[-1].output) == odd_models.CLASSES

    def test_figures_by_hand(self) -> None:
        model = nn.Sequential(nn.Conv2d(2, 5, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(20, 3))
        first, last = adabest.layers(model=model, dataset=make_dataset(SHAPE)).rows
        assert (first.parameters, first.output, first.flops) == (2 * 9 * 5 + 5, (5, 2, 2), 2 * 18 * 5 * 16)
        assert (last.parameters, last.output, last.flops) == (63, (3,), 2 * 20 * 3)

    def test_attention_is_counted_in_products(self) -> None:
        found = adabest.layers(model=odd_models.make("scaled attention"), dataset=make_dataset(SHAPE))
        projections, products = 2 * 12 * 6 * 18, 2 * (2 * 12 * 12 * 3)  # of twelve places, in two heads of three
        assert found.flops == projections + 2 * products + 2 * 6 * 3

    def test_an_lstm_is_counted_in_products(self) -> None:
        layer = adabest.layers(model=recurrent, dataset=ids()).rows[1]
        assert layer.flops == 10 * 2 * 4 * 6 * (8 + 6)  # ten steps of four gates of products with input and state


class TestReasons:
    @pytest.mark.parametrize(
        ("model", "words"),
        [
            (vgg, "No kernels for conv 8→8, 3×3, dilation 2×2: its dilation is 2×2, and kernels have none. So that "),
            (vgg, "the plan can fuse it: take dilation 1."),
            (vgg, "No kernels for relu, max-pool 2×2: the layer before it has no kernels"),
            (
                vgg,
                "No kernels for dropout: kernels are for nn.Conv2d, nn.Linear, nn.GroupNorm, nn.LayerNorm, sums, relu",
            ),
            (tanh_then_relu, "No kernels for relu: it isn't right behind a convolution, a linear layer, a norm"),
            (DroppingBlock, "as around a shortcut, and KeyedDropout is in the way: kernels are for nn.Conv2d"),
        ],
    )
    def test_reasons_are_told(self, model: Any, words: str) -> None:
        assert words in "\n".join(adabest.layers(model=model, dataset="cifar10").notes)

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("depends on data", "one client after another, since many can't be computed at once (vmap: "),
            ("branching", "the model as a whole: it can't be traced ("),
            ("normed at the start", "images don't lie channels last: a group norm comes before the first trained"),
            ("batch statistics", "the model's outputs for a sample depend on the others of its batch."),
            (
                "functions",
                "before the max-pooling behind it: the model isn't one nn.Sequential. So that it comes",
            ),
            ("relu at the end", "no scripted chain computes it: a relu comes last. So that one does: leave it out."),
        ],
    )
    def test_reasons_of_odd_models_are_told(self, name: str, words: str) -> None:
        found = adabest.layers(model=odd_models.make(name), dataset=make_dataset(SHAPE))
        assert words in "\n".join(found.notes)

    @pytest.mark.parametrize("name", ["odd pool", "mixed", "strided"])
    def test_models_that_pool_first_are_told_nothing_of_it(self, name: str) -> None:
        found = adabest.layers(model=odd_models.make(name), dataset=make_dataset(SHAPE))
        assert "a relu is computed before" not in "\n".join(found.notes)

    def test_following_the_advice_lets_the_plan_fuse_it(self) -> None:
        told, better = vgg((3, 32, 32), 10), vgg((3, 32, 32), 10)
        assert isinstance(better, nn.Sequential)
        better[2] = nn.Conv2d(8, 8, 3, padding="same")
        before, after = (adabest.layers(model=one, dataset="cifar10") for one in (told, better))
        assert ("conv 8→8, 3×3 + relu + max-pool 2×2", KERNELS) in summary(after)
        assert before.flops == after.flops


class Remembering:
    """Makes an engine, and keeps it."""

    def __init__(self, make: Callable[[Heartbeat], BatchedEngine]) -> None:
        self._make = make

    def __call__(self, heartbeat: Heartbeat) -> BatchedEngine:
        self.engine = self._make(heartbeat)
        return self.engine

    def trainer(self) -> Any:
        (found,) = self.engine._trainers.values()
        return found


# Models for which ways differ: kernels alone, kernels and torch.func in turn, torch.func alone, and clients in turn.
TAKEN = (
    "functions",
    "mixed",
    "residual",
    "shortcuts",
    "many ways",
    "hooked",
    "branching",
    "unused",
    "group norms",
    "layer norms",
    "means",
    "recurrent",
)


@pytest.mark.parametrize("name", [*TAKEN, "chain"])
class TestWaysAreTaken:
    def case(self, name: str) -> Case:
        module = nn.Sequential(nn.Flatten(), nn.Linear(72, 4), nn.ReLU(), nn.Linear(4, 3))
        model = module if name == "chain" else odd_models.make(name)
        return Case(model, SHAPE, dtype=torch.float32, options=(("epochs", 1), ("batch_size", 7)))

    def told(self, name: str) -> adabest.ModelLayers:
        return adabest.layers(model=self.case(name).model, dataset=make_dataset(SHAPE), precision="float32")

    def test_on_a_cpu(self, name: str) -> None:
        making = Remembering(make_batched_engine)
        simulate(AdaBest(), self.case(name), making).step(evaluate=False)
        taken = making.trainer()
        assert isinstance(taken, CpuTrainer)
        is_chain = isinstance(taken._method, Chain)
        assert is_chain == (name == "chain")
        assert {row.cpu for row in self.told(name).rows} == {CHAIN if is_chain else AUTOGRAD}

    @pytest.mark.filterwarnings("ignore:clients train one after another")
    def test_on_a_gpu(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """In Triton's interpreter, where there is no GPU."""
        pytest.importorskip("triton", reason="Triton isn't installed")
        from adabest.engine.gpu.kernels.fused import Fused

        told = [row.gpu for row in self.told(name).rows]
        kernels: Any = Fused("ieee")
        monkeypatch.setattr(gpu_trainer, "operators", lambda *_arguments, **_options: kernels)
        making = Remembering(StackedEngine)
        simulate(AdaBest(), self.case(name), making).step(evaluate=False)
        taken = making.trainer()
        if taken is None:
            assert set(told) == {IN_TURN}
            return
        assert isinstance(taken, GpuTrainer)
        assert taken._program is not None
        works = taken._program._works
        assert all(work._operators is kernels for work in works)
        # Neighbours that torch.func computes are one part of the program.
        runs = [way for place, way in enumerate(told) if way == KERNELS or place == 0 or told[place - 1] == KERNELS]
        with_kernels = (ConvolutionWork, LinearWork, NormWork, PoolWork, SumWork)
        assert runs == [KERNELS if isinstance(work, with_kernels) else STACKED for work in works]


class TestForms:
    def test_repr_is_short(self) -> None:
        found = adabest.layers(model="mlp,hidden=4", dataset="mnist")
        assert repr(found) == (
            "ModelLayers(mlp,hidden=4, 2 layers; GPU: 100.0 % of the FLOPs by kernels; "
            "CPU: 100.0 % of the FLOPs by scripted chain)"
        )

    def test_the_table_has_a_row_for_each_layer(self) -> None:
        found = adabest.layers(model="mlp,hidden=4", dataset="mnist")
        assert found.table.title == "mlp,hidden=4: 3,190 parameters, 6,352 FLOPs a sample, forward"
        assert found.table.rows == (
            ("linear 784→4 + relu", "3,140", "4", "6,272", "98.7", KERNELS, CHAIN),
            ("linear 4→10", "50", "10", "80", "1.3", KERNELS, CHAIN),
        )
        assert "<td>linear 4→10</td>" in found._repr_html_()

    def test_pandas_has_a_row_for_each_layer(self) -> None:
        pytest.importorskip("pandas", reason="pandas isn't installed")
        frame = adabest.layers(model=normed, dataset="cifar10").to_pandas()
        assert list(frame["layer"])[:2] == ["conv 3→8, 3×3", "GroupNorm + relu + max-pool 2×2"]
        assert list(frame["parameters"])[:2] == [224, 16]
        assert list(frame["obstacle"]) == ["", "", ""]

    def test_published_data_are_neither_read_nor_downloaded(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refused(*_arguments: Any, **_options: Any) -> Any:
            raise AssertionError("something was downloaded")

        monkeypatch.setattr(download, "fetch", refused)
        monkeypatch.setenv("ADABEST_DATA", str(tmp_path))
        assert adabest.layers(dataset="cifar100").rows[-1].output == (100,)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"modle": "cnn"}, "did you mean 'model'"),
            ({"model": "cn"}, "did you mean 'cnn'"),
            ({"model": "cnn"}, "cnn needs images"),
            ({"precision": "float16"}, "precision"),
            ({"model": nn.Linear(7, 3)}, "the model can't take inputs of shape"),
            ({"batch_size": 0}, "batch_size = 0"),
        ],
    )
    def test_mistakes_are_told_as_in_a_run(self, settings: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            adabest.layers(**settings)

    def test_ids_that_a_model_does_not_know_are_told(self) -> None:
        """Also those that are in none of the first samples."""
        x = torch.zeros(24, 10, dtype=torch.int64)
        x[-1, -1] = 50
        y = torch.arange(24) % 4
        with pytest.raises(InputError, match="can't take ids from 0 to 50"):
            adabest.layers(model=averaging, dataset=from_arrays(x, y, x, y))


class TestCommand:
    def test_the_command_prints_table_and_notes(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("COLUMNS", "150")
        assert command("layers", "--model", "resnet", "--dataset", "cifar10", "--precision", "float32") == 0
        out = capsys.readouterr().out
        found = adabest.layers(model="resnet", dataset="cifar10", precision="float32")
        assert found.table.title in out
        assert all(note in out for note in found.notes)
        assert out.count(AUTOGRAD) == len(found.rows) + 1

    def test_a_model_of_ones_own_is_imported(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        text = "from torch import nn\ndef wide(shape, classes, width: int = 3):\n    return nn.Sequential("
        (tmp_path / "layers_of_mine.py").write_text(f"{text}nn.Flatten(), nn.Linear(64, width), nn.Linear(width, 10))")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("COLUMNS", "150")
        assert command("layers", "--model", "layers_of_mine:wide,width=7") == 0
        assert "linear 64→7" in capsys.readouterr().out
        assert command("layers", "--model", "layers_of_mine:narrow") == 2
