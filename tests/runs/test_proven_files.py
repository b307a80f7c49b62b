"""Files that prove themselves: what was changed, lost or swapped is refused and named, and nothing goes with it."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import (
    Killed,
    as_old_version,
    break_off,
    checkpoints,
    command,
    contents,
    dies_at,
    ends_after,
    results,
    resume,
    run,
    stripes,
    tiny,
)

import adabest
from adabest.engine.state import View
from adabest.errors import InputError
from adabest.runs import run_loop
from adabest.runs.files import atomic_files, checkpoint
from adabest.runs.files.checkpoint import checkpoints_of
from adabest.runs.files.folder import RunFolder
from adabest.runs.files.manifest import FORMAT_KEY, checksum_of_object, find_standing, read_manifest
from adabest.runs.files.run_verification import Finding, verify_run

Damage = Callable[[Path], None]


def change(name: str, old: str, new: str) -> Damage:
    def changed(folder: Path) -> None:
        text = (folder / name).read_text(encoding="utf-8")
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1), encoding="utf-8")

    return changed


def lose(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()


def cut(name: str, keep: slice) -> Damage:
    def shortened(folder: Path) -> None:
        lines = (folder / name).read_text(encoding="utf-8").splitlines(keepends=True)
        (folder / name).write_text("".join(lines[keep]), encoding="utf-8")

    return shortened


def flip_the_last_byte(name: str) -> Damage:
    def flipped(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[-1] ^= 1
        (folder / name).write_bytes(content)

    return flipped


def say_finished(folder: Path) -> None:
    (folder / "status.json").write_text('{"status": "finished", "round": 5}')


# Each with the file that the refusal must name.
OF_A_KILLED_RUN: dict[str, tuple[Damage, str]] = {
    "another learning rate": (change("config.toml", "learning_rate = 0.1", "learning_rate = 0.2"), "config.toml"),
    "a truncated configuration": (cut("config.toml", slice(0, 9)), "config.toml"),
    "no first row": (cut("metrics.jsonl", slice(1, None)), "metrics.jsonl"),
    "a changed digit": (change("metrics.jsonl", '"scored_accuracy": 0.', '"scored_accuracy": 0.9'), "metrics.jsonl"),
    "metrics lost": (lose("metrics.jsonl"), "metrics.jsonl"),
    "a status of finished": (say_finished, "status.json"),
    "a status lost": (lose("status.json"), "status.json"),
    "identity lost": (lose("identity.json"), "identity.json"),
    "another identity": (change("identity.json", '"classes": 3', '"classes": 2'), "identity.json"),
    "environment lost": (lose("environment.json"), "environment.json"),
    "another manifest": (change("manifest.json", '"round": 4', '"round": 3'), "manifest.json"),
    "a manifest that is cut off": (cut("manifest.json", slice(0, -3)), "manifest.json"),
    "manifest lost": (lose("manifest.json"), "manifest.json"),
}


@pytest.fixture(scope="module")
def killed_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed in its fifth round, after two evaluations."""
    place = tmp_path_factory.mktemp("proven") / "killed"
    break_off(place, 60, checkpoint_every=1)
    return place


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("proven") / "finished").folder


@pytest.fixture
def killed(killed_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(killed_run, tmp_path / "run"))


@pytest.fixture
def finished(finished_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished_run, tmp_path / "run"))


def states(folder: Path) -> set[str]:
    return {finding.state for finding in verify_run(folder)}


