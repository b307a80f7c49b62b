"""States that are too large to be held twice: written in pieces, read through maps, resumed within any budget."""

import gc
import hashlib
import json
import os
import re
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from quadratics import random_quadratics, simulate
from safetensors.torch import load_file, save
from small import assert_same, make_simulation, make_task
from tiny_runs import Killed, break_off, command, in_pieces, results, resume, run, tiny
from torch import Tensor

import adabest
from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.catalog import CORE
from adabest.algorithms.fedavg import FedAvg
from adabest.engine.client_store import OneByOne, Pieces
from adabest.engine.memory_tiers import Budget, Memory
from adabest.engine.state import Snapshot
from adabest.errors import InputError, Interrupted
from adabest.federation.roster import Attendance
from adabest.runs.files import tensor_file as tensors_module
from adabest.runs.files.checkpoint import load_checkpoint, save_checkpoint
from adabest.runs.files.folder import RunFolder, is_ours
from adabest.runs.files.tensor_file import write_tensors

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

# A row of a tiny run's AdaBest client is 2 × 323 × 4 + 8 bytes, and three clients take part in a round.
NOTHING: dict[str, Any] = {"client_memory": "0"}
LITTLE: dict[str, Any] = {"client_memory": "6 kB"}


def maps(folder: Path) -> int:
    """How many files below a folder this process has mapped, those without a name among them."""
    gc.collect()
    return Path("/proc/self/maps").read_text().count(f"{folder}/")


TENSORS: dict[str, Tensor] = {
    "narrow": torch.tensor([True, False, True]),
    "scalar": torch.tensor(2.5),
    "empty": torch.empty(0, 3),
    "transposed": torch.arange(6.0).reshape(2, 3).T,
    "double": torch.tensor([[1.0, float("inf"), -0.0]], dtype=torch.float64),
    "whole": torch.tensor([-(2**62)], dtype=torch.int64),
    **{str(kind): torch.arange(5).to(kind) for kind in tensors_module._TYPES},
}


def write_file(path: Path, tensors: dict[str, Pieces]) -> str:
    with path.open("wb") as file:
        return write_tensors(file, tensors)


