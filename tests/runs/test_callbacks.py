"""Callbacks of one's own: when they are called, what they may read, that they may stop a run, and that they survive."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from figures import catch_figures
from safetensors.torch import load_file
from tiny_runs import Killed, arguments, command, ends_after, results, tiny

import adabest
from adabest import Callback, Ending, InputError, Interrupted, RunView
from adabest.runs.settings.resolution import resolve


class Witness(Callback):
    """Writes down when it is called, and counts evaluations in its state."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.evaluations = 0
        self.ending: Ending | None = None

    def start(self, run: RunView) -> None:
        self.calls.append(("start", run.round))

    def after_evaluation(self, run: RunView, metrics: Mapping[str, Any]) -> None:
        assert run.rows[-1] == metrics
        self.evaluations += 1
        self.calls.append(("evaluation", metrics["round"]))

    def after_round(self, run: RunView) -> None:
        self.calls.append(("round", run.round))

    def end(self, run: RunView, ending: Ending) -> None:
        self.ending = ending
        self.calls.append(("end", run.round))

    def state(self) -> Mapping[str, Any]:
        return {"evaluations": self.evaluations}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.evaluations = state.get("evaluations", 0)


def run(out: Path, *callbacks: str | Callback, **changes: Any) -> adabest.Run:
    return adabest.run(out=out, show=False, callbacks=callbacks, **tiny(**changes))


class TestMoments:
    def test_a_run_calls_its_callbacks_at_four_moments(self, tmp_path: Path) -> None:
        witness = Witness()
        run(tmp_path / "run", witness, rounds=3, evaluate_every=2)
        rounds = [("round", 1), ("evaluation", 2), ("round", 2), ("evaluation", 3), ("round", 3)]
        assert witness.calls == [("start", 0), *rounds, ("end", 3)]
        assert witness.ending == Ending("finished", 3)

    def test_callbacks_are_called_in_their_order_and_ended_in_reverse(self, tmp_path: Path) -> None:
        heard: list[str] = []

        class Named(Callback):
            def __init__(self, name: str) -> None:
                self.name = name

            def after_round(self, run: RunView) -> None:
                heard.append(self.name)

            def end(self, run: RunView, ending: Ending) -> None:
                heard.append(f"end {self.name}")

        run(tmp_path / "run", Named("a"), Named("b"), rounds=1)
        assert heard == ["a", "b", "end b", "end a"]

    def test_watching_changes_no_number(self, tmp_path: Path) -> None:
        run(tmp_path / "watched", Witness())
        adabest.run(out=tmp_path / "alone", show=False, **tiny())
        assert results(tmp_path / "watched") == results(tmp_path / "alone")

    def test_a_diverged_run_tells_in_which_round(self, tmp_path: Path) -> None:
        witness = Witness()
        run(tmp_path / "run", witness, algorithm="tiny_runs:Bomb,fuse=3")
        assert witness.ending is not None
        assert witness.ending[:2] == ("diverged", 3)


class TestReading:
    def test_parameters_are_those_of_the_files(self, tmp_path: Path) -> None:
        class Keeper(Callback):
            def end(self, run: RunView, ending: Ending) -> None:
                self.kept = {which: run.parameters(which) for which in ("scored", "aggregate", "cloud")}
                with pytest.raises(InputError, match=r"no model 'averaged'.*it has scored, aggregate, cloud"):
                    run.parameters("averaged")

        keeper = Keeper()
        run(tmp_path / "run", keeper)
        for which, name in (("scored", "model"), ("aggregate", "aggregate"), ("cloud", "cloud")):
            stored = load_file(tmp_path / "run" / f"{name}.safetensors")
            assert stored.keys() == keeper.kept[which].keys()
            assert all(torch.equal(stored[key], keeper.kept[which][key]) for key in stored)

    def test_facts_of_the_run_are_there(self, tmp_path: Path) -> None:
        seen: dict[str, Any] = {}

        class Reader(Callback):
            def start(self, run: RunView) -> None:
                names = ("name", "group", "folder", "rounds", "first_round", "id")
                seen.update({name: getattr(run, name) for name in names}, algorithm=run.config["algorithm"])

        done = run(tmp_path / "run", Reader(), rounds=2)
        kept = json.loads((done.folder / "tracking.json").read_text())
        assert seen == {
            "name": "run",
            "group": "",
            "folder": done.folder,
            "rounds": 2,
            "first_round": 0,
            "id": kept["id"],
            "algorithm": "adabest",
        }


