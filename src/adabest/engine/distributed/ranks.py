"""Ranks: the processes of one torchrun job, and everything that they send each other.

Rank 0 runs the ordinary program and decides everything; the others serve its orders. Orders and answers are JSON, never
pickles. Vectors travel as bytes by torch.distributed: gloo between hosts' memories, or NCCL between GPUs.

Every wait is polled. While it lasts, ``Liveness`` tells whether the others are still there, so a rank that was killed,
froze or was cut off ends the wait with ``RankLost``, however long gloo's own timeout is.
"""

import atexit
import contextlib
import itertools
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, distributed

from adabest.engine.distributed.liveness import Liveness, beat_key
from adabest.engine.distributed.place import Place
from adabest.errors import InputError, RankLost

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

_BACKSTOP = timedelta(hours=24)  # gloo's own timeout; liveness ends a wait much earlier
_SHORTEST_PAUSE, _LONGEST_PAUSE = 50e-6, 2e-3  # seconds between polls
_DESTROYED_WITHIN = 2.0  # seconds
_CONNECT_EVERY = 0.05
# What gloo and sockets say when a peer is gone. Other errors of torch are mistakes in the program.
_GONE = ("connection", "socket", "broken pipe", "timed out", "remote")

_joins = itertools.count()  # a process that joins twice must not read the beats of its first time