class TestFiles:
    def test_files_are_what_the_format_says(self, tmp_path: Path) -> None:
        digest = write_file(tmp_path / "file", {name: Pieces.of(tensor) for name, tensor in TENSORS.items()})
        assert digest == hashlib.sha256((tmp_path / "file").read_bytes()).hexdigest()
        content = (tmp_path / "file").read_bytes()
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        assert int.from_bytes(content[:8], "little") % 8 == 0
        for name, entry in header.items():
            assert entry["data_offsets"][0] % TENSORS[name].dtype.itemsize == 0, "each begins where its type may"
        found = load_file(tmp_path / "file")
        assert found.keys() == TENSORS.keys()
        for name, tensor in TENSORS.items():
            assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
            assert torch.equal(found[name], tensor), name

    def test_a_file_of_no_tensors_is_written(self, tmp_path: Path) -> None:
        write_file(tmp_path / "file", {})
        assert load_file(tmp_path / "file") == {}

    @pytest.mark.parametrize("chunk", [8, 40, 2**20])
    def test_pieces_and_chunks_change_no_byte(
        self, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = torch.arange(60, dtype=torch.float64).reshape(20, 3)
        parts = [whole[:1], whole[1:1], whole[1:8], whole[8:]]
        monkeypatch.setattr(tensors_module, "_CHUNK", chunk)
        write_file(tmp_path / "file", {"rows": Pieces(whole.dtype, (20, 3), lambda: iter(parts))})
        assert (tmp_path / "file").read_bytes()[-480:] == save({"rows": whole})[-480:]
        assert torch.equal(load_file(tmp_path / "file")["rows"], whole)

    def test_pieces_are_let_go(self, tmp_path: Path) -> None:
        alive: list[weakref.ref[Tensor]] = []

        def parts() -> Iterator[Tensor]:
            for number in range(6):
                piece = torch.full((1, 4), float(number))
                alive.append(weakref.ref(piece))
                yield piece
                del piece
                assert sum(reference() is not None for reference in alive) <= 1

        write_file(tmp_path / "file", {"rows": Pieces(torch.float32, (6, 4), parts)})
        assert load_file(tmp_path / "file")["rows"][:, 0].tolist() == [0, 1, 2, 3, 4, 5]


def in_order(snapshot: Snapshot) -> Snapshot:
    """With its tensors by name, as a file has them."""
    return snapshot._replace(tensors=dict(sorted(snapshot.tensors.items())))


class TestCheckpoints:
    def test_a_view_is_the_state_itself(self) -> None:
        """It would be of no use where there is no room for two."""
        simulation = make_simulation(AdaBest(), make_task(), participation=1.0)
        simulation.step()
        views = simulation.view().tensors
        client = next(iter(simulation.state.clients))
        for name, value in simulation.state.clients.read(client).items():
            (part, *_) = views[f"clients.{name}"].parts()
            assert part[0].data_ptr() == value.data_ptr()
        before = simulation.snapshot()
        assert_same(before, simulation.view().copy())
        simulation.step()
        assert not torch.equal(views["clients.model"].copy(), before.tensors["clients.model"])

    def test_a_state_too_large_for_a_copy_is_written_as_it_lies(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(self: Pieces) -> None:
            raise AssertionError("something was copied")

        straight = run(tmp_path / "straight")
        monkeypatch.setattr(Pieces, "copy", refuse)
        monkeypatch.setattr(Pieces, "held", refuse)
        monkeypatch.setattr(Memory, "copy_budget", lambda self: Budget(100))
        break_off(tmp_path / "run", 40, checkpoint_every=1)
        resume(tmp_path / "run")
        assert results(tmp_path / "run") == results(straight.folder)

    def test_no_tensor_is_copied_when_a_run_is_interrupted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(self: Pieces) -> None:
            raise AssertionError("something was copied")

        monkeypatch.setattr(Pieces, "copy", refuse)
        monkeypatch.setattr(Pieces, "held", refuse)
        break_off(tmp_path, 40, Interrupted, checkpoint_every=0)
        resume(tmp_path)

    @linux
    def test_a_checkpoint_is_read_through_a_map(self, tmp_path: Path) -> None:
        simulation = make_simulation(AdaBest(), make_task(), participation=1.0)
        simulation.step()
        folder = RunFolder(tmp_path)
        save_checkpoint(folder, simulation.view(), {})
        assert maps(tmp_path) == 0
        checkpoint = load_checkpoint(folder, None)
        assert checkpoint is not None
        found = checkpoint.state
        del checkpoint
        assert maps(tmp_path) >= 1
        assert_same(in_order(found), in_order(simulation.snapshot()))
        again = make_simulation(AdaBest(), make_task(), participation=1.0)
        again.restore(found)
        del found
        assert maps(tmp_path) == 0, "what was restored holds on to the file"
        assert_same(in_order(again.snapshot()), in_order(simulation.snapshot()))


class TestBudgets:
    @pytest.mark.parametrize("budget", [NOTHING, LITTLE], ids=["nothing", "little"])
    @pytest.mark.parametrize("name", [*CORE, "vrl-sgd"])
    def test_no_bit_depends_on_budgets(self, name: str, budget: dict[str, Any], tmp_path: Path) -> None:
        plain = run(tmp_path / "plain", algorithm=name, unbalance=0.3)
        tight = run(tmp_path / "tight", algorithm=name, unbalance=0.3, **budget)
        assert results(tight.folder) == results(plain.folder)

    @pytest.mark.parametrize("budget", [NOTHING, LITTLE], ids=["nothing", "little"])
    @pytest.mark.parametrize("error", [Killed, Interrupted])
    def test_a_run_with_a_budget_is_resumed_to_the_last_bit(
        self, error: Any, budget: dict[str, Any], tmp_path: Path
    ) -> None:
        straight = run(tmp_path / "straight")
        assert in_pieces(tmp_path / "pieces", 22, error, checkpoint_every=1, **budget) >= 3
        assert results(tmp_path / "pieces") == results(straight.folder)
        assert all(is_ours(path.name) for path in (tmp_path / "pieces").iterdir())

    def test_another_budget_may_be_set_before_a_run_is_resumed(self, tmp_path: Path) -> None:
        break_off(tmp_path / "run", 30, checkpoint_every=1)
        with (tmp_path / "run" / "config.toml").open("a") as file:
            file.write('client_memory = "0"\n')
        resume(tmp_path / "run")
        assert results(tmp_path / "run") == results(run(tmp_path / "straight").folder)

    @linux
    def test_the_file_is_in_the_runs_folder_and_gone_at_the_end(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen = []
        server_numbers = AdaBest.server_numbers

        def look(self: AdaBest, server: Any) -> Any:
            seen.append(maps(tmp_path / "run"))
            return server_numbers(self, server)

        monkeypatch.setattr(AdaBest, "server_numbers", look)
        run(tmp_path / "run", **NOTHING)
        assert min(seen) >= 1
        assert maps(tmp_path / "run") == 0
        assert not list((tmp_path / "run").glob("clients-*"))

    def test_a_budget_too_small_for_one_round_is_refused(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = (
            r"the 3 clients of one round keep 7.78 kB \(2.59 kB each\), for which there is too little memory: "
            r"client_memory 1 kB \(0 B taken\), client_disk 6 kB \(0 B taken\); allow more of one of them"
        )
        with pytest.raises(InputError, match=words):
            run(tmp_path / "run", client_memory="1kB", client_disk="6kB")
        assert not (tmp_path / "run").exists()
        line = ["run", "--dataset", "stripes", "--clients", "8", "--client-disk", "6kB"]
        assert command(*line, "--client-memory", "1kB", "--participation", "0.4", "--out", tmp_path / "run") == 2
        assert re.search(words, capsys.readouterr().err)
        assert not (tmp_path / "run").exists()

    def test_a_budget_too_small_for_later_rounds_ends_the_run(self, tmp_path: Path) -> None:
        """The run ends between two rounds, and goes on where it ended when it is given more."""
        with pytest.raises(InputError, match=r"3 have taken part, each keeps 2.59 kB, and there is client_memory 0 B"):
            run(tmp_path / "run", client_disk="9kB", checkpoint_every=1, **NOTHING)
        assert adabest.load(tmp_path / "run").round == 1
        config = tmp_path / "run" / "config.toml"
        config.write_text(config.read_text().replace("9kB", "90kB"))
        resume(tmp_path / "run")
        assert results(tmp_path / "run") == results(run(tmp_path / "straight").folder)

    @pytest.mark.filterwarnings("ignore:client_device_memory has no effect")
    @pytest.mark.parametrize("how", ["toml", "command line", "python"])
    def test_budgets_have_the_same_name_everywhere(self, how: str, tmp_path: Path) -> None:
        sizes = {"client_memory": "1MiB", "client_device_memory": "2MiB", "client_disk": "3 MB"}
        settings = {**tiny(rounds=1), **sizes}
        if how == "toml":
            lines = (f"{name} = {json.dumps(value)}" for name, value in settings.items())
            (tmp_path / "mine.toml").write_text("\n".join(lines))
            done = adabest.run(tmp_path / "mine.toml", out=tmp_path / "run", show=False)
        elif how == "python":
            done = adabest.run(out=tmp_path / "run", show=False, **settings)
        else:
            options = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
            assert command("run", *options, "--out", tmp_path / "run") == 0
            done = adabest.load(tmp_path / "run")
        assert {name: getattr(done.config, name) for name in sizes} == sizes


class TestRounds:
    def test_norms_are_asked_for_one_by_one(self) -> None:
        asked = []

        def make(client: int) -> int:
            asked.append(client)
            return client * client

        squares = OneByOne({3: None, 5: None}, make)
        assert (len(squares), list(squares), asked) == (2, [3, 5], [])
        assert next(iter(squares.items())) == (3, 9)
        assert asked == [3]
        with pytest.raises(KeyError):
            squares[4]

    def test_the_mean_norm_is_over_all_that_took_part(self) -> None:
        task = random_quadratics(4, 6, unbalanced=True)
        simulation = simulate(AdaBest(mu=0.5), task, participation=0.5)
        for _ in range(4):
            simulation.step()
        metrics = simulation.step(evaluate=True)
        assert metrics is not None
        context = simulation.context(6, 0)
        message = simulation._algorithm.downlink(simulation.state.server, simulation.state.cloud, context)
        norms = [
            float(0.5 * message.mean_samples / task.counts[client] * simulation.client_state(client).h.norm())
            for client in simulation.state.clients
        ]
        assert len(norms) > 3
        assert metrics["client_h_norm"] == pytest.approx(np.mean(norms), rel=1e-9)

    def test_sizes_that_are_known_need_not_be_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        task = make_task(unbalance=0.4)
        clients = task.partition.training
        options: dict[str, Any] = {"attendance": Attendance(participation=0.5, sampler="weighted")}
        asked = adabest.engine.simulation.Simulation(FedAvg(), task, clients, **options)
        known = adabest.engine.simulation.Simulation(
            FedAvg(), task, clients, samples=task.partition.samples[clients], **options
        )
        assert asked.cohort(5).tolist() == known.cohort(5).tolist()

    def test_a_simulation_made_by_hand_has_a_budget_too(self) -> None:
        limits = Memory(on_host=0)
        simulation = adabest.engine.simulation.Simulation(AdaBest(), make_task(), np.arange(3), memory=limits)
        simulation.step()
        assert simulation.state.clients.bytes()["client_memory"] == 0
        simulation.restore(simulation.snapshot())
        assert simulation.state.clients.bytes()["client_memory"] == 0
        with pytest.raises(InputError, match="too little memory"):
            adabest.engine.simulation.Simulation(
                AdaBest(), make_task(), np.arange(3), memory=Memory(on_host=0, on_disk=10)
            )


@pytest.mark.soak
def test_thousands_of_clients_within_a_few_megabytes(tmp_path: Path) -> None:
    """5,000 rows of 25 kB under a budget of 4 MB, broken off twice: the bits of a run with all the memory it wants."""
    settings: dict[str, Any] = {
        "dataset": "synthetic,samples=100000,shape=3x8x8,classes=10,test=100",
        "model": "mlp,hidden=16",
        "clients": 100_000,
        "validation_clients": 0,
        "participation": 0.0005,
        "batch_size": 1,
        "rounds": 100,
        "evaluate_every": 100,
    }
    straight = run(tmp_path / "straight", **settings)
    for beats in (1200, 3700):
        folder = tmp_path / f"after {beats}"
        break_off(folder, beats, checkpoint_every=10, client_memory="4MB", **settings)
        assert os.listdir(folder / "checkpoints")
        resume(folder)
        assert results(folder) == results(straight.folder)
