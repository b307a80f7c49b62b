"""What clients keep: the same bits in whatever tier they lie, within every budget."""

import errno
import gc
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from adabest import machine
from adabest.engine import client_store as clients_module
from adabest.engine import memory_tiers as memory_module
from adabest.engine.client_store import ClientStore, Pieces
from adabest.engine.memory_tiers import Memory, parse_size
from adabest.errors import InputError
from adabest.machine import size_in_words

ROW = 4 * 4 + 8 + 3  # bytes of what `row` makes
HUGE = 2**40

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def row(value: int) -> dict[str, Tensor]:
    """Fields of several widths, the narrow ones first."""
    return {
        "flags": torch.full((3,), value % 2 == 0),
        "h": torch.full((2, 2), float(value)).div(3),
        "count": torch.tensor([value], dtype=torch.int64),
    }


def memory(on_host: int | None = HUGE, on_disk: int | None = HUGE, folder: Path | None = None) -> Memory:
    return Memory(on_host=on_host, on_disk=on_disk, folder=folder)


def copies(store: ClientStore) -> dict[str, Tensor]:
    return {name: pieces.copy() for name, pieces in store.pieces().items()}


def assert_holds(store: ClientStore, expected: Mapping[int, Mapping[str, Tensor]]) -> None:
    """Read one by one or as tensors, it is what was last written."""
    assert list(store) == list(expected)
    assert len(store) == len(expected)
    for client, fields in expected.items():
        assert client in store
        found = store.read(client)
        assert found.keys() == fields.keys()
        assert all(torch.equal(found[name], value) for name, value in fields.items())
        assert all(found[name].dtype == value.dtype for name, value in fields.items())
    whole = copies(store)
    assert whole.pop("ids").tolist() == list(expected)
    for name, stacked in whole.items():
        assert torch.equal(stacked, torch.stack([fields[name] for fields in expected.values()]))


# All in memory, all in the file, and both, with a budget that ends within a round and on no row's border.
BUDGETS = {"memory": HUGE, "file": 0, "both": 20 * ROW + 5, "one row": ROW}


@pytest.fixture(params=BUDGETS)
def budget(request: pytest.FixtureRequest) -> int:
    return BUDGETS[request.param]


class TestEveryTier:
    def test_a_store_holds_what_was_last_written(self, budget: int, tmp_path: Path) -> None:
        store, expected = ClientStore(memory(budget, folder=tmp_path)), dict[int, dict[str, Tensor]]()
        generator = np.random.default_rng(0)
        for step in range(20):
            chosen = generator.choice(10**9 + np.arange(60), size=3, replace=False).tolist()
            changes = {client: row(1000 * step + client % 1000) for client in chosen}
            store.write(changes)
            expected.update(changes)
        assert 5 not in store
        assert_holds(store, expected)
        used = store.bytes()
        assert ROW * len(store) <= sum(used.values()) <= 2 * ROW * len(store)
        assert used["client_memory"] <= budget
        assert (used["client_disk"] == 0) == (budget == HUGE)
        if budget < HUGE:
            assert used["client_memory"] == budget // ROW * ROW, "a budget is used up before the next tier is begun"

    @pytest.mark.parametrize("clients", [0, 1, 3, 9])
    def test_round_trip_and_growth_after_it(self, clients: int, budget: int) -> None:
        store = ClientStore(memory(budget))
        store.write({client: row(client) for client in range(clients)})
        again = ClientStore.from_state(copies(store), memory(budget))
        assert_holds(again, {client: row(client) for client in range(clients)})
        again.write({client: row(10 + client) for client in range(50, 90)})
        assert len(store) == clients
        expected = {client: row(client) for client in range(clients)}
        assert_holds(again, expected | {client: row(10 + client) for client in range(50, 90)})

    def test_a_field_may_come_later(self, budget: int) -> None:
        store = ClientStore(memory(budget))
        store.write({client: {"a": torch.ones(1)} for client in range(40)})
        store.write({39: {"b": torch.ones(1)}, 40: {"a": torch.zeros(1), "b": torch.full((1,), 3.0)}})
        assert store.read(39)["b"].tolist() == [1.0]
        assert [store.read(client)["b"].tolist() for client in (0, 40)] == [[0.0], [3.0]]
        assert [store.read(client)["a"].tolist() for client in (0, 40)] == [[1.0], [0.0]]

    def test_an_empty_store_takes_no_memory(self, budget: int) -> None:
        store = ClientStore(memory(budget))
        store.write({})
        assert (len(store), sum(store.bytes().values())) == (0, 0)
        assert copies(store)["ids"].tolist() == []
        with pytest.raises(KeyError):
            store.read(0)


