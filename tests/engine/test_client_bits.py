"""A client's bits don't depend on who trains beside it.

Results alone can't show that: most processors sum in the same order wherever operands lie. So the first tests look at
what every sum is given: addresses, strides and threads.
"""

import collections
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small import make_dataset, make_partition
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from adabest.engine.batched import _first_chunk, _Waiting
from adabest.engine.cpu import linear, linear_steps
from adabest.engine.cpu.aligned import LINE, aligned
from adabest.engine.cpu.client_rows import ClientRow, TrainedRow
from adabest.engine.cpu.linear import Chain
from adabest.engine.cpu.workers import side_by_side
from adabest.engine.gpu.trainer import sum_by_halves
from adabest.engine.layer_plan import LinearLayer, plan_layers
from adabest.models.keyed import prepare
from adabest.tasks.base import no_heartbeat
from adabest.tasks.classification import ClassificationTask

# What rounds each number by itself, or each row of class scores, or only moves or looks at memory: where the numbers
# lie and how many there are can't matter. Everything else must be done for each client by itself.
EACH_BY_ITSELF = {
    *(
        "add_",
        "argmax",
        "cat",
        "clone",
        "copy_",
        "detach",
        "div",
        "div_",
        "empty",
        "empty_like",
        "eq",
        "fill_",
        "full_like",
        "gather",
    ),
    *(
        "index_select",
        "mul_",
        "narrow",
        "neg",
        "new_empty",
        "new_full",
        "relu_",
        "scatter_add_",
        "select",
        "sign",
        "slice",
    ),
    *("_softmax", "split", "split_with_sizes", "stack", "sub_", "t", "_to_copy", "transpose", "unbind", "unsqueeze"),
    *("view", "_unsafe_view", "alias", "expand", "as_strided", "_local_scalar_dense", "lift_fresh", "squeeze"),
}

Sum = tuple[Any, ...]  # an operation, where and how its operands lie, and how many threads it has


class Sums(TorchDispatchMode):
    """Writes down every operation whose rounding may depend on where its operands lie."""

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)
        self.seen: collections.Counter[Sum] = collections.Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        name = function._schema.name.removeprefix("aten::")
        if name not in EACH_BY_ITSELF:
            tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, Tensor)]
            self.seen.update(self._of_each_client(name, tensors))
        return result

    @staticmethod
    def _of_each_client(name: str, tensors: Sequence[Tensor]) -> Iterator[Sum]:
        stacked = name in ("bmm", "baddbmm")
        clients = len(tensors[0]) if stacked else 1
        for client in range(clients):
            own = [tensor[client] if stacked else tensor for tensor in tensors]
            lies = tuple((t.data_ptr() % LINE, tuple(t.shape), t.stride(), t.dtype) for t in own)
            yield name, clients, torch.get_num_threads(), lies


