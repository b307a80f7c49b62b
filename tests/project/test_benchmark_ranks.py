"""Ranks: the formula of bytes against a job, times by hand, both rules of placement, and the page from its results."""

import json
from pathlib import Path
from typing import Any

import pytest

from adabest.errors import InputError
from benchmarks import rank_arithmetic, rank_page, ranks
from benchmarks.rank_arithmetic import Fixed, Job, Link, Traffic, adabest, fedavg
from benchmarks.ranks import MeasuredJob

DOCS = Path(__file__).parents[2] / "docs"
SMALL = MeasuredJob("small", f"{ranks._LEAST} --clients 20", "adabest", "logistic", (1, 8, 8), 6)
NOTHING = Fixed(alone=0.0, control={2: 0.0}, lateness=0.0)
NO_LINK = Link("none", float("inf"), 1.0, 0.0)


class TestBytes:
    def test_fedavg_sends_a_message_the_others_slices_and_a_mean(self) -> None:
        # P = 128 in slices of 64 numbers, 256 bytes; two clients at rank 0 and one at rank 1
        assert rank_arithmetic.round_bytes(fedavg(128), [2, 1], []) == [
            (512 + 2 * 256, 256 + 256),
            (256 + 256, 512 + 2 * 256),
        ]

    def test_a_state_that_moves_is_sent_once(self) -> None:
        still = rank_arithmetic.round_bytes(adabest(128), [2, 1], [])
        moved = rank_arithmetic.round_bytes(adabest(128), [2, 1], [[0, 1]])
        state = 512 + 16  # h_i, and t'_i
        assert moved == [(still[0][0] + state, still[0][1]), (still[1][0], still[1][1] + state)]

    def test_one_rank_sends_nothing(self) -> None:
        assert rank_arithmetic.round_bytes(adabest(128), [3], []) == [(0, 0)]

    def test_what_is_sent_is_received(self) -> None:
        found = rank_arithmetic.round_bytes(Traffic(1000, 1, 2, 3, 1, 1), [4, 3, 0, 5], [[0, 3], [3, 1]])
        assert sum(sent for sent, _ in found) == sum(received for _, received in found)

    def test_jobs_send_the_bytes_of_the_formula_and_train_the_same_model_wherever_clients_train(self) -> None:
        found = {rule: ranks.measure_once(SMALL, 2, rule) for rule in ("home", "balanced")}  # raises at other bytes
        assert found["home"]["moved"] == 0
        assert found["home"]["model"] == found["balanced"]["model"]
        assert all(row["sent"][1] > 0 and row["seconds"] > 0 and row["text"] > 0 for row in found.values())

    def test_a_job_that_fails_says_why(self) -> None:
        job = MeasuredJob("bad", "--alpha 0", "adabest", "logistic", (1, 8, 8), 6)
        with pytest.raises(InputError, match=r"alpha = 0\.0"):
            ranks.measure_once(job, None)


class TestNotes:
    def note(self, at: float, sent: int = 0) -> dict[str, Any]:
        counts = {"sent": sent, "received": 0, "text": 10, "exchange": 0.5, "clients": [1], "moves": []}
        return {"at": at, "cpu": at / 2, **counts}

    def test_two_rounds_are_warm_up(self) -> None:
        own = [{"rounds": [self.note(at) for at in (0.0, 50.0, 60.0, 61.0, 62.0)]}]
        found = ranks.figures(SMALL, own, 1)
        assert (found["seconds"], found["cpu"], found["exchange"], found["text"]) == (1.0, 0.5, 0.5, 10)

    def test_other_bytes_than_the_formulas_are_refused(self) -> None:
        own = [{"rounds": [{**self.note(at, sent=1), "clients": [1, 1]} for at in range(5)]} for _ in range(2)]
        with pytest.raises(InputError, match="small, round 1: ranks sent and received"):
            ranks.figures(SMALL, own, 2)

    def test_too_few_rounds_are_refused(self) -> None:
        with pytest.raises(InputError, match="take 4 or more"):
            ranks.figures(SMALL, [{"rounds": [self.note(0.0)]}], None)

    def test_ratios_are_of_the_same_repeat(self) -> None:
        rows = {
            arm: [{"seconds": value, "cpu": value, "model": "m"} for value in own]
            for arm, own in {"alone": (1.0, 10.0, 2.0), "2": (3.0, 20.0, 8.0)}.items()
        }
        found = ranks.summary(rows, "alone")
        assert found["2"]["seconds_ratio"] == 3.0  # of 3, 2 and 4
        assert found["2"]["seconds"] == 8.0

    def test_arms_that_train_different_models_are_refused(self) -> None:
        rows = {arm: [{"seconds": 1.0, "cpu": 1.0, "model": arm}] for arm in ("alone", "2")}
        with pytest.raises(InputError, match="the same model, but there are 2"):
            ranks.summary(rows, "alone")


