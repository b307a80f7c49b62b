"""The service of ranks: does what rank 0 orders, on every rank, rank 0 included.

An order is a JSON object. All ranks carry it out at the same time, and exchange vectors at the same points of it. An
exception at one rank during its own work is told to rank 0 at the next of these points, and by rank 0 to all others, so
that no rank waits for another that has given up.
"""

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from adabest.engine.distributed.phase_exchange import Order, PhaseExchange, PhaseReport, joined_report, spread
from adabest.engine.distributed.ranks import Ranks
from adabest.engine.distributed.run_share import RunShare
from adabest.engine.estimate_norms import estimate_norms
from adabest.engine.evaluation import EvaluationRequest
from adabest.engine.interface import Engine, server_context
from adabest.engine.reduction import ReducedReplies
from adabest.errors import InputError, Interrupted, RankFailed

Judge = Callable[[list[PhaseReport]], Sequence[Sequence[bool]]]
"""Says of each client of each run's phase whether its reply is accepted."""


class RankService:
    """Carries out orders on one rank.

    Attributes:
        ranks: The ranks.
        shares: This rank's shares of runs, by the run's number.
        engine: The engine that trains the clients of this rank.
        agreed_failure: The exception that ended the last order at this rank, if all ranks know that it has ended. After
            any other exception the ranks are out of step.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.shares: dict[int, RunShare] = {}
        self.engine: Engine | None = None
        self.agreed_failure: Exception | None = None

    def obey(self, order: Order) -> None:
        """Carries out an order at a rank other than 0."""
        match order["do"]:
            case "exchange":
                self.exchange(order)
            case "evaluate":
                self.evaluate(order)
            case "norms":
                self.estimate_norms(order)
            case "scored":
                self.scored_sum(order)
            case "fetch":
                self.fetch(order)
            case "put":
                self.put(order)
            case "tidy":
                pass
            case other:
                raise ValueError(f"there is no order {other!r}")

    def tidy(self, order: Order) -> None:
        """Keeps and forgets what an order says, before anything else. The memory was reserved before."""
        self.agreed_failure = None  # its traceback keeps much alive
        for number, homes, scored in order.get("keep", []):
            self.shares[number].keep(dict(homes), scored=scored)
        for number in order.get("drop", []):
            self.shares.pop(number, None)

    def exchange(
        self, order: Order, messages: Sequence[Any] = (), judge: Judge | None = None
    ) -> list[tuple[PhaseReport, ReducedReplies | None]] | None:
        """A phase of a round of several runs.

        Args:
            order: What clients train where.
            messages: The messages to the clients of each run, at rank 0.
            judge: Judges the replies, at rank 0.

        Returns:
            At rank 0, for each run, what it is told of the clients, and the accepted replies averaged, or None if there
            are none.
        """
        asked = order["requests"]
        exchange = PhaseExchange(self.ranks, asked, [self.shares[one["run"]] for one in asked])
        exchange.begin(messages)
        joined: list[PhaseReport] = []

        def verdicts_and_numbers(told: list[Any]) -> Order:
            assert judge is not None, "rank 0 judges"
            for number, one in enumerate(asked):
                joined.append(joined_report([own[number] for own in told], one["clients"]))
            return {"verdicts": judge(joined), "numbers": [report.numbers for report in joined]}

        agreed = self.agree(lambda: exchange.train(self._engine()), verdicts_and_numbers)
        whole = exchange.end(agreed["numbers"], agreed["verdicts"])
        return None if whole is None else list(zip(joined, whole, strict=True))

    def evaluate(self, order: Order, models: Sequence[Tensor] = ()) -> list[Any] | None:
        """Judges models, each at the rank that the order names; at rank 0, the scores of each.

        Args:
            order: Which rank judges which model of which run, on the test set or on validation clients.
            models: The models, at rank 0.
        """
        mine, receives = [], []
        for unit in order["units"]:
            if unit["rank"] == self.ranks.rank:
                own = torch.empty_like(self.shares[unit["run"]].like)
                mine.append((unit, own))
                receives.append((own, 0))
        sends = [(model, unit["rank"]) for model, unit in zip(models, order["units"], strict=False)]
        self.ranks.transfer(sends, receives)

        def judged() -> list[Any]:
            requests = [self._evaluation_request(unit, model) for unit, model in mine]
            results = self._engine().evaluate(requests) if requests else []
            scores = [
                result.validation if unit["validates"] else result.tests["model"]
                for (unit, _), result in zip(mine, results, strict=True)
            ]
            return [
                [unit["number"], None if own is None else list(own)]
                for (unit, _), own in zip(mine, scores, strict=True)
            ]

        told = self.collect(judged)
        return None if told is None else [scores for _, scores in sorted(one for own in told for one in own)]

    def estimate_norms(self, order: Order, message: Any = None) -> dict[int, float] | None:
        """‖h_i‖ of the clients of a run, at rank 0, by client."""
        share = self.shares[order["run"]]
        (sent,) = spread(self.ranks, [order], [share], [message])
        mine = [client for client, home in order["homes"] if home == self.ranks.rank]

        def norms() -> list[Any]:
            context = server_context(share.parts.training, order["round"], seed=order["seed"])
            request = share.request(share.parts.algorithm.phases[0], mine, sent, context)
            found = estimate_norms(request).tolist() if mine else []
            return [[client, norm] for client, norm in zip(mine, found, strict=False)]  # an algorithm may have none

        told = self.collect(norms)
        return None if told is None else {client: norm for own in told for client, norm in own}

    def scored_sum(self, order: Order) -> Tensor | None:
        """The scored model's sum of a run, at rank 0; of the round that is prepared, or of the last that was kept."""
        share = self.shares[order["run"]]
        own = share.next_scored if order["prepared"] else share.scored
        assert own is not None
        parts = self.ranks.gather(own.total, share.slices.widths())
        return None if parts is None else torch.cat(parts)

    def fetch(self, order: Order) -> Tensor | None:
        """A column of what some clients of a run keep, at rank 0, ``[clients, …]``."""
        share, clients = self.shares[order["run"]], order["clients"]
        if order["field"] is None:
            width = share.slices.width(self.ranks.rank)
            rows = [share.kept_model(client) for client in clients]
            own = torch.stack(rows) if rows else share.like.new_empty(0, width)
            parts = self.ranks.gather(own.flatten(), [len(clients) * each for each in share.slices.widths()])
            return None if parts is None else torch.cat([part.view(len(clients), -1) for part in parts], dim=1)
        example = share.example(order["field"])
        homes = order["homes"]
        mine = [
            share.kept_state(c, order["field"])
            for c, home in zip(clients, homes, strict=True)
            if home == self.ranks.rank
        ]
        own = torch.stack(mine).flatten() if mine else example.new_empty(0)
        parts = self.ranks.gather(own, [homes.count(rank) * example.numel() for rank in range(self.ranks.size)])
        if parts is None:
            return None
        rows_of = [iter(part.view(-1, *example.shape)) for part in parts]
        return torch.stack([next(rows_of[home]) for home in homes])

    def put(self, order: Order, columns: Mapping[str, Tensor] | None = None, total: Tensor | None = None) -> None:
        """Shares out what clients of a run keep, as it was stored.

        Args:
            order: The clients, their homes, and what is shared out.
            columns: Their states' fields by name, and their models as ``model``, at rank 0.
            total: The scored model's sum, at rank 0.
        """
        share, ranks, clients = self.shares[order["run"]], self.ranks, order["clients"]
        fields = {name: self._deal_states(order, name, columns) for name in order["fields"]}
        models = None
        if order["models"]:
            parts = None
            if columns is not None:
                rows = columns["model"].to(share.like.device)
                parts = [rows[:, share.slices.part(rank)].flatten() for rank in range(ranks.size)]
            own = ranks.deal(parts, len(clients) * share.slices.width(ranks.rank), share.like)
            models = own.view(len(clients), -1)
        if order["scored"] is not None:
            like = share.like.new_empty(0, dtype=torch.float64)
            parts = None if total is None else [total[share.slices.part(rank)] for rank in range(ranks.size)]
            share.put_scored(ranks.deal(parts, share.slices.width(ranks.rank), like).clone(), *order["scored"])
        elif order["unscored"]:
            share.scored = share.next_scored = None
        here = [client for client, home in zip(clients, order["homes"], strict=True) if home == ranks.rank]
        self.collect(lambda: share.put(here, fields, clients, models))  # there may be no memory left

    def _deal_states(self, order: Order, name: str, columns: Mapping[str, Tensor] | None) -> Tensor:
        """Sends a field of clients' states to where they live; gives this rank's rows, ``[own clients, …]``."""
        share, ranks, homes = self.shares[order["run"]], self.ranks, order["homes"]
        example = share.example(name)
        parts = None
        if columns is not None:
            rows = columns[name].to(example.device)
            places = [[place for place, home in enumerate(homes) if home == rank] for rank in range(ranks.size)]
            parts = [rows[own].flatten() for own in places]
        return ranks.deal(parts, homes.count(ranks.rank) * example.numel(), example).view(-1, *example.shape)

    def _engine(self) -> Engine:
        assert self.engine is not None, "an engine is made before the first order that needs it"
        return self.engine

    def collect(self, work: Callable[[], Any]) -> list[Any] | None:
        """Does this rank's own work; returns the results of all ranks at rank 0, and None elsewhere.

        Args:
            work: Returns a JSON value.

        Raises:
            Exception: The failure of this rank, or of another one.
        """
        told: list[Any] = []

        def answer(found: list[Any]) -> Order:
            told.extend(found)
            return {}

        self.agree(work, answer)
        return told if self.ranks.rank == 0 else None

    def agree(self, work: Callable[[], Any], answer: Callable[[list[Any]], Order]) -> Order:
        """Does this rank's own work, tells rank 0 the result, and all ranks what follows from the results.

        Args:
            work: Returns a JSON value.
            answer: What follows from the results of all ranks, at rank 0.

        Raises:
            Exception: The failure of this rank, or of another one.
        """
        failure: Exception | None = None
        own: Any = None
        try:
            own = work()
        except Exception as error:
            failure = error
        facts = {"failure": None if failure is None else _told(failure), "found": own}
        collected = self.ranks.collect(facts)
        if collected is None:
            agreed = self.ranks.hear()
        else:
            failures = [[rank, one["failure"]] for rank, one in enumerate(collected) if one["failure"] is not None]
            agreed = {"failures": failures}
            try:
                agreed |= {} if failures else answer([one["found"] for one in collected])
            except Exception as error:
                failure, agreed = error, {"failures": [[0, _told(error)]]}
            self.ranks.tell(agreed)
        if agreed["failures"]:
            self.agreed_failure = self._worst(failure, agreed["failures"])
            raise self.agreed_failure
        return agreed

    def _worst(self, own: Exception | None, failures: Sequence[Any]) -> Exception:
        """The exception of an order that failed at some ranks. An interruption counts if there is nothing else."""
        if own is not None and (not isinstance(own, Interrupted) or all(_is_interruption(one) for _, one in failures)):
            return own
        rank, failure = min(failures, key=lambda one: (_is_interruption(one[1]), one[0]))
        if _is_interruption(failure):
            return Interrupted(failure["words"])
        where = f"rank {rank} on {self.ranks.hosts[rank]}"
        if failure["kind"] == InputError.__name__:
            return InputError(f"{where}: {failure['words']}")
        return RankFailed(f"an error at {where}:\n{failure['words']}")

    def _evaluation_request(self, unit: Order, model: Tensor) -> EvaluationRequest:
        task = self.shares[unit["run"]].parts.task
        if unit["validates"]:
            return EvaluationRequest(task, {}, model)
        return EvaluationRequest(task, {"model": model}, None)


def _told(failure: Exception) -> dict[str, str]:
    """A failure for rank 0, in words."""
    kind = next((kind for kind in (Interrupted, InputError) if isinstance(failure, kind)), None)
    words = str(failure) if kind is not None else "".join(traceback.format_exception(failure)).rstrip()
    return {"kind": "" if kind is None else kind.__name__, "words": words}


def _is_interruption(failure: Mapping[str, str]) -> bool:
    return failure["kind"] == Interrupted.__name__
