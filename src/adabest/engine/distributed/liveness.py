"""Liveness of ranks: each writes beats into the job's store and watches those of the others.

A thread writes and reads the beats, so a rank may train for hours without any exchange. Silence counts only while this
process itself looks regularly: one that was frozen and goes on must not accuse the others of its own absence.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from adabest.errors import RankLost

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

_BEATS_PER_DEADLINE = 6
_LONGEST_INTERVAL = 0.5  # seconds between beats; a lost rank is named after about three
_FAREWELL_INTERVAL = 0.02
_FAREWELL = 2.0  # seconds in which the others may leave, too, before the connections close
_LAST_BEAT = 1.0  # seconds in which the thread must end
_LOOK_EVERY = 0.01
_LEFT = b"left"
_LOST = b"lost "


class SteadyClock:
    """A clock that counts seconds only while it is read regularly: of a longer gap, only the first part counts."""

    def __init__(self, longest_gap: float) -> None:
        self._longest_gap = longest_gap
        self._read = time.monotonic()
        self._seconds = 0.0

    def read(self) -> float:
        """The seconds counted so far."""
        now = time.monotonic()
        self._seconds += min(now - self._read, self._longest_gap)
        self._read = now
        return self._seconds


class Liveness:
    """Beats of all ranks of a job, written and read by a thread until ``close``.

    A beat is a number that grows. A rank that leaves writes ``left``; one that gave up on rank 2 writes ``lost 2``, so
    that all ranks name the same one. If rank 0 holds the store, it waits for the others to stop using it.

    Args:
        connect: Makes a connection to the store that no one else uses: a blocked call holds a connection's lock.
        rank: The number of this rank.
        hosts: The names of all ranks' hosts.
        deadline: Seconds after which a silent rank is lost.
        rank_0_holds: Whether the store ends with rank 0.
        store_holder: Where the store is, and who holds it.
    """

    def __init__(
        self,
        connect: Callable[[], "Store"],
        rank: int,
        hosts: Sequence[str],
        deadline: float,
        *,
        rank_0_holds: bool,
        store_holder: str,
    ) -> None:
        self._connect = connect
        self._rank = rank
        self._hosts = hosts
        self._deadline = deadline
        self._rank_0_holds = rank_0_holds
        self._store_holder = store_holder
        self._interval = min(deadline / _BEATS_PER_DEADLINE, _LONGEST_INTERVAL)
        self._store: Store | None = None
        self._beat = 0
        self._last_word = b""
        self._closing = False
        self._wake = threading.Event()
        self._lock = threading.Lock()  # guards what follows
        self._looks = 0
        self._failing = False
        self._unused = False
        self._words = [b""] * len(hosts)
        self._clock = SteadyClock(3 * self._interval)
        self._changed = [0.0] * len(hosts)
        self._silences = [0.0] * len(hosts)
        self._waiting = SteadyClock(self._interval)
        self._looks_judged = 0
        self._looked = 0.0
        self._thread = threading.Thread(target=self._beat_until_closed, name="adabest-liveness", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raises ``RankLost`` if a rank was silent for the deadline, another rank gave up, or the store is gone."""
        waited = self._waiting.read()
        if self._looks != self._looks_judged:
            with self._lock:
                self._looks_judged = self._looks
                words, silences = [*self._words], [*self._silences]
            self._looked = waited
            lost = self._given_up(words)
            if lost is not None:
                raise self._lost(lost, "another rank had given it up")
            # A rank that has left beats no more, and must not hide one that is silent.
            for rank in self._others():
                if words[rank] != _LEFT and silences[rank] > self._deadline:
                    raise self._lost(rank, f"nothing was heard of it for {silences[rank]:.1f} s")
        elif waited - self._looked > self._deadline:
            raise self._store_lost()

    def connection_closed(self, words: str) -> RankLost:
        """The error for a closed connection. Names the rank if its beats have stopped, which takes some beats to tell.

        Args:
            words: What the transport said.
        """
        patience = SteadyClock(self._interval)
        while patience.read() < 4 * self._interval:
            with self._lock:
                heard, silences, failing = [*self._words], [*self._silences], self._failing
            lost = self._given_up(heard)
            if lost is not None:
                return self._lost(lost, "another rank had given it up")
            if failing:
                return self._store_lost()
            left = [rank for rank in self._others() if heard[rank] == _LEFT]
            if left:
                lost_one = self._lost(left[0], "it left the job while this rank waited")
                lost_one.tells_itself = True
                return lost_one
            silent = max(self._others(), key=lambda rank: silences[rank])
            if silences[silent] > 2.5 * self._interval:
                return self._lost(silent, f"its connection closed, and it has been silent for {silences[silent]:.1f} s")
            time.sleep(_LOOK_EVERY)
        self._say(_LEFT)
        return RankLost(f"a connection to another rank closed; which one can't be told ({words})")

    def close(self) -> None:
        """Says farewell, gives the others a moment to leave as well, and ends the thread. Never hangs."""
        self._say(_LEFT)
        until = time.monotonic() + _FAREWELL
        while time.monotonic() < until and not self._may_go():
            time.sleep(_LOOK_EVERY)
        self._closing = True
        self._wake.set()
        self._thread.join(_LAST_BEAT)

    def _others(self) -> list[int]:
        return [rank for rank in range(len(self._hosts)) if rank != self._rank]

    def _given_up(self, words: Sequence[bytes]) -> int | None:
        """The rank that another one has given up."""
        verdicts = [words[rank] for rank in self._others() if words[rank].startswith(_LOST)]
        return int(verdicts[0].removeprefix(_LOST)) if verdicts else None

    def _may_go(self) -> bool:
        """Whether nobody needs this rank any more: all have left, and of a store that is held here, all are done."""
        if not self._thread.is_alive():
            return True
        with self._lock:
            if self._rank == 0 and self._rank_0_holds:
                return self._unused or self._failing
            ended = all(_is_last(word) for word in self._words)
            return ended or self._failing or self._last_word != _LEFT

    def _lost(self, rank: int, why: str) -> RankLost:
        self._say(_LOST + str(rank).encode())
        if rank == self._rank:
            return RankLost(f"this rank, {rank} on {self._hosts[rank]}, was given up by the others: it was silent")
        return RankLost(f"rank {rank} on {self._hosts[rank]} was lost: {why}")

    def _store_lost(self) -> RankLost:
        self._last_word = _LEFT
        with self._lock:
            self._failing = True  # no farewell: the thread may be blocked in a call
        who = f"rank 0 on {self._hosts[0]} was lost: " * self._rank_0_holds
        return RankLost(f"{who}the job's store ({self._store_holder}) doesn't answer")

    def _say(self, word: bytes) -> None:
        """Writes this rank's last word, in place of further beats."""
        self._last_word = self._last_word or word
        self._wake.set()

    def _beat_until_closed(self) -> None:
        while True:
            closing = self._closing
            try:
                store_ends = self._exchange_beats()
                if self._store is not None and (closing or store_ends):
                    # The last use of the store: one that ends before would have torch write pages to stderr.
                    self._store.set(_done_key(self._rank), "")
            except (RuntimeError, RankLost):  # torch's errors of a store are RuntimeErrors
                self._store = None
                store_ends = False
                with self._lock:
                    self._failing = True
            if closing or store_ends:
                self._store = None
                return
            self._wake.wait(_FAREWELL_INTERVAL if self._last_word else self._interval)
            self._wake.clear()

    def _exchange_beats(self) -> bool:
        """Writes a beat and reads all of them; returns whether the store is about to end."""
        if self._store is None:
            self._store = self._connect()
        self._beat += 1
        self._store.set(beat_key(self._rank), self._last_word.decode() or str(self._beat))
        words = self._store.multi_get([beat_key(rank) for rank in range(len(self._hosts))])
        unused = bool(self._last_word) and self._store.check(
            [_done_key(rank) for rank in self._others() if _LOST + str(rank).encode() != self._last_word]
        )
        with self._lock:
            now = self._clock.read()
            for rank, word in enumerate(words):
                if word != self._words[rank]:
                    self._words[rank], self._changed[rank] = word, now
                self._silences[rank] = now - self._changed[rank]
            self._failing = False
            self._unused = unused
            self._looks += 1
        return self._rank != 0 and self._rank_0_holds and _is_last(words[0])


def beat_key(rank: int) -> str:
    """The key of a rank's beat in the store."""
    return f"beat/{rank}"


def _done_key(rank: int) -> str:
    """The key that a rank sets when it uses the store no more."""
    return f"done/{rank}"


def _is_last(word: bytes) -> bool:
    return word == _LEFT or word.startswith(_LOST)