class Patience(Callback):
    """Stops in the third evaluation, counted over processes."""

    evaluations = 0

    def after_evaluation(self, run: RunView, metrics: Mapping[str, Any]) -> None:
        self.evaluations += 1
        if self.evaluations == 3:
            run.stop("three evaluations are enough")

    def state(self) -> Mapping[str, Any]:
        return {"evaluations": self.evaluations}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.evaluations = state.get("evaluations", 0)


class TestStopping:
    def test_a_callback_ends_a_run_as_finished(self, tmp_path: Path) -> None:
        done = run(tmp_path / "run", Patience(), evaluate_every=1)
        assert (done.status, done.round, done.reason) == ("finished", 3, "three evaluations are enough")
        assert done.final["round"] == 3

    @pytest.mark.parametrize("beats", [20, 30, 45])
    @pytest.mark.parametrize("error", [Interrupted, Killed])
    def test_a_resumed_run_stops_in_the_same_round(
        self, beats: int, error: type[BaseException], tmp_path: Path
    ) -> None:
        settings: dict[str, Any] = {"evaluate_every": 1, "checkpoint_every": 1}
        run(tmp_path / "straight", Patience(), **settings)
        with ends_after(beats, error), pytest.raises(error):
            run(tmp_path / "run", Patience(), **settings)
        done = adabest.resume(tmp_path / "run", callbacks=[Patience()], show=False)
        assert isinstance(done, adabest.Run)
        assert (done.round, done.reason) == (3, "three evaluations are enough")
        assert results(tmp_path / "run") == results(tmp_path / "straight")


class TestStates:
    @pytest.mark.parametrize("beats", range(14, 70, 11))
    def test_each_evaluation_is_counted_once(self, beats: int, tmp_path: Path) -> None:
        """A state is saved with its round, so a resumed run calls a callback for the rounds that the state lacks."""
        with ends_after(beats, Killed), pytest.raises(Killed):
            run(tmp_path / "run", Witness(), evaluate_every=1, checkpoint_every=1)
        witness = Witness()
        adabest.resume(tmp_path / "run", callbacks=[witness], show=False)
        assert witness.evaluations == tiny()["rounds"]

    def test_a_state_whose_callback_is_not_given_is_refused(self, tmp_path: Path) -> None:
        with ends_after(40), pytest.raises(Interrupted):
            run(tmp_path / "run", Witness(), evaluate_every=1)
        with pytest.raises(
            InputError,
            match=r"given the callbacks Witness as objects, not none; .* adabest\.resume\(folder, callbacks=",
        ):
            adabest.resume(tmp_path / "run", show=False)

    def test_a_state_that_json_does_not_have_is_refused(self, tmp_path: Path) -> None:
        class Odd(Callback):
            def state(self) -> Mapping[str, Any]:
                return {"tensor": torch.zeros(1)}

        with pytest.raises(InputError, match=r"the state of callback .*Odd can't be saved .*numbers, words, lists"):
            run(tmp_path / "run", Odd(), checkpoint_every=1)

    def test_a_callback_that_fails_breaks_the_run_off_before_the_round_is_saved(self, tmp_path: Path) -> None:
        class Broken(Callback):
            def __init__(self, fails_in: int | None) -> None:
                self.fails_in = fails_in

            def after_round(self, run: RunView) -> None:
                if run.round == self.fails_in:
                    raise ZeroDivisionError("my own mistake")

        with pytest.raises(ZeroDivisionError, match="my own mistake"):
            run(tmp_path / "run", Witness(), Broken(3), evaluate_every=1, checkpoint_every=1)
        left = adabest.load(tmp_path / "run")
        assert (left.status, left.round) == ("killed", 2)
        witness = Witness()
        adabest.resume(tmp_path / "run", callbacks=[witness, Broken(None)], show=False)
        assert witness.evaluations == tiny()["rounds"]
        adabest.run(out=tmp_path / "straight", show=False, **tiny(evaluate_every=1))
        assert results(tmp_path / "run") == results(tmp_path / "straight")


