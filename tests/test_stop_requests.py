"""Ctrl-C and requests to terminate are heard at any time, and end a process with one line."""

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import HELPERS, arguments, tiny

import adabest
from adabest import stop_requests
from adabest.errors import Interrupted
from adabest.stop_requests import StopRequests, saving

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows can't send these signals to another process")

PATIENCE = 120
HEARD_WITHIN = 2.0  # seconds, the promise
# As the installed command does it, with a word when Ctrl-C is about to be heard, before anything heavy is imported.
# Shells have what runs in the background ignore Ctrl-C, tests among them.
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from adabest.cli import failures, main
install = failures.Interrupts.install
def announced(interrupts):
    print("up", flush=True)
    install(interrupts)
failures.Interrupts.install = announced
sys.exit(main())
"""
LONG = tiny(rounds=100_000, evaluate_every=1, checkpoint_every=5, threads=1)


@contextmanager
def begun(*given: Any) -> Iterator[subprocess.Popen[str]]:
    """``adabest`` as a process of its own, from the moment on in which it begins to import what is heavy."""
    line = [sys.executable, "-c", PROGRAM, *map(str, given)]
    child = subprocess.Popen(line, cwd=HELPERS, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        yield child
    finally:
        child.kill()
        child.communicate()


def stopped(child: subprocess.Popen[str], number: signal.Signals) -> tuple[float, str]:
    """Sends a signal; returns the seconds until the process ended, and what it said."""
    sent = time.monotonic()
    child.send_signal(number)
    _, said = child.communicate(timeout=PATIENCE)
    return time.monotonic() - sent, said


def wait_for(path: Path, child: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not path.exists() and child.poll() is None:
        assert time.monotonic() < deadline, "the process doesn't get anywhere"
        time.sleep(0.01)


class TestCtrlC:
    def check(self, moment: float, folder: Path) -> None:
        with begun("run", *arguments(**LONG, out=folder)) as child:
            time.sleep(moment)
            _, said = stopped(child, signal.SIGINT)
        assert "Traceback" not in said
        assert child.returncode == 130
        assert said.splitlines()[-1].startswith("adabest: interrupted")

    @pytest.mark.parametrize("moment", [0.0, 0.8])
    def test_one_line_while_modules_are_imported(self, moment: float, tmp_path: Path) -> None:
        self.check(moment, tmp_path / "run")

    @pytest.mark.soak
    @pytest.mark.parametrize("seed", range(40))
    def test_one_line_at_any_moment(self, seed: int, tmp_path: Path) -> None:
        self.check(random.Random(seed).uniform(0, 8), tmp_path / "run")


class TestTermination:
    def test_a_deaf_round_is_ended_at_once(self, tmp_path: Path) -> None:
        folder = tmp_path / "a run"
        settings = tiny(rounds=4, evaluate_every=1, checkpoint_every=2)
        with begun("run", *arguments(**settings, out=folder), "--algorithm", "deaf_runs:Deaf") as child:
            wait_for(folder / "checkpoints" / "round-0000002.json", child)
            time.sleep(0.5)
            seconds, said = stopped(child, signal.SIGTERM)
        assert (child.returncode, seconds < HEARD_WITHIN) == (130, True), (seconds, said)
        assert said.splitlines()[-1] == f"adabest: stopped at once; resume with: adabest resume '{folder}'"
        left = adabest.load(folder)
        assert (left.status, left.round) == ("killed", 2)

    def test_deaf_reading_of_data_is_ended_at_once(self, tmp_path: Path) -> None:
        settings = {**LONG, "dataset": "deaf_runs:slow_stripes"}
        with begun("run", *arguments(**settings, out=tmp_path / "run")) as child:
            time.sleep(3)
            seconds, said = stopped(child, signal.SIGTERM)
        assert (child.returncode, said) == (-signal.SIGTERM, "")
        assert seconds < HEARD_WITHIN
        assert not (tmp_path / "run").exists()

    @pytest.mark.soak
    @pytest.mark.parametrize("seed", range(40))
    def test_heard_in_time_at_any_moment(self, seed: int, tmp_path: Path) -> None:
        folder = tmp_path / "run"
        moments = random.Random(seed)
        many = {**LONG, "dataset": "synthetic,samples=1000000,shape=8", "clients": 200_000, "participation": 0.001}
        large = {**LONG, "dataset": "synthetic,samples=60000,shape=3x32x32", "clients": 10, "model": "cnn", "epochs": 9}
        settings = moments.choice([LONG, many, {**many, "partition": "iid"}, {**large, "batch_size": 4096}])
        with begun("run", *arguments(**settings, out=folder)) as child:
            time.sleep(moments.uniform(0, 25))
            seconds, said = stopped(child, signal.SIGTERM)
        assert seconds < HEARD_WITHIN + 1, said  # a busy machine needs a moment to end a process
        assert child.returncode in (130, -signal.SIGTERM)
        assert "Traceback" not in said
        if folder.is_dir() and (folder / "status.json").is_file():
            assert adabest.load(folder).status in ("interrupted", "killed")


class TestWatch:
    @pytest.fixture
    def exits(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """What the process would have exited with; it has little patience."""
        codes: list[int] = []
        monkeypatch.setattr(stop_requests, "_PATIENCE", 0.1)
        monkeypatch.setattr(stop_requests, "_PATIENCE_WHILE_SAVING", 0.6)
        monkeypatch.setattr(os, "_exit", codes.append)
        return codes

    @staticmethod
    def ask_and_stay_deaf(seconds: float, requests: StopRequests) -> None:
        signal.raise_signal(signal.SIGTERM)
        time.sleep(seconds)
        with pytest.raises(Interrupted):
            requests.heartbeat()

    def test_an_unheard_request_ends_the_process(self, exits: list[int], capfd: pytest.CaptureFixture[str]) -> None:
        with StopRequests(lambda: "outer words") as outer, StopRequests(lambda: "inner words"):
            self.ask_and_stay_deaf(0.4, StopRequests._entered[-1])
            del outer
        assert exits == [130]
        assert capfd.readouterr().err == "adabest: stopped at once; outer words\n"

    def test_a_heard_request_is_given_time(self, exits: list[int]) -> None:
        with StopRequests() as requests:
            self.ask_and_stay_deaf(0, requests)
            time.sleep(0.4)
        assert exits == []

    def test_files_being_saved_are_waited_for(self, exits: list[int]) -> None:
        with StopRequests() as requests:
            with saving():
                signal.raise_signal(signal.SIGTERM)
                time.sleep(0.4)
            assert exits == []
            with pytest.raises(Interrupted):
                requests.heartbeat()

    def test_files_being_saved_are_not_waited_for_without_end(self, exits: list[int]) -> None:
        with StopRequests() as requests, saving():
            self.ask_and_stay_deaf(1.0, requests)
        assert exits == [130]

    def test_ctrl_c_is_no_request_to_terminate(self, exits: list[int]) -> None:
        with StopRequests() as requests:
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.4)
            with pytest.raises(Interrupted):
                requests.heartbeat()
        assert exits == []

    def test_an_unheard_request_is_passed_on_in_the_end(self) -> None:
        heard: list[int] = []
        before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
        try:
            with StopRequests(), StopRequests():
                signal.raise_signal(signal.SIGTERM)
                assert StopRequests._watch is None  # who has a handler of his own decides when the process ends
            assert heard == [signal.SIGTERM]
        finally:
            signal.signal(signal.SIGTERM, before)

    def test_who_was_woken_by_signals_before_still_is(self) -> None:
        receiver, sender = socket.socketpair()
        sender.setblocking(False)
        receiver.settimeout(PATIENCE)
        before = signal.set_wakeup_fd(sender.fileno())
        try:
            with StopRequests() as requests:
                signal.raise_signal(signal.SIGTERM)
                assert receiver.recv(1) == bytes([signal.SIGTERM])
                with pytest.raises(Interrupted):
                    requests.heartbeat()
            assert signal.set_wakeup_fd(before) == sender.fileno()
        finally:
            signal.set_wakeup_fd(before)
            receiver.close()
            sender.close()

    def test_nothing_is_left_behind(self) -> None:
        threads, files = threading.active_count(), len(os.listdir("/dev/fd"))
        for _ in range(5):
            with StopRequests(), StopRequests():
                assert threading.active_count() == threads + 1
        assert (threading.active_count(), len(os.listdir("/dev/fd"))) == (threads, files)
