"""Partitions of stored runs: cut again where their data are there, and else the reason why not."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import data_of, entries, make_run, page_of, section
from tiny_runs import stripes

import adabest
from adabest.experiments import run_partitions
from adabest.experiments.run_partitions import partition_maps
from adabest.report.page import heat_maps
from adabest.runs.build import cut_partition
from adabest.runs.settings.resolution import resolve


class TestPartitionMaps:
    @staticmethod
    def run(**changes: Any) -> adabest.Run:
        """A run on the partition that its settings make."""
        config = make_run(**changes).config
        made = cut_partition(config, resolve({"dataset": "stripes"})[1])
        return make_run(identity={"partition": {"fingerprint": made.fingerprint, "samples_used": 234}}, **changes)

    def why(self, run: adabest.Run, **options: Any) -> str:
        (shown,) = partition_maps(entries([run]), **options)
        assert shown.counts is None
        assert "can’t be shown: " + shown.why in section(page_of(run, **options), "clients")
        return shown.why

    def test_a_partition_is_shown_once(self) -> None:
        runs = [self.run(), self.run(algorithm="adabest"), self.run(algorithm="adabest", alpha=0.1)]
        maps = partition_maps(entries(runs))
        assert [one.labels for one in maps] == [["fedavg,alpha=0.3", "adabest,alpha=0.3"], ["adabest,alpha=0.1"]]
        assert [np.array(one.counts).sum() for one in maps] == [234, 234]

    def test_classes_are_shown_by_their_names(self, monkeypatch: pytest.MonkeyPatch) -> None:
        run = self.run()
        (plain,) = partition_maps(entries([run]))
        assert plain.names == ()
        classes = len(plain.counts or [])
        named = ("<a&b>", "a name longer than the room", *map(str, range(2, classes)))
        cut_again = run_partitions._cut_again
        monkeypatch.setattr(run_partitions, "_cut_again", lambda *given: (cut_again(*given)[0], named))
        page = page_of(run)
        assert "<span>&lt;a&amp;b&gt;</span><span>a name longer t…</span>" in page
        assert "<a&b>" not in page
        assert data_of(page)["maps"][0]["names"] == list(named)

    def test_absent_data_are_not_fetched(self, tmp_path: Path) -> None:
        run = dataclasses.replace(self.run(), config=make_run(dataset="mnist").config)
        assert "the data set mnist isn’t on this disk" in self.why(run, data_dir=str(tmp_path))
        nowhere = str(tmp_path / "nowhere")
        assert "isn’t on this disk, or has moved" in (why := self.why(run, data_dir=nowhere))
        assert nowhere not in why
        hub = dataclasses.replace(run, config=make_run(dataset="huggingface,name=mnist").config)
        assert "nothing is downloaded" in self.why(hub)

    def test_data_that_cannot_be_found_again_leave_the_reason(self, tmp_path: Path) -> None:
        for dataset, words in {
            "python-object:mine": "was a Python object",
            str(tmp_path / "gone, with a comma.npz"): "gone, with a comma.npz",
            f"{__name__}:broken": "isn't imported: it was named by a file, not by this call",
        }.items():
            assert words in self.why(dataclasses.replace(self.run(), config=make_run(dataset=dataset).config))

    @pytest.mark.usefixtures("trusting")
    def test_an_error_in_a_users_data_set_is_told_without_its_folder(self) -> None:
        why = self.why(dataclasses.replace(self.run(), config=make_run(dataset=f"{__name__}:broken").config))
        assert f"data set '{__name__}:broken' raised ZeroDivisionError: my own mistake" in why
        line = broken.__code__.co_firstlineno + 3
        assert f"({Path(__file__).name}, line {line})" in why, "whose folders are nobody else's business"

    def test_a_mistake_in_the_package_is_not_hidden(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def mistaken(*given: Any) -> None:
            raise ZeroDivisionError("ours")

        monkeypatch.setattr(run_partitions, "cut_partition", mistaken)
        with pytest.raises(ZeroDivisionError, match="ours"):
            partition_maps(entries([self.run()]))

    def test_other_data_under_the_same_name_are_not_shown(self) -> None:
        other = make_run(identity={"partition": {"fingerprint": "another"}})
        assert "gives another partition" in self.why(other)

    def test_many_clients_share_columns(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(heat_maps, "_MOST_COLUMNS", 4)
        (shown,) = partition_maps(entries([self.run()]))
        assert shown.clients == 3  # 9 clients
        counts = np.array(shown.counts)
        assert counts.shape == (3, 3)
        assert 3 * counts.sum() == pytest.approx(234, abs=0.1)
        assert 3 * sum(shown.held_out) == pytest.approx(1, abs=0.1)
        assert "one column per 3 clients" in section(page_of(self.run()), "clients")

    def test_maps_beyond_the_size_of_a_page_are_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(run_partitions, "_MOST_CELLS", 30)
        first, second = partition_maps(entries([self.run(), self.run(seed=1)]))
        assert first.counts is not None
        assert second.counts is None
        assert "too large" in second.why


def broken() -> Any:
    """A data set that can't be made."""
    stripes()
    raise ZeroDivisionError("my own mistake")