def test_the_command_line_still_runs(tmp_path: Path) -> None:
    assert command("run", "--rounds", 1, "--clients", 4, "--out", tmp_path / "run") == 0


class Counter(Callback):
    """A callback with an option."""

    counted: ClassVar[list[int]] = []

    def __init__(self, step: int = 1) -> None:
        self.step = step

    def after_round(self, run: RunView) -> None:
        self.counted.append(self.step * run.round)


class TestNames:
    def test_a_name_with_options_makes_a_callback(self, tmp_path: Path) -> None:
        Counter.counted.clear()
        run(tmp_path / "run", f"{__name__}:Counter,step=10", rounds=2)
        assert Counter.counted == [10, 20]

    def test_the_command_line_takes_names(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        Counter.counted.clear()
        given = arguments(**tiny(rounds=2), out=tmp_path / "run")
        assert command("run", *given, "--callbacks", f"{__name__}:Counter") == 0
        assert Counter.counted == [1, 2]

    def test_a_run_that_is_resumed_imports_only_what_the_call_allows(self, tmp_path: Path) -> None:
        name = f"{__name__}:Counter"
        with ends_after(40), pytest.raises(Interrupted, match=f"--allow {name}"):
            run(tmp_path / "run", name, checkpoint_every=1)
        with pytest.raises(InputError, match="named by a file, not by this call"):
            adabest.resume(tmp_path / "run", show=False)
        done = adabest.resume(tmp_path / "run", allow=[name], show=False)
        assert isinstance(done, adabest.Run)
        assert done.status == "finished"

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("nowhere:Counter", "can't import module 'nowhere'"),
            ("tiny_runs:Bomb", "should be a subclass of adabest.Callback"),
            (f"{__name__}:Counter,stepp=3", "has no option 'stepp'; did you mean 'step'"),
        ],
    )
    def test_mistakes_are_found_before_anything_is_begun(self, name: str, words: str, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=words):
            run(tmp_path / "run", name)
        assert list(tmp_path.iterdir()) == []

    def test_a_comparison_makes_one_for_every_run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        catch_figures(monkeypatch)
        Counter.counted.clear()
        settings = tiny(rounds=1, callbacks=[f"{__name__}:Counter"])
        adabest.compare(algorithms=["fedavg", "fedprox"], out=tmp_path / "all", show=False, **settings)
        assert Counter.counted == [1, 1]

    def test_callbacks_are_part_of_what_a_run_is_since_they_may_end_it(self, tmp_path: Path) -> None:
        plain, _ = resolve(tiny())
        watched, _ = resolve(tiny(callbacks=["anywhere:Callback"]))
        assert "callbacks" not in plain.essence()  # as in digests of version 0.5.0
        assert plain.digest() != watched.digest()

    def test_a_comparison_refuses_objects(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="in a comparison, a sweep or a tuning a callback is named"):
            adabest.compare(algorithms=["fedavg"], out=tmp_path / "all", **tiny(callbacks=[Counter()]))

    @pytest.mark.parametrize(
        ("callbacks", "words"),
        [
            (Counter(), r"callbacks should be a list, as in \[MyCallback\(\)\]"),
            ([Counter], r"object of a subclass of adabest.Callback, as in Counter\(\)"),
            ([3], "callbacks: 3 should be the name of a callback"),
        ],
    )
    def test_what_is_no_callback_is_refused(self, callbacks: Any, words: str, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=words):
            adabest.run(out=tmp_path / "run", show=False, **tiny(callbacks=callbacks))
        assert list(tmp_path.iterdir()) == []