class Ranks:
    """The processes of one torchrun job, as seen from one of them.

    All ranks make the same calls in the same order, but for ``transfer``, which only concerns its two ends.

    Attributes:
        rank: The number of this process, from 0.
        size: The number of processes of the job.
        local_rank: The number of this process among those of its node.
        local_size: The number of processes of its node.
        hosts: The names of all ranks' hosts.
        bytes_sent: The bytes of vectors that this rank has addressed to others; a broadcast counts once per receiver.
        bytes_received: The bytes of vectors that others have addressed to this rank.
        seconds: The time spent in exchanges of vectors, with the time spent waiting for others.
        while_waiting: Called now and then while this rank waits for others; must not raise, unless the job is to end.
    """

    def __init__(self, place: Place, hosts: Sequence[str], liveness: Liveness | None) -> None:
        """For ``join``. ``liveness`` is None if this is the only rank."""
        self.rank = place.rank
        self.size = place.size
        self.local_rank = place.local_rank
        self.local_size = place.local_size
        self.hosts = tuple(hosts)
        self.bytes_sent = 0
        self.bytes_received = 0
        self.seconds = 0.0
        self.while_waiting: Callable[[], None] = _nothing
        self._liveness = liveness
        self._device_group: distributed.ProcessGroup | None = None
        self._broken = False
        self._lost: RankLost | None = None

    @classmethod
    def join(cls, environment: Mapping[str, str] = os.environ, deadline: float = 60.0) -> "Ranks":
        """Joins the job that torchrun's environment variables tell, and waits for all ranks.

        Args:
            environment: The environment variables.
            deadline: Seconds in which all ranks must come, and after which a silent one is lost.

        Raises:
            InputError: If the variables lack or contradict each other, or this process belongs to a group already.
            RankLost: If not all ranks came in time.
        """
        place = Place.of(environment)
        if not distributed.is_available():
            raise InputError("this build of torch has no torch.distributed; install one that has, or run one process")
        if distributed.is_initialized():
            raise InputError(
                "a process group of torch.distributed is initialised already; "
                "destroy it (torch.distributed.destroy_process_group()) before a run joins its ranks"
            )
        if place.size == 1:
            return cls(place, [socket.gethostname()], None)
        until = time.monotonic() + deadline
        name = f"adabest/{place.restart}/{next(_joins)}"
        store = _store(name, place, deadline, hold=not place.agent_store and place.rank == 0)
        hosts = _arrive(store, place, deadline, until)
        try:
            distributed.init_process_group(
                "gloo", store=store, rank=place.rank, world_size=place.size, timeout=timedelta(seconds=deadline)
            )
        except RuntimeError as error:
            raise RankLost(f"a rank was lost while the ranks connected to each other ({_first_line(error)})") from error
        _group().set_timeout(_BACKSTOP)
        liveness = Liveness(
            lambda: _store(name, place, deadline, hold=False),
            place.rank,
            hosts,
            deadline,
            rank_0_holds=not place.agent_store,
            store_holder=place.store_holder,
        )
        ranks = cls(place, hosts, liveness)
        atexit.register(ranks.leave)  # threads of gloo that outlive the interpreter abort the process
        return ranks

    def use_device(self, device: torch.device, backend: Literal["gloo", "nccl"]) -> None:
        """Says how CUDA tensors travel from now on. All ranks call it; nothing changes for CPU tensors.

        Args:
            device: This rank's device.
            backend: ``nccl`` sends them directly, ``gloo`` through the host's memory.

        Raises:
            InputError: If NCCL is asked for without a CUDA device.
        """
        if backend == "gloo":
            self._device_group = None
            return
        if device.type != "cuda" or not torch.cuda.is_available() or not distributed.is_nccl_available():
            raise InputError(f"NCCL needs a CUDA device, and this rank has {device}; use gloo")
        if self._device_group is not None:
            return
        torch.cuda.set_device(device)
        if self.size == 1:  # a group of one, so that a single GPU takes the same way as several
            from torch._C._distributed_c10d import HashStore  # a build without torch.distributed lacks it

            distributed.init_process_group("nccl", store=HashStore(), rank=0, world_size=1, timeout=_BACKSTOP)
            self._device_group = _group()
            return
        # The making of a group blocks without polls, so all ranks should be there.
        self._exchange(lambda: distributed.barrier(async_op=True))
        self._device_group = distributed.new_group(backend="nccl", timeout=_BACKSTOP)

    def tell(self, order: Mapping[str, Any]) -> None:
        """Sends an order from rank 0 to all others, which ``hear`` it."""
        text = _to_bytes(order)
        if self.size > 1:
            self._broadcast(torch.tensor([len(text)]))
            self._broadcast(text)

    def hear(self) -> dict[str, Any]:
        """The next order of rank 0. Waits for it without limit of time, as long as rank 0 lives."""
        length = torch.zeros(1, dtype=torch.int64)
        self._broadcast(length)
        text = torch.empty(int(length), dtype=torch.uint8)
        self._broadcast(text)
        order: dict[str, Any] = _from_bytes(text)
        return order

    def collect(self, own: Any) -> list[Any] | None:
        """A JSON value of every rank, at rank 0; None elsewhere. Floats arrive exactly, NaN and infinities, too."""
        text = _to_bytes(own)
        if self.size == 1:
            return [_from_bytes(text)]
        ones = [1] * self.size if self.rank == 0 else [0] * self.size
        lengths = self._all_to_all(torch.tensor([len(text)]), self._to_zero(1), ones)
        sizes = [int(length) for length in lengths] if self.rank == 0 else [0] * self.size
        texts = self._all_to_all(text, self._to_zero(len(text)), sizes)
        return [_from_bytes(part) for part in torch.split(texts, sizes)] if self.rank == 0 else None

    def broadcast(self, tensor: Tensor) -> None:
        """Sends a tensor of rank 0 to all others, into their tensor of the same shape and dtype."""
        if self.size == 1 or not tensor.numel():
            return
        with self._timed():
            parcel = self._parcel(tensor)
            self._broadcast(parcel)
            if self.rank:
                self.bytes_received += parcel.numel()
                _unpack(parcel, tensor)
            else:
                self.bytes_sent += parcel.numel() * (self.size - 1)

    def swap(self, outgoing: Sequence[Tensor], incoming_sizes: Sequence[int], like: Tensor) -> list[Tensor]:
        """Sends one vector to every rank, and receives one from each.

        Args:
            outgoing: The vectors, by receiving rank; all of one dtype.
            incoming_sizes: The numbers of elements to be received, by sending rank.
            like: A tensor whose dtype and device are those of all vectors.

        Returns:
            The vectors received, by sending rank. With one rank, that is the outgoing vector itself.
        """
        if self.size == 1 and not (self._device_group is not None and like.is_cuda):
            return [*outgoing]
        with self._timed():
            width = like.element_size()
            parcel = self._parcel(torch.cat([vector.detach() for vector in outgoing]).to(like.dtype))
            sent = [vector.numel() * width for vector in outgoing]
            received = [size * width for size in incoming_sizes]
            got = self._all_to_all(parcel, sent, received)
            self.bytes_sent += sum(sent) - sent[self.rank]
            self.bytes_received += sum(received) - received[self.rank]
            return [*torch.split(got.view(like.dtype).to(like.device), [*incoming_sizes])]

    def gather(self, own: Tensor, sizes: Sequence[int]) -> list[Tensor] | None:
        """A vector of every rank, at rank 0; None elsewhere.

        Args:
            own: This rank's vector.
            sizes: The numbers of elements, by rank; only rank 0's count.
        """
        nothing = [own[:0]] * (self.size - 1)
        got = self.swap([own, *nothing], sizes if self.rank == 0 else [0] * self.size, own)
        return got if self.rank == 0 else None

    def deal(self, parts: Sequence[Tensor] | None, size: int, like: Tensor) -> Tensor:
        """Sends one vector from rank 0 to every rank.

        Args:
            parts: The vectors, by receiving rank; None unless this is rank 0.
            size: The number of elements that this rank gets.
            like: A tensor whose dtype and device are those of all vectors.

        Returns:
            This rank's vector.
        """
        outgoing = parts if parts is not None else [torch.empty(0, dtype=like.dtype, device=like.device)] * self.size
        return self.swap(outgoing, [size, *[0] * (self.size - 1)], like)[0]

    def transfer(self, sends: Sequence[tuple[Tensor, int]], receives: Sequence[tuple[Tensor, int]]) -> None:
        """Sends tensors to single ranks and receives others, in order, all at once.

        Args:
            sends: Tensors with the rank that each goes to.
            receives: Tensors with the rank that each comes from; they are filled. Between two ranks, the first that is
                sent is the first that is received, with as many bytes. A rank may send to itself.
        """
        own = [tensor for tensor, rank in sends if rank == self.rank]
        for source, (target, _) in zip(own, [pair for pair in receives if pair[1] == self.rank], strict=True):
            target.copy_(source)
        outgoing = [(self._parcel(tensor), rank) for tensor, rank in sends if rank != self.rank and tensor.numel()]
        targets = [(tensor, rank) for tensor, rank in receives if rank != self.rank and tensor.numel()]
        incoming = [(self._parcel(tensor), rank) for tensor, rank in targets]
        if not outgoing and not incoming:
            return
        with self._timed():
            self._point_to_point(outgoing, incoming)
            for (parcel, _), (tensor, _) in zip(incoming, targets, strict=True):
                _unpack(parcel, tensor)
            self.bytes_sent += sum(parcel.numel() for parcel, _ in outgoing)
            self.bytes_received += sum(parcel.numel() for parcel, _ in incoming)

    def give_up(self, reason: BaseException) -> None:
        """Ends all exchange with the others, who are waiting for what this rank won't send any more.

        From now on, whoever tries gets ``RankLost``. The others find out when this rank leaves.

        Args:
            reason: What has stopped this rank.
        """
        self._broken = True
        if self._lost is None:
            self._lost = RankLost(f"this rank stopped in the middle of an exchange ({type(reason).__name__})")

    def leave(self) -> None:
        """Leaves the job. Takes some seconds at most, even if others are dead."""
        if self._liveness is None and self._device_group is None:
            return
        atexit.unregister(self.leave)
        if self._liveness is not None:
            self._liveness.close()
            self._liveness = None
        self._device_group = None
        # In a thread, because an operation that never ends could block the destruction; the process may end meanwhile.
        ending = threading.Thread(target=_destroy, args=(self._broken,), name="adabest-leave", daemon=True)
        ending.start()
        ending.join(_DESTROYED_WITHIN)

    def _to_zero(self, length: int) -> list[int]:
        """How much goes to every rank if all goes to rank 0."""
        return [length, *[0] * (self.size - 1)]

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - began

    def _parcel(self, tensor: Tensor) -> Tensor:
        """The bytes of a tensor where the transport wants them; a view if they are there already."""
        flat = tensor.detach().contiguous().reshape(-1)
        return (flat if self._device_group is not None else flat.cpu()).view(torch.uint8)

    def _group_for(self, tensor: Tensor) -> distributed.ProcessGroup | None:
        """The group that a tensor travels in; None for the default one."""
        return self._device_group if tensor.is_cuda else None

    def _broadcast(self, tensor: Tensor) -> None:
        self._exchange(lambda: distributed.broadcast(tensor, 0, group=self._group_for(tensor), async_op=True))

    def _all_to_all(self, outgoing: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
        """Sends slices of one tensor to all ranks; returns what all of them sent, joined."""
        incoming = outgoing.new_empty(sum(received))
        self._exchange(
            lambda: distributed.all_to_all_single(
                incoming, outgoing, [*received], [*sent], group=self._group_for(outgoing), async_op=True
            )
        )
        return incoming

    def _point_to_point(self, outgoing: Sequence[tuple[Tensor, int]], incoming: Sequence[tuple[Tensor, int]]) -> None:
        if any(parcel.is_cuda for parcel, _ in (*outgoing, *incoming)):
            operations = [
                distributed.P2POp(operation, tensor, rank, self._device_group)
                for operation, pairs in ((distributed.isend, outgoing), (distributed.irecv, incoming))
                for tensor, rank in pairs
            ]
            with self._naming_the_lost():
                for work in distributed.batch_isend_irecv(operations):
                    self._poll(work.is_completed)
                    work.wait()
            return
        with self._naming_the_lost():
            works = [distributed.irecv(tensor, rank) for tensor, rank in incoming]
            works += [distributed.isend(tensor, rank) for tensor, rank in outgoing]
            waiting = _Waiting([work for work in works if work is not None])
            self._poll(waiting.is_completed)
            waiting.result()

    def _exchange(self, start: Callable[[], distributed.Work | None]) -> None:
        """Runs one operation of torch.distributed, and polls until it has ended."""
        with self._naming_the_lost():
            work = start()
            if work is not None:
                self._poll(work.is_completed)
                work.wait()

    def _poll(self, is_completed: Callable[[], bool]) -> None:
        """Waits until it is completed; raises ``RankLost`` if a rank is lost meanwhile."""
        pause = _SHORTEST_PAUSE
        while not is_completed():
            if self._liveness is not None:
                self._liveness.check()
            self.while_waiting()
            time.sleep(pause)
            pause = min(1.2 * pause, _LONGEST_PAUSE)

    @contextlib.contextmanager
    def _naming_the_lost(self) -> Iterator[None]:
        """While entered, a closed connection becomes a ``RankLost`` that names the rank.

        Once a rank is lost, nothing is exchanged any more: whoever tries gets the same error at once.
        """
        if self._lost is not None:
            raise self._lost
        try:
            yield
        except RankLost as lost:
            self._lost, self._broken = lost, True
            raise
        except RuntimeError as error:
            self._broken = True
            if self._liveness is None or not any(word in str(error).lower() for word in _GONE):
                raise
            self._lost = self._liveness.connection_closed(_first_line(error))
            raise self._lost from error
        except BaseException:
            self._broken = True  # an operation is under way that may never end
            raise


def _nothing() -> None:
    """The default of ``while_waiting``."""


class _Waiting:
    """A thread that waits for point-to-point operations: gloo's never say that they are completed."""

    def __init__(self, works: Sequence[distributed.Work]) -> None:
        self._works = works
        self._error: RuntimeError | None = None
        self._ended = threading.Event()
        threading.Thread(target=self._wait, name="adabest-transfer", daemon=True).start()

    def is_completed(self) -> bool:
        """Whether all of them have ended, or one has failed."""
        return self._ended.is_set()

    def result(self) -> None:
        """Raises the error that ended the waiting, if one did."""
        if self._error is not None:
            raise self._error

    def _wait(self) -> None:
        try:
            for work in self._works:
                work.wait(_BACKSTOP)  # without it, the timeout of joining would count
        except RuntimeError as error:
            self._error = error
        self._ended.set()


def _store(name: str, place: Place, deadline: float, *, hold: bool) -> "Store":
    """A connection of its own to the job's store, for keys under a name; if ``hold``, this process holds the store."""
    from torch._C._distributed_c10d import PrefixStore, TCPStore  # a build without torch.distributed lacks them

    if not hold:
        _wait_for_store(place, deadline)
    try:
        store = TCPStore(
            place.address,
            place.port,
            place.size,
            is_master=hold,
            timeout=timedelta(seconds=deadline),
            wait_for_workers=False,
            multi_tenant=True,
        )
    except RuntimeError as error:
        if not hold:
            raise RankLost(f"the job's store ({place.store_holder}) can't be used ({_first_line(error)})") from error
        raise InputError(
            f"rank 0 can't listen on MASTER_PORT={place.port} ({_first_line(error)}); choose a free port"
        ) from error
    return PrefixStore(name, store)


def _wait_for_store(place: Place, deadline: float) -> None:
    """Waits until someone listens at the store's address: torch's own waiting writes pages to stderr."""
    until = time.monotonic() + deadline
    while True:
        try:
            socket.create_connection((place.address, place.port), timeout=deadline).close()
        except OSError as error:
            if time.monotonic() > until:
                raise RankLost(
                    f"the job's store ({place.store_holder}) couldn't be reached within {deadline:g} s ({error})"
                ) from error
            time.sleep(_CONNECT_EVERY)
        else:
            return


def _arrive(store: "Store", place: Place, deadline: float, until: float) -> list[str]:
    """Waits for all ranks; returns the names of their hosts."""
    store.set(beat_key(place.rank), "0")
    store.set(_host_key(place.rank), socket.gethostname())
    missing = [*range(place.size)]
    while missing := [rank for rank in missing if not store.check([_host_key(rank)])]:
        if time.monotonic() > until:
            raise RankLost(
                f"{place.size - len(missing)} of {place.size} ranks came within {deadline:g} s; "
                f"missing: {', '.join(map(str, missing))}. Start all nodes of the job within that time"
            )
        time.sleep(_CONNECT_EVERY)
    return [host.decode() for host in store.multi_get([_host_key(rank) for rank in range(place.size)])]


def _host_key(rank: int) -> str:
    return f"host/{rank}"


def _group() -> distributed.ProcessGroup:
    """The default group, which must be there."""
    group = distributed.group.WORLD
    assert group is not None
    return group


def _destroy(broken: bool) -> None:
    if broken:
        _group().abort()  # ends operations under way, which destruction would wait for
    distributed.destroy_process_group()


def _unpack(parcel: Tensor, tensor: Tensor) -> None:
    """Puts bytes back into the tensor that ``_parcel`` was made of, unless they are its own."""
    if parcel.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(parcel.view(tensor.dtype).view(tensor.shape))


def _to_bytes(value: Any) -> Tensor:
    """A JSON value as text, in bytes."""
    return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)


def _from_bytes(text: Tensor) -> Any:
    return json.loads(text.numpy().tobytes())


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