class TestDamage:
    @pytest.mark.parametrize(("damage", "named"), OF_A_KILLED_RUN.values(), ids=list(OF_A_KILLED_RUN))
    def test_a_damaged_killed_run_is_refused_and_left_as_it_is(
        self, damage: Damage, named: str, killed: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        damage(killed)
        before = contents(killed)
        for line in (["resume", killed], ["show", killed]):
            assert command(*line) == 2
            assert str(killed / named) in capsys.readouterr().err
        assert contents(killed) == before
        found = verify_run(killed)
        assert found[0].state == "damaged"
        assert any(finding.path.name == named and finding.state in ("damaged", "missing") for finding in found[1:])

    @pytest.mark.parametrize("name", ["model.safetensors", "cloud.safetensors", "aggregate.safetensors"])
    def test_a_model_with_a_flipped_bit_is_not_exported(self, name: str, finished: Path, tmp_path: Path) -> None:
        flip_the_last_byte(name)(finished)
        which = {"model.safetensors": "scored"}.get(name, name.removesuffix(".safetensors"))
        with pytest.raises(InputError, match=f"{name} isn't the file that this run wrote"):
            adabest.load(finished).export("safetensors", which, out=tmp_path / "exported")
        assert not (tmp_path / "exported").exists()
        overall, model = verify_run(finished)
        assert (overall.state, model.path, model.state) == ("damaged", finished / name, "damaged")
        assert "settings and metrics are whole, a model isn't" in overall.words

    def test_another_runs_model_is_not_loaded(self, finished: Path, tmp_path: Path) -> None:
        shutil.copy(run(tmp_path / "other", seed=1).folder / "model.safetensors", finished)
        with pytest.raises(InputError, match=r"model.safetensors isn't the file that this run wrote"):
            _ = adabest.load(finished).model

    def test_a_lost_model_is_missing(self, finished: Path) -> None:
        (finished / "model.safetensors").unlink()
        with pytest.raises(InputError, match=r"model.safetensors is missing"):
            _ = adabest.load(finished).model
        assert verify_run(finished)[1].state == "missing"

    def test_rows_that_a_finished_run_did_not_write_are_refused(self, finished: Path) -> None:
        with (finished / "metrics.jsonl").open("a") as file:
            file.write('{"round": 6, "scored_accuracy": 1.0}\n')
        with pytest.raises(InputError, match=r"metrics.jsonl has rows that the run didn't write"):
            adabest.load(finished)

    def test_checkpoints_of_another_seed_are_refused(self, killed: Path, tmp_path: Path) -> None:
        break_off(tmp_path / "other", 60, checkpoint_every=1, seed=1)
        shutil.rmtree(killed / "checkpoints")
        shutil.copytree(tmp_path / "other" / "checkpoints", killed / "checkpoints")
        before = contents(killed)
        with pytest.raises(
            InputError, match=r"round-0000004.json isn't a checkpoint of this run: its run and settings"
        ):
            resume(killed)
        assert contents(killed) == before
        overall, *found = verify_run(killed)
        assert (overall.state, {finding.state for finding in found}) == ("damaged", {"foreign"})
        assert "another run's" in overall.words

    def test_checkpoints_of_an_equal_run_are_refused(self, killed: Path, tmp_path: Path) -> None:
        """Every run has an id of its own, whatever its settings are."""
        break_off(tmp_path / "other", 60, checkpoint_every=1)
        shutil.rmtree(killed / "checkpoints")
        shutil.copytree(tmp_path / "other" / "checkpoints", killed / "checkpoints")
        with pytest.raises(InputError, match="isn't a checkpoint of this run: its run differ"):
            resume(killed)

    def test_a_finished_run_keeps_its_checkpoints_until_its_models_are_proven(self, tmp_path: Path) -> None:
        with dies_at(run_loop, "drop_checkpoints", 0), pytest.raises(Killed):
            run(tmp_path / "run", checkpoint_every=1)
        flip_the_last_byte("model.safetensors")(tmp_path / "run")
        with pytest.raises(InputError, match=r"model.safetensors isn't the file"):
            resume(tmp_path / "run")
        assert checkpoints(tmp_path / "run")

    def test_settings_that_no_result_depends_on_may_be_edited(self, killed: Path, tmp_path: Path) -> None:
        with (killed / "config.toml").open("a") as file:
            file.write('client_memory = "1MB"\n')
        resume(killed)
        assert results(killed) == results(run(tmp_path / "straight").folder)


class TestIdentity:
    def test_equal_runs_have_ids_of_their_own_and_equal_results(self, finished: Path, tmp_path: Path) -> None:
        other = run(tmp_path / "other").folder
        ids = [json.loads((place / "manifest.json").read_text())["content"]["run"] for place in (finished, other)]
        assert ids[0] != ids[1]
        assert results(finished) == results(other)
        assert all(one.encode() not in content for one in ids for content in results(finished).values())

    def test_an_id_stays_when_a_run_is_resumed(self, killed: Path) -> None:
        before = json.loads((killed / "manifest.json").read_text())["content"]["run"]
        resume(killed)
        assert json.loads((killed / "manifest.json").read_text())["content"]["run"] == before
        assert states(killed) == {"whole"}

    def test_exports_are_the_same_every_time(self, finished: Path, tmp_path: Path) -> None:
        done = adabest.load(finished)
        for form, times in (("safetensors", 6), ("onnx", 2)):
            made = {done.export(form, out=tmp_path / f"{n}.{form}").read_bytes() for n in range(times)}
            assert len(made) == 1


class TestCheckpointNames:
    def test_the_newest_is_found_by_its_number(self, tmp_path: Path) -> None:
        """Sorted as text, round 10,000,000 comes before round 9,999,999."""
        (tmp_path / "checkpoints").mkdir()
        for number in (9_999_998, 9_999_999, 10_000_000, 123_456_789):
            (tmp_path / "checkpoints" / f"round-{number:07d}.json").write_text("{}")
        (tmp_path / "checkpoints" / "round-old.json").write_text("{}")
        names = [path.name for path in checkpoints_of(RunFolder(tmp_path))]
        assert names == [f"round-{n:07d}.json" for n in (123_456_789, 10_000_000, 9_999_999, 9_999_998)]


class TestVersion04:
    def test_a_finished_one_stays_readable(self, finished: Path) -> None:
        metrics = adabest.load(finished).metrics
        as_old_version(finished)
        old = adabest.load(finished)
        assert (old.status, old.metrics) == ("finished", metrics)
        assert old.predict(torch_images()).shape == (2, 3)
        assert states(finished) == {"unproven"}
        assert resume(finished).status == "finished"

    def test_an_unfinished_one_is_resumed_only_unverified(
        self, killed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        as_old_version(killed)
        before = contents(killed)
        assert command("resume", killed) == 2
        assert f"adabest resume {killed} --unverified` goes on all the same" in capsys.readouterr().err
        assert contents(killed) == before
        assert command("resume", killed, "--unverified") == 0
        assert results(killed) == results(run(tmp_path / "straight").folder)
        assert states(killed) == {"whole"}

    def test_one_that_is_killed_again_is_proven_from_there(self, killed: Path, tmp_path: Path) -> None:

        as_old_version(killed)
        with ends_after(2, Killed), pytest.raises(Killed):
            adabest.resume(killed, unverified=True, show=False)
        assert states(killed) == {"whole"}
        resume(killed)
        assert results(killed) == results(run(tmp_path / "straight").folder)

    def test_a_lost_identity_is_refused_all_the_same(self, killed: Path) -> None:
        as_old_version(killed)
        (killed / "identity.json").unlink()
        with pytest.raises(InputError, match=r"identity.json is missing"):
            adabest.resume(killed, unverified=True, show=False)

    def test_one_that_had_only_begun_begins_again(self, tmp_path: Path) -> None:
        break_off(tmp_path / "run", 0)
        as_old_version(tmp_path / "run")
        for name in ("identity.json", "environment.json", "status.json"):
            (tmp_path / "run" / name).unlink()
        adabest.resume(tmp_path / "run", unverified=True, show=False)
        assert results(tmp_path / "run") == results(run(tmp_path / "straight").folder)

    def test_a_lost_manifest_can_be_done_without(self, killed: Path, tmp_path: Path) -> None:
        (killed / "manifest.json").unlink()
        adabest.resume(killed, unverified=True, show=False)
        assert results(killed) == results(run(tmp_path / "straight").folder)


def torch_images() -> Any:

    return stripes().x_test[:2]


class TestLinks:
    @pytest.mark.parametrize(
        "name", ["checkpoints", "status.json", "log.txt", "metrics.jsonl", ".lock", "model.safetensors"]
    )
    def test_nothing_is_written_through_a_link(self, name: str, killed: Path, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        if name == "checkpoints":
            (killed / name).rename(outside)
        else:
            outside.write_text("precious")
            (killed / name).unlink(missing_ok=True)
        (killed / name).symlink_to(outside)
        kept = contents(outside) if outside.is_dir() else outside.read_bytes()
        for attempt in (resume, lambda place: run(place, overwrite=True)):
            with pytest.raises(InputError, match=f"{name} is a symbolic link, and nothing is written through one"):
                attempt(killed)
        assert (contents(outside) if outside.is_dir() else outside.read_bytes()) == kept

    def test_a_link_in_place_of_a_checkpoint_is_refused(self, killed: Path, tmp_path: Path) -> None:
        (tmp_path / "outside").write_text("precious")
        (killed / "checkpoints" / "round-0000001.json").symlink_to(tmp_path / "outside")
        with pytest.raises(InputError, match="is a symbolic link"):
            resume(killed)
        assert (tmp_path / "outside").read_text() == "precious"

    def test_a_link_that_lies_in_wait_for_a_partial_file_is_not_met(self, finished: Path, tmp_path: Path) -> None:
        """Partial files have names that can't be foreseen, and are opened only if there is nothing of that name."""
        (tmp_path / "outside").write_text("precious")
        atomic_files.write_text(tmp_path / "file", "one")
        (tmp_path / "file").unlink()
        (tmp_path / "file").symlink_to(tmp_path / "outside")
        (tmp_path / "file.partial").symlink_to(tmp_path / "outside")
        atomic_files.write_text(tmp_path / "file", "two")
        assert (tmp_path / "outside").read_text() == "precious"
        assert not (tmp_path / "file").is_symlink()

    def test_a_run_of_a_comparison_may_not_be_a_link(self, finished: Path, tmp_path: Path) -> None:
        (tmp_path / "all").mkdir()
        (tmp_path / "all" / "fedavg").symlink_to(finished)
        before = contents(finished)
        with pytest.raises(InputError, match="fedavg is a symbolic link"):
            adabest.compare(algorithms=["fedavg"], rounds=1, out=tmp_path / "all", overwrite=True, show=False)
        assert contents(finished) == before

    def test_verify_tells_of_links_and_strangers(self, finished: Path, tmp_path: Path) -> None:
        (finished / "notes").write_text("mine")
        (finished / "wandb").symlink_to(tmp_path)
        overall, *found = verify_run(finished)
        assert overall == Finding(finished, "foreign", "the run's own files are whole, but there are others among them")
        assert [(finding.path.name, finding.state) for finding in found] == [("notes", "foreign"), ("wandb", "foreign")]

    def test_partial_files_of_a_killed_process_are_cleared_away(self, killed: Path) -> None:
        for place in (killed, killed / "checkpoints"):
            (place / "status.json.0123.partial").write_text("{")
        resume(killed)
        assert not list(killed.rglob("*.partial"))


@contextmanager
def power_cut(owner: Any, name: str, calls: int) -> Iterator[None]:
    """Kills what runs inside at a call of a function, and lets nothing be put in order afterwards."""
    settle = RunFolder._settle

    def settle_unless_dead(folder: RunFolder) -> None:
        if isinstance(sys.exc_info()[1], Killed):
            raise Killed
        settle(folder)

    with dies_at(owner, name, calls), pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "_settle", settle_unless_dead)
        yield


MOMENTS = {"rename": Path, "replace": Path, "mkdir": Path, "rmtree": shutil, "fsync": os}


@pytest.mark.filterwarnings("ignore:.*a run was being replaced")
class TestOverwrite:
    @pytest.mark.parametrize("operation", MOMENTS)
    def test_a_kill_at_any_moment_leaves_the_old_run_or_the_new_one(self, operation: str, tmp_path: Path) -> None:
        old, new = run(tmp_path / "old"), run(tmp_path / "new", seed=1)
        either = [results(old.folder), results(new.folder)]
        seen = set()
        for calls in range(40):
            place = Path(shutil.copytree(old.folder, tmp_path / f"{operation}-{calls}"))
            try:
                with power_cut(MOMENTS[operation], operation, calls):
                    run(place, overwrite=True, seed=1)
            except Killed:
                pass
            else:
                break
            assert resume(place).status == "finished"
            seen.add(either.index(results(place)))
            assert states(place) == {"whole"}
            assert not [path.name for path in place.iterdir() if path.name in (".moving", ".replaced")]
        assert calls > 0
        assert seen

    def test_the_next_command_says_which_run_is_there(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        run(tmp_path / "run")
        with power_cut(os, "fsync", 2), pytest.raises(Killed):
            run(tmp_path / "run", overwrite=True, seed=1)
        with pytest.warns(UserWarning, match="a run was being replaced; the old one is whole, and is here again"):
            assert adabest.load(tmp_path / "run").config.seed == 0
        assert command("show", tmp_path / "run") == 0

    def test_a_run_that_was_set_aside_is_listed_once(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        run(tmp_path / "runs" / "run")
        with power_cut(os, "fsync", 2), pytest.raises(Killed):
            run(tmp_path / "runs" / "run", overwrite=True, seed=1)
        assert command("list", tmp_path / "runs") == 0
        assert capsys.readouterr().out.count("finished") == 1

    def test_a_comparison_is_overwritten_run_by_run(self, tmp_path: Path) -> None:

        settings = tiny(algorithms=["fedavg", "adabest"], lanes=1, out=tmp_path / "all", show=False)
        adabest.compare(**settings)
        with ends_after(40, Killed), pytest.raises(Killed):
            adabest.compare(overwrite=True, **settings)
        assert adabest.load(tmp_path / "all" / "fedavg").status == "killed"
        assert adabest.load(tmp_path / "all" / "adabest").status == "finished", "its turn had not come"


class TestComparisonFile:
    def test_a_changed_comparison_is_refused(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:

        with ends_after(10, Killed), pytest.raises(Killed):
            adabest.compare(algorithms=["fedavg", "adabest"], lanes=1, out=tmp_path / "all", show=False, **tiny())
        path = tmp_path / "all" / "comparison.toml"
        path.write_text(path.read_text().replace("rounds = 5", "rounds = 6"))
        assert command("resume", tmp_path / "all") == 2
        assert f"{path} was changed since the comparison began" in capsys.readouterr().err


class TestFullDisk:
    def test_a_checkpoint_that_reads_otherwise_removes_none(
        self, killed: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = checkpoints(killed)
        monkeypatch.setattr(checkpoint, "checksum_of_file", lambda path: "0" * 64)
        with pytest.raises(OSError, match="doesn't hold what was written to it"):
            checkpoint.save_checkpoint(RunFolder(killed), _empty_view(9), {})
        assert set(before) <= set(checkpoints(killed))

    def test_a_folder_that_vanished_is_an_os_error(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            atomic_files.append_bytes(tmp_path / "gone" / "log.txt", b"x")
        assert os.listdir(tmp_path) == []


def _empty_view(round_number: int) -> Any:
    return View({}, {"round": round_number})


class TestLostConfiguration:
    def test_a_run_without_its_configuration_is_found_and_refused(
        self, finished: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (finished / "config.toml").unlink()
        before = contents(finished)
        for line in (["show", finished], ["resume", finished], ["report", finished.parent]):
            assert command(*line) == 2
            assert str(finished / "config.toml") in capsys.readouterr().err
        with pytest.raises(InputError, match="holds a finished run"):
            run(finished)
        assert contents(finished) == before
        assert [finding.path.name for finding in verify_run(finished)] == ["run", "config.toml"]


def reseal(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes a file that carries a sum of itself, and the sum with it, as only somebody on purpose would."""
    sealed = json.loads(path.read_text())
    change(sealed["content"])
    path.write_text(json.dumps({"content": sealed["content"], "content_sha256": checksum_of_object(sealed["content"])}))


MANIFESTS: dict[str, Any] = {
    "files": [],
    "metrics": {"length": 1.5, "sha256": ""},
    "status": 5,
    "round": "x",
    "run": None,
    "format": 1,
    "settings": [],
}


class TestResealed:
    """A sum proves nothing against those who write it, but what they write is still checked."""

    @pytest.mark.parametrize("name", MANIFESTS)
    def test_a_manifest_of_other_types_is_refused(
        self, name: str, killed: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        reseal(killed / "manifest.json", lambda content: content.update({name: MANIFESTS[name]}))
        for line in (["show"], ["resume"], ["report"]):
            assert command(*line, killed) == 2
            assert str(killed / "manifest.json") in capsys.readouterr().err
        assert command("list", killed) == 0
        assert command("verify", killed) == 4

    @pytest.mark.parametrize(
        "change",
        [
            lambda content: content.pop("metrics"),
            lambda content: content.update(metrics=[]),
            lambda content: content.pop("numbers"),
            lambda content: content.update(numbers="x"),
            lambda content: content["numbers"].update(round=3),
        ],
        ids=["no metrics", "a list", "no numbers", "text", "another round"],
    )
    @pytest.mark.filterwarnings("ignore:.* is passed over")
    def test_a_checkpoint_of_other_types_is_refused_or_passed_over(
        self,
        change: Callable[[dict[str, Any]], None],
        killed: Path,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        reseal(killed / "checkpoints" / "round-0000004.json", change)
        code = command("resume", killed)
        assert code == 0 or (code == 2 and "round-0000004.json" in capsys.readouterr().err)
        assert code == 2 or results(killed) == results(run(tmp_path / "straight").folder)

    def test_a_comparison_of_version_04_is_checked(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        run(tmp_path / "all" / "fedavg", rounds=1)
        for line in ('target = "x"', "target = [1]", "algorithms = 3", "target = nan"):
            (tmp_path / "all" / "comparison.toml").write_text(line + "\n")
            assert command("report", tmp_path / "all", "--html", tmp_path / "page.html") == 2
            assert "comparison.toml is damaged" in capsys.readouterr().err


class TestFoundByReviewers:
    def test_a_link_among_what_was_set_aside_is_refused(self, killed: Path, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "mine.partial").write_text("precious")
        shutil.rmtree(killed / "checkpoints")
        (killed / ".moving").mkdir()
        (killed / ".moving" / "checkpoints").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(InputError, match="checkpoints is a symbolic link"):
            adabest.load(killed)
        assert (tmp_path / "elsewhere" / "mine.partial").read_text() == "precious"
        assert verify_run(killed)[0].state == "damaged"

    def test_what_is_not_ours_is_not_removed_with_what_was_set_aside(self, finished: Path) -> None:
        (finished / ".replaced").mkdir()
        (finished / ".replaced" / "important").write_text("mine")
        with pytest.raises(InputError, match=r"holds things that aren't a run's \(important\)"):
            adabest.load(finished)
        assert (finished / ".replaced" / "important").read_text() == "mine"

    def test_a_refusal_does_not_advise_to_run_code_that_a_file_names(self, finished: Path) -> None:
        change("config.toml", 'dataset = "stripes"', 'dataset = "subprocess:getoutput,cmd=true"')(finished)
        with pytest.raises(InputError, match="It names subprocess:getoutput, which a new run would import: look at it"):
            adabest.load(finished)

    @pytest.mark.parametrize("calls", range(12))
    def test_an_adoption_that_is_killed_loses_no_row(self, calls: int, killed: Path, tmp_path: Path) -> None:
        as_old_version(killed)
        try:
            with dies_at(os, "fsync", calls):
                adabest.resume(killed, unverified=True, show=False)
        except Killed:
            adabest.resume(killed, unverified=True, show=False)
        assert results(killed) == results(run(tmp_path / "straight").folder)

    def test_lost_checkpoints_are_missing(self, killed: Path) -> None:
        shutil.rmtree(killed / "checkpoints")
        overall, missing = verify_run(killed)
        assert (overall.state, missing.state, missing.path.name) == ("damaged", "missing", "round-0000004.json")

    def test_a_folder_in_place_of_a_file_is_damage(self, finished: Path) -> None:
        (finished / "log.txt").unlink()
        (finished / "log.txt").mkdir()
        assert [finding.state for finding in verify_run(finished)] == ["damaged", "damaged"]

    def test_a_run_that_ends_while_it_is_read_was_not_changed(self, finished: Path, killed_run: Path) -> None:
        """Its manifest was read while it ran, its status after it had ended."""
        stale = read_manifest(RunFolder(killed_run))
        assert find_standing(RunFolder(finished), stale).status == "finished"

    def test_a_fresh_run_that_was_killed_at_once_speaks_of_no_old_one(self, tmp_path: Path) -> None:
        with power_cut(os, "fsync", 2), pytest.raises(Killed):
            run(tmp_path / "run")
        with pytest.raises(InputError, match="there is no run"):
            adabest.load(tmp_path / "run")

    def test_an_ended_run_without_a_manifest_can_be_resumed_unverified(self, finished: Path) -> None:
        (finished / "manifest.json").unlink()
        with pytest.raises(InputError, match="go on without a proof"):
            adabest.load(finished)
        as_old_version_again = json.loads((finished / "environment.json").read_text())
        del as_old_version_again[FORMAT_KEY]
        (finished / "environment.json").write_text(json.dumps(as_old_version_again))
        assert resume(finished, unverified=True).status == "finished"