class TestObjects:
    def test_names_and_objects_are_called_in_the_order_in_which_they_were_given(self, tmp_path: Path) -> None:
        Counter.counted.clear()
        one, other = Counter(step=1), Counter(step=100)
        run(tmp_path / "run", one, f"{__name__}:Counter,step=10", other, rounds=1)
        assert Counter.counted == [1, 10, 100]

    def test_a_run_is_not_resumed_without_the_objects_it_was_given(self, tmp_path: Path) -> None:
        with ends_after(40), pytest.raises(Interrupted, match=r"adabest\.resume\(.*and the objects it was given"):
            run(tmp_path / "run", Counter())
        with pytest.raises(InputError, match=r"given the callbacks Counter as objects, not none; .*callbacks=\["):
            adabest.resume(tmp_path / "run", show=False)
        adabest.resume(tmp_path / "run", callbacks=[Counter()], show=False)
        assert adabest.load(tmp_path / "run").status == "finished"


class TestStopBetweenEvaluations:
    @pytest.mark.parametrize("asked_in", [0, 1, 2, 3])
    def test_the_last_round_of_a_stopped_run_is_evaluated(self, asked_in: int, tmp_path: Path) -> None:
        class Stopper(Callback):
            def start(self, run: RunView) -> None:
                self.after_round(run)

            def after_round(self, run: RunView) -> None:
                if run.round == asked_in:
                    run.stop("enough")

        done = run(tmp_path / "run", Stopper(), evaluate_every=2, checkpoint_every=1)
        last = {0: 1, 1: 2, 2: 2, 3: 4}[asked_in]
        assert (done.status, done.round, done.reason, done.final["round"]) == ("finished", last, "enough", last)


class TestFailures:
    def test_restore_is_not_called_without_a_state(self, tmp_path: Path) -> None:
        class Picky(Callback):
            def restore(self, state: Mapping[str, Any]) -> None:
                raise AssertionError("there is nothing to restore")

        assert run(tmp_path / "run", Picky(), rounds=1).status == "finished"

    def test_an_end_that_fails_leaves_a_finished_run(self, tmp_path: Path) -> None:
        class Broken(Callback):
            def end(self, run: RunView, ending: Ending) -> None:
                raise ZeroDivisionError("my own mistake")

        with pytest.raises(ZeroDivisionError):
            run(tmp_path / "run", Broken())
        adabest.run(out=tmp_path / "straight", show=False, **tiny())
        assert adabest.load(tmp_path / "run").status == "finished"
        assert results(tmp_path / "run") == results(tmp_path / "straight")

    def test_a_start_that_fails_leaves_the_run_that_was_to_be_replaced(self, tmp_path: Path) -> None:
        class Broken(Callback):
            def start(self, run: RunView) -> None:
                raise ZeroDivisionError("my own mistake")

        run(tmp_path / "run")
        before = results(tmp_path / "run")
        with pytest.raises(ZeroDivisionError):
            run(tmp_path / "run", Broken(), seed=1, overwrite=True)
        assert adabest.load(tmp_path / "run").status == "finished"
        assert results(tmp_path / "run") == before

    def test_a_callback_that_exits_ends_the_others(self, tmp_path: Path) -> None:
        class Leaving(Callback):
            def after_round(self, run: RunView) -> None:
                raise SystemExit(7)

        witness = Witness()
        with pytest.raises(SystemExit):
            run(tmp_path / "run", witness, Leaving())
        assert witness.ending is not None
        assert witness.ending.status == "killed"

    def test_a_state_that_cannot_be_saved_is_found_before_the_first_round(self, tmp_path: Path) -> None:
        class Odd(Witness):
            def state(self) -> Mapping[str, Any]:
                return {"tensor": torch.zeros(1)}

        odd = Odd()
        with pytest.raises(InputError, match="can't be saved"):
            run(tmp_path / "run", odd)
        assert [what for what, _ in odd.calls] == ["start", "end"]


def test_an_old_style_tracker_is_told_the_new_names(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"before version 0\.6\.0 they were called begin, log and end"):
        run(tmp_path / "run", loggers=[f"{__name__}:OldLogger"])


class OldLogger:
    def begin(self, run: Any) -> None: ...

    def log(self, row: Any) -> None: ...

    def end(self, status: Any) -> None: ...