Steps = st.lists(st.dictionaries(st.integers(0, 30), st.integers(0, 1000), max_size=6), max_size=12)


@given(Steps, st.integers(0, 40 * ROW), st.integers(ROW, 6 * ROW), st.booleans())
def test_any_history_is_that_of_a_dict(steps: list[dict[int, int]], on_host: int, page: int, restored: bool) -> None:
    expected: dict[int, dict[str, Tensor]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clients_module, "_PAGE", page)
        shared = memory(on_host)
        store = ClientStore(shared)
        for step in steps:
            changes = {client: row(value) for client, value in step.items()}
            store.write(changes)
            expected |= changes
            if restored:
                limits = memory(on_host)
                store = ClientStore.from_state(copies(store), limits)
            assert store.bytes()["client_memory"] <= on_host
        assert_holds(store, expected)


def test_a_device_is_filled_first() -> None:
    """On an imagined device, since there is none here: its tier is the same code as the host's."""
    limits = memory(2 * ROW)
    device = memory_module.Tier("client_device_memory", memory_module.Budget(3 * ROW), limits.tiers[0].zeros)
    limits.tiers = (device, *limits.tiers)
    store = ClientStore(limits)
    for client in range(9):
        store.write({client: row(client)})
    assert_holds(store, {client: row(client) for client in range(9)})
    assert store.bytes() == {"client_device_memory": 3 * ROW, "client_memory": 2 * ROW, "client_disk": 5 * ROW}


@pytest.mark.parametrize("later", [False, True])
def test_a_device_whose_memory_others_took(later: bool) -> None:
    """What was allowed isn't there, which is found out by asking for it."""
    limits = memory(100 * ROW)
    there, host = [2 * ROW], limits.tiers[0]

    def scarce(size: int) -> Tensor:
        if size > there[0]:
            raise torch.OutOfMemoryError
        there[0] -= size
        return host.zeros(size)

    device = memory_module.Tier("client_device_memory", memory_module.Budget(50 * ROW), scarce)
    limits.tiers = (device, host)
    store = ClientStore(limits)
    for client in range(2):
        store.write({client: row(client)})
    if later:
        store.write({0: {"later": torch.ones(5)}})
    else:
        for client in range(2, 9):
            store.write({client: row(client)})
    assert device.budget.free == 0
    assert store.bytes()["client_device_memory"] == 2 * ROW
    assert store.bytes()[host.setting] > 0
    for client in range(2):
        for name, value in row(client).items():
            assert torch.equal(store.read(client)[name], value)


def test_only_a_gpu_has_a_budget_of_its_own() -> None:
    on_gpu = Memory(torch.device("meta"), on_device=7, on_host=8, on_disk=9)
    assert [tier.setting for tier in on_gpu.tiers] == ["client_device_memory", "client_memory", "client_disk"]
    assert [tier.budget.capacity for tier in on_gpu.tiers] == [7, 8, 9]
    assert [tier.zeros(2).device.type for tier in on_gpu.tiers] == ["meta", "cpu", "cpu"]
    on_cpu = Memory(on_device=7, on_host=8, on_disk=9)
    assert [tier.budget.capacity for tier in on_cpu.tiers] == [8, 9]