def network(*widths: int, bias: bool = True) -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten()]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        for inputs, outputs in zip((36, *widths), (*widths, 3), strict=True):
            layers += [nn.Linear(inputs, outputs, bias=bias), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


@functools.cache
def trainer(widths: tuple[int, ...], dtype: torch.dtype, bias: bool = True) -> tuple[Chain, ClassificationTask]:
    dataset = make_dataset()
    module = prepare(network(*widths, bias=bias), torch.zeros(2, 1, 6, 6))
    task = ClassificationTask(dataset, make_partition(dataset), module, dtype=dtype)
    layers = [
        layer
        for layer in plan_layers(module, task.model.vector.new_zeros(2, 1, 6, 6))
        if isinstance(layer, LinearLayer)
    ]
    return Chain(layers, task.model), task


def rows_of(
    task: ClassificationTask, counts: Sequence[int], batch: int, *, clip: float = 0.5, short: bool = False
) -> list[ClientRow]:
    """Clients with so many steps each, whose numbers all differ."""
    draw, start = torch.Generator().manual_seed(len(counts)), task.model.vector
    made = []
    for client, count in enumerate(counts):
        chosen = torch.randint(len(task.data.y_train), (count, batch), generator=draw)
        offset = None if client % 3 == 2 else 1e-3 * torch.randn(start.shape, generator=draw).to(start)
        begin = start + 1e-2 * torch.randn(start.shape, generator=draw).to(start)
        there = torch.randint(1, batch + 1, (count,), generator=draw) if short else None
        made.append(
            ClientRow(
                task, client, 1, chosen, task.data.y_train[chosen], begin, offset, 0.9, 1e-2, 0.1, clip, 1e-3, there
            )
        )
    return made


def sums_of(trained: Chain, rows: Sequence[ClientRow], monkeypatch: pytest.MonkeyPatch) -> collections.Counter[Sum]:
    """What the training of some clients adds up, with the steps as plain Python in this thread."""
    monkeypatch.setattr(linear, "scripted_steps", lambda: linear_steps.local_steps)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        sums = Sums()
        with sums:
            side_by_side([functools.partial(trained.train, rows)], no_heartbeat, 2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    return sums.seen


def lie_alike(trained: Chain, rows: Sequence[ClientRow], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether clients side by side have sums that lie just as those of each of them alone, in one thread."""
    alone = sum((sums_of(trained, [row], monkeypatch) for row in rows), collections.Counter[Sum]())
    assert {name for name, *_ in alone} >= {"mm", "dot"}
    together = sums_of(trained, rows, monkeypatch)
    return alone == together and {threads for _, _, threads, _ in together} == {1}


ODD = [((), True), ((5,), True), ((7, 5), True), ((9,), False)]  # 111, 203, 317 and 351 parameters


class TestWhereSumsLie:
    @pytest.mark.parametrize("clients", range(1, 8))
    @pytest.mark.parametrize(("widths", "bias"), ODD, ids=str)
    def test_a_client_has_its_sums_lie_alike_whoever_is_beside_it(
        self, widths: tuple[int, ...], bias: bool, clients: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for dtype in (torch.float32, torch.float64):
            trained, task = trainer(widths, dtype, bias)
            assert task.model.vector.numel() % 2 == 1
            for batch in (1, 7):
                assert lie_alike(trained, rows_of(task, [3] * clients, batch), monkeypatch)
                assert lie_alike(trained, rows_of(task, range(1, clients + 1), batch), monkeypatch)
                assert lie_alike(trained, rows_of(task, range(1, clients + 1), batch, short=True), monkeypatch)

    def test_rows_that_follow_each_other_without_gaps_are_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(linear, "aligned", lambda like, *shape: like.new_empty(shape))
        trained, task = trainer((5,), torch.float32)
        assert lie_alike(trained, rows_of(task, [2], 7), monkeypatch)
        assert not lie_alike(trained, rows_of(task, [2, 2], 7), monkeypatch)

    def test_several_threads_for_a_lone_client_are_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = torch.set_num_threads
        monkeypatch.setattr(torch, "set_num_threads", lambda threads: asked(max(threads, 2)))
        trained, task = trainer((5,), torch.float32)
        assert not lie_alike(trained, rows_of(task, [2], 7), monkeypatch)
        asked(1)

    @pytest.mark.parametrize("shape", [(1,), (16,), (17,), (3, 5), (3, 7, 10), (2, 4, 33)], ids=str)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
    def test_rows_begin_with_a_line_wherever_memory_does(
        self, shape: tuple[int, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Elsewhere:
            """A tensor that gets memory from an allocator that aligns numbers, and nothing else."""

            itemsize = dtype.itemsize

            def new_empty(self, size: int) -> Tensor:
                return torch.empty(size + 1, dtype=dtype)[1:]

        for like in (torch.empty(0, dtype=dtype), Elsewhere()):
            made = aligned(like, *shape)  # type: ignore[arg-type]
            assert made.shape == shape
            rows = made.view(-1, shape[-1])  # which would raise if it had to copy
            assert [row.data_ptr() % LINE for row in rows] == [0] * len(rows)
            rows.fill_(1.0)
            assert bool((made == 1).all())

    def test_fresh_tensors_begin_with_a_line(self) -> None:
        """As autograd and the evaluation rely on: what they compute with is fresh, or a part of what is."""
        kept = [torch.empty(size, dtype=dtype) for size in range(1, 200, 7) for dtype in (torch.float32, torch.float64)]
        assert {tensor.data_ptr() % LINE for tensor in kept} == {0}


def same(one: TrainedRow, other: TrainedRow) -> bool:
    assert one.velocity is None
    return all(torch.equal(mine, its) for mine, its in zip(one[:3], other[:3], strict=True))


class TestResults:
    @given(
        widths=st.lists(st.integers(1, 40), max_size=2).map(tuple),
        counts=st.lists(st.integers(1, 12), min_size=1, max_size=7),
        batch=st.integers(1, 20),
        dtype=st.sampled_from([torch.float32, torch.float64]),
    )
    def test_clients_side_by_side_end_as_each_alone(
        self, widths: tuple[int, ...], counts: list[int], batch: int, dtype: torch.dtype
    ) -> None:
        trained, task = trainer(widths, dtype)
        rows = rows_of(task, counts, batch)
        together = trained.train(rows, no_heartbeat)
        assert all(same(done, trained.train([row], no_heartbeat)[0]) for done, row in zip(together, rows, strict=True))

    @given(
        shape=st.tuples(st.integers(2, 9), st.integers(1, 50), st.integers(2, 70)),
        dtype=st.sampled_from([torch.float32, torch.float64]),
    )
    def test_a_row_of_class_scores_is_no_matter_of_other_rows(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        scores = 5 * torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=dtype)
        stacked = aligned(scores, *shape).copy_(scores)
        for function in (torch.softmax, torch.log_softmax):
            assert torch.equal(function(stacked, 2), torch.stack([function(own, 1) for own in scores]))


class TestSumByHalves:
    @given(count=st.integers(1, 70), more=st.integers(0, 70), clients=st.integers(1, 5))
    def test_other_clients_and_further_steps_of_theirs_change_no_bit(self, count: int, more: int, clients: int) -> None:
        values = torch.randn(count, clients, generator=torch.Generator().manual_seed(count), dtype=torch.float64)
        alone = torch.stack([sum_by_halves(own.contiguous()) for own in values.T])
        zeros = values.new_zeros(more, clients)
        assert torch.equal(sum_by_halves(torch.cat([values, zeros])), alone)
        torch.testing.assert_close(alone, values.sum(dim=0))

    def test_what_is_given_stays_as_it_is(self) -> None:
        values = torch.arange(5.0)
        assert float(sum_by_halves(values)) == 10
        assert values.tolist() == [0, 1, 2, 3, 4]


class TestChunks:
    def test_a_run_is_cut_as_if_it_were_alone(self) -> None:
        def chunks(sizes: Sequence[int], as_alone: bool) -> list[list[tuple[int, int]]]:
            left = [_Waiting(run, place, 100 + place) for run, size in enumerate(sizes) for place in range(size)]
            made = []
            while left:
                chunk = _first_chunk(left, min(4, len(left)), as_alone=as_alone)
                made.append([(one.run, one.place) for one in chunk])
                left = left[len(chunk) :]
            return made

        assert [len(chunk) for chunk in chunks([10], True)] == [4, 4, 2]
        alone = [{place for _, place in chunk} for chunk in chunks([10], True)]
        together = [{place for run, place in chunk if run == 1} for chunk in chunks([3, 10, 2], True)]
        assert [places for places in together if places] == alone
        assert max(len(chunk) for chunk in chunks([3, 10, 2], True)) <= 4
        assert [len(chunk) for chunk in chunks([3, 10, 2], False)] == [4, 4, 4, 3]

    def test_all_who_fit_train_at_once(self) -> None:
        waiting = [_Waiting(run, place, place) for run in range(3) for place in range(2)]
        assert _first_chunk(waiting, 6, as_alone=True) == waiting

    def test_a_run_that_was_cut_elsewhere_goes_on(self) -> None:
        """Memory ran out, and fewer clients are allowed than when the first of them trained."""
        waiting = [_Waiting(0, place, place) for place in range(7, 9)]
        assert _first_chunk(waiting, 1, as_alone=True) == waiting[:1]