class TestPlacement:
    def test_equal_clients_are_shared_out_evenly(self) -> None:
        found = rank_arithmetic.place([50] * 40, 8, 4, "balanced")
        assert (found.makespan, found.share) == (100, 100)

    def test_clients_at_home_wait_for_the_fullest_rank(self) -> None:
        steps = rank_arithmetic.local_steps(200, 50, 1.0)
        balanced, home = (rank_arithmetic.place(steps, 40, 4, rule) for rule in ("balanced", "home"))
        assert home.moved == 0 < balanced.moved
        assert balanced.makespan < home.makespan

    def test_sizes_have_the_mean_and_the_spread_that_were_asked_for(self) -> None:
        assert set(rank_arithmetic.local_steps(10, 50, 0.0)) == {50}
        drawn = rank_arithmetic.local_steps(1000, 50, 1.0)
        assert sum(drawn) / 1000 == pytest.approx(50, abs=1)
        assert max(drawn) > 300


class TestRounds:
    def test_steps_between_measured_numbers_of_clients_are_on_a_line(self) -> None:
        rates = {1: 100.0, 3: 50.0}  # 100 µs for one client, 150 for three
        found = [rank_arithmetic.step_seconds(rates, clients) for clients in (1, 2, 3, 6)]
        assert found == pytest.approx([100e-6, 125e-6, 150e-6, 300e-6])

    def test_a_round_is_the_sum_of_its_parts(self) -> None:
        job = Job("small", "m", Traffic(1000, state_vectors=1), clients=4, steps=10)
        link, fixed = Link("l", 1e6, 0.5, 1e-3), Fixed(alone=0.1, control={2: 0.2}, lateness=0.05)
        found = rank_arithmetic.round_time(job, {1: 1e3}, link, 2, fixed=fixed, moved=3)
        assert found.training == pytest.approx(10 * 2 * 1e-3)
        # a message of 4,000 bytes, half of two replies and of the mean, at 500,000 bytes a second, and three operations
        assert found.exchange == pytest.approx((4000 + 0.5 * 4000 * 3) / 5e5 + 3e-3)
        assert found.moving == pytest.approx(3 * 4000 / 5e5 + 1e-3)
        assert found.fixed == pytest.approx(0.35)
        assert found.efficiency == pytest.approx((0.04 + 0.1) / (2 * found.seconds))

    def test_one_rank_exchanges_nothing(self) -> None:
        job = Job("small", "m", adabest(1000), clients=4, steps=10)
        found = rank_arithmetic.round_time(job, {1: 1e3}, NO_LINK, 1, fixed=NOTHING._replace(alone=0.1), moved=5)
        assert found.seconds == pytest.approx(0.14)
        assert found.efficiency == 1

    def test_ranks_without_costs_scale_to_one_a_client(self) -> None:
        assert rank_arithmetic.last_worthwhile(Job("j", "m", fedavg(1)), {1: 10.0}, NO_LINK, NOTHING) == 100

    def test_it_stops_where_ranks_are_used_less_than_by_half(self) -> None:
        job = Job("j", "m", fedavg(1), clients=4, steps=1)  # a second a step: 4 alone, 2 + 2 on 2, 2 + 2 on 3
        assert rank_arithmetic.last_worthwhile(job, {1: 1e6}, NO_LINK, NOTHING._replace(control={2: 2.0})) == 2

    def test_control_is_a_line_between_measurements_and_flat_beyond(self) -> None:
        fixed = Fixed(alone=1.0, control={2: 0.0, 4: 2.0}, lateness=10.0)
        assert [fixed.seconds(size) for size in (1, 2, 3, 4, 64)] == [1.0, 11.0, 12.0, 13.0, 13.0]


class TestPage:
    @pytest.fixture
    def stored(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((DOCS / ranks.RESULTS).read_text(encoding="utf-8"))
        return found

    def test_the_arithmetic_follows_from_what_was_measured(self, stored: dict[str, Any]) -> None:
        speed = json.loads((DOCS / "results" / "speed.json").read_text(encoding="utf-8"))
        assert json.loads(json.dumps(ranks.arithmetic(stored, speed))) == stored["arithmetic"]

    def test_the_page_says_what_the_results_say(self, stored: dict[str, Any]) -> None:
        assert (DOCS / "results" / "ranks.md").read_text(encoding="utf-8") == rank_page.page(stored)

    def test_results_are_added_to_those_that_are_there(self, stored: dict[str, Any], tmp_path: Path) -> None:
        for name in (ranks.RESULTS, "results/speed.json"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text((DOCS / name).read_text(encoding="utf-8"), encoding="utf-8")
        job = {**stored["jobs"]["least"], "name": "another name"}
        ranks.publish(tmp_path, {"jobs": {"least": job}})
        text = (tmp_path / "results" / "ranks.md").read_text(encoding="utf-8")
        assert "another name, 2 ranks" in text
        assert stored["jobs"]["cnn-adabest"]["name"] in text

    def test_the_command_without_rates_writes_no_page(self, tmp_path: Path) -> None:
        assert ranks.main(["arithmetic", "--out", str(tmp_path)]) == 0
        assert [path.name for path in (tmp_path / "results").iterdir()] == ["ranks.json"]