class TestGrowth:
    def test_rows_are_never_moved(self) -> None:
        """So growing needs no second copy of anything."""
        store = ClientStore(memory())
        store.write({0: row(0)})
        first = store.read(0)["h"]
        for client in range(1, 200):
            store.write({client: row(client)})
        assert store.read(0)["h"].data_ptr() == first.data_ptr()
        store.write({0: row(9)})
        assert torch.equal(first, row(9)["h"])

    def test_pages_stay_few_and_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(clients_module, "_PAGE", 100 * ROW)
        store = ClientStore(memory())
        for client in range(1000):
            store.write({client: row(client)})
        sizes = [page.count for page in store._pages]
        assert max(sizes) == 100
        assert sum(sizes) < 1100
        assert len(sizes) < 20

    def test_pages_stay_few_however_many_rows_there_are(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(clients_module, "_PAGE", ROW)
        store = ClientStore(memory())
        for first in range(0, 5000, 10):
            store.write({client: row(client) for client in range(first, first + 10)})
        assert len(store._pages) < 150
        assert sum(store.bytes().values()) <= 5000 * ROW * 17 / 16

    def test_a_row_may_be_larger_than_a_page(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(clients_module, "_PAGE", 5)
        store = ClientStore(memory())
        store.write({client: row(client) for client in range(3)})
        assert_holds(store, {client: row(client) for client in range(3)})
        assert [page.count for page in store._pages] == [1, 1, 1]


class TestChangedRows:
    def test_rows_are_numbered_by_the_clients_first_writes(self) -> None:
        store = ClientStore(memory())
        store.write({7: row(7), 3: row(3)})
        before = store.writes
        store.write({9: row(9), 3: row(4)})
        assert store.changed_since(0).tolist() == [0, 1, 2]
        assert store.changed_since(before).tolist() == [1, 2]
        assert store.changed_since(store.writes).tolist() == []

    def test_a_store_is_put_together_from_rows_of_several_moments(
        self, budget: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And what was held back then is not changed by later writes."""
        monkeypatch.setattr(clients_module, "_CHUNK", 2 * ROW)
        generator, expected = np.random.default_rng(0), dict[int, dict[str, Tensor]]()
        store, moments, before = ClientStore(memory(budget)), list[dict[str, Pieces]](), 0
        for step in range(12):
            changes = {
                client: row(100 * step + client) for client in generator.choice(40, size=5, replace=False).tolist()
            }
            store.write(changes)
            expected |= changes
            if step % 3 == 2:
                chosen = store.chosen_pieces(store.changed_since(before))
                moments.append({name: pieces.held() for name, pieces in chosen.items()})
                before = store.writes
        *earlier, last = ({name: pieces.copy() for name, pieces in moment.items()} for moment in moments)
        assert_holds(ClientStore.from_state(last, memory(budget), earlier), expected)
        with pytest.raises(ValueError, match="rows of clients are missing"):
            ClientStore.from_state(last, memory(budget))

    def test_a_field_that_came_later_is_zero_in_earlier_rows(self) -> None:
        store = ClientStore(memory())
        store.write({client: {"a": torch.ones(1)} for client in range(3)})
        earlier, before = copies(store), store.writes
        store.write({1: {"a": torch.ones(1), "b": torch.full((2,), 5.0)}})
        later = {name: pieces.copy() for name, pieces in store.chosen_pieces(store.changed_since(before)).items()}
        again = ClientStore.from_state(later, memory(), [earlier])
        assert [again.read(client)["b"].tolist() for client in range(3)] == [[0.0, 0.0], [5.0, 5.0], [0.0, 0.0]]

    @pytest.mark.cuda
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
    def test_rows_on_a_gpu_are_held_back_while_they_change(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(clients_module, "_CHUNK", 4096)
        store = ClientStore(Memory(torch.device("cuda")))
        values = {client: {"h": torch.full((1000,), float(client), device="cuda")} for client in range(20)}
        store.write(values)
        held = {name: pieces.held() for name, pieces in store.chosen_pieces(np.arange(0, 20, 3)).items()}
        store.write({client: {"h": -value["h"]} for client, value in values.items()})
        assert held["h"].copy()[:, 0].tolist() == [0, 3, 6, 9, 12, 15, 18]
        assert all(not part.is_cuda for part in held["h"].parts())


class TestNoRoom:
    def test_the_message_has_the_sizes(self) -> None:
        store = ClientStore(memory(2 * ROW, 3 * ROW))
        store.write({client: row(client) for client in range(4)})
        with pytest.raises(InputError) as caught:
            store.write({client: row(9) for client in range(1, 8)})
        assert str(caught.value) == (
            "there is no memory left for what more clients keep: 4 have taken part, each keeps 27 B, and there is "
            "client_memory 54 B (54 B taken), client_disk 81 B (81 B taken); allow more of one of them"
        )
        assert_holds(store, {client: row(client) for client in range(4)})
        store.write({4: row(4)})
        assert_holds(store, {client: row(client) for client in range(5)})

    def test_pages_that_nobody_came_to_use_do_no_harm(self) -> None:
        store = ClientStore(memory(2 * ROW, 3 * ROW))
        store.write({0: row(0)})
        with pytest.raises(InputError, match="1 have taken part"):
            store.write({client: row(client) for client in range(9)})
        assert [(page.start, page.count) for page in store._pages] == [(0, 1), (1, 1), (2, 3)]
        assert_holds(store, {0: row(0)})
        store.write({client: row(client) for client in range(1, 5)})
        assert_holds(store, {client: row(client) for client in range(5)})

    def test_a_first_write_that_fails_takes_its_room_only_once(self) -> None:
        store = ClientStore(memory(2 * ROW, 3 * ROW))
        for _ in range(2):
            with pytest.raises(InputError, match="0 have taken part"):
                store.write({client: row(client) for client in range(9)})
        store.write({client: row(client) for client in range(5)})
        assert_holds(store, {client: row(client) for client in range(5)})

    def test_a_restored_store_keeps_to_its_budget(self) -> None:
        store = ClientStore(memory())
        store.write({client: row(client) for client in range(6)})
        with pytest.raises(InputError, match="there is no memory left"):
            ClientStore.from_state(copies(store), memory(2 * ROW, 3 * ROW))

    def test_a_round_that_can_never_fit_is_refused(self) -> None:
        memory(2 * ROW, 3 * ROW).refuse_too_little(5, ROW)
        with pytest.raises(InputError) as caught:
            memory(2 * ROW + 20, 3 * ROW + 20).refuse_too_little(6, ROW)
        assert str(caught.value) == (
            "the 6 clients of one round keep 162 B (27 B each), for which there is too little memory: "
            "client_memory 74 B (0 B taken), client_disk 101 B (0 B taken); allow more of one of them"
        )


class TestBudgets:
    def test_memory_of_a_store_is_given_back(self) -> None:
        limits = memory(10 * ROW, 0)
        for _ in range(3):
            store = ClientStore(limits)
            store.write({client: row(client) for client in range(10)})
            assert limits.tiers[0].budget.free == 0
            del store
            gc.collect()
            assert limits.tiers[0].budget.free == 10 * ROW

    def test_stores_without_a_limit_share_the_machine(self) -> None:
        budgets = [Memory().tiers[0].budget for _ in range(2)]
        assert budgets[0] is budgets[1]
        assert budgets[0].capacity == machine.total_memory() // 4
        assert memory(5).tiers[0].budget is not memory(5).tiers[0].budget

    def test_a_container_may_use_less_than_the_machine_has(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = machine.total_memory()
        files = [tmp_path / "max", tmp_path / "limit", tmp_path / "missing"]
        monkeypatch.setattr(machine, "_CONTAINER_LIMITS", tuple(map(str, files)))
        files[0].write_text("max\n")
        files[1].write_text("9223372036854771712\n")
        unlimited = machine.total_memory()
        assert unlimited >= whole
        files[0].write_text("12345678\n")
        assert machine.total_memory() == 12345678

    def test_the_disk_is_asked_where_the_file_will_be(self, tmp_path: Path) -> None:
        found = memory(on_disk=None, folder=tmp_path / "not" / "yet").tiers[-1].budget.capacity
        assert 0 < found <= shutil.disk_usage(tmp_path).total


class TestMappedFiles:
    def test_mapped_files_have_no_name(self, tmp_path: Path) -> None:
        """So a kill leaves nothing behind."""
        store = ClientStore(memory(0, folder=tmp_path))
        store.write({client: row(client) for client in range(10)})
        assert list(tmp_path.iterdir()) == []
        assert store.bytes()["client_disk"] == 10 * ROW

    @linux
    def test_memory_of_mapped_files_is_the_files(self, tmp_path: Path) -> None:
        def maps() -> int:
            return Path("/proc/self/maps").read_text().count(f"{tmp_path}/")

        assert maps() == 0
        store = ClientStore(memory(0, folder=tmp_path))
        store.write({0: row(0)})
        assert maps() == 1
        kept = store.read(0)["h"]
        del store
        gc.collect()
        assert maps() == 1, "a view keeps the file"
        assert torch.equal(kept, row(0)["h"])
        del kept
        gc.collect()
        assert maps() == 0

    @pytest.mark.parametrize("call", ["posix_fallocate", "write"])
    def test_a_full_disk_is_an_error_before_it_is_a_crash(
        self, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = ClientStore(memory(0, folder=tmp_path))
        store.write({0: row(0)})

        def full(*given: Any) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        if call == "write":
            monkeypatch.delattr(os, "posix_fallocate", raising=False)
        monkeypatch.setattr(os, call, full)
        with pytest.raises(InputError) as caught:
            store.write({0: row(5), 1: row(1)})
        assert str(caught.value) == (
            f"can't reserve 27 B of what clients keep in a file in {tmp_path}: No space left on device; "
            "free some of the disk, or allow more memory (client_memory)"
        )
        assert_holds(store, {0: row(0)})

    def test_a_folder_that_is_gone_is_an_error(self, tmp_path: Path) -> None:
        store = ClientStore(memory(0, folder=tmp_path / "gone"))
        with pytest.raises(InputError, match=r"in a file in .*gone: No such file or directory"):
            store.write({0: row(0)})

    def test_where_room_cannot_be_reserved_zeros_are_written(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
        zeros = memory(0).tiers[-1].zeros(2**20 + 77)
        assert len(zeros) == 2**20 + 77
        assert not zeros.any()
        zeros.fill_(1)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("12", 12),
        ("7B", 7),
        ("6GiB", 6 * 2**30),
        ("1.5gib", 3 * 2**29),
        (" 500 MB ", 500_000_000),
        ("2kB", 2000),
        ("3KiB", 3072),
        ("4TB", 4 * 10**12),
    ],
)
def test_sizes_are_parsed(text: str, size: int) -> None:
    assert parse_size("client_memory", text) == size


@pytest.mark.parametrize("text", ["", "much", "-1", "1e9", "6 G", "GiB", "1,5GB", "1.GB", "infMB", "nan", "9" * 400])
def test_texts_that_are_no_size_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"client_disk = .*: a size looks like 6GiB, 500MB or 0"):
        parse_size("client_disk", text)


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (6_383_696, "6.38 MB"),
        (999_999, "1 MB"),
        (13 * 10**9, "13 GB"),
        (10**400, "over 1,000,000 EB"),
    ],
)
def test_sizes_are_written_in_words(size: int, words: str) -> None:
    assert size_in_words(size) == words
