"""The service of ranks: does what rank 0 orders, on every rank, rank 0 included.

An order is a JSON object. All ranks carry it out at the same time, and exchange vectors at the same points of it. An
exception at one rank during its own work is reported to rank 0 at the next of these points, so that no rank waits for
another that has given up.
"""

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from adabest.algorithms.base import Work
from adabest.algorithms.forms import forms_of
from adabest.engine.distributed.parcels import packed, packed_length, unpacked
from adabest.engine.distributed.ranks import Ranks
from adabest.engine.distributed.run_share import Phase, RunShare
from adabest.engine.estimate_norms import estimate_norms
from adabest.engine.evaluation import EvaluationRequest
from adabest.engine.gate import Columns, inspect
from adabest.engine.gate_rules import NormLimit
from adabest.engine.interface import Answers, ClientScores, Engine, Request, server_context
from adabest.engine.reduction import ReducedReplies, reduce_replies
from adabest.errors import InputError, Interrupted, RankFailed

T = TypeVar("T")
Order = dict[str, Any]
Judge = Callable[["list[PhaseReport]"], Sequence[Sequence[bool]]]
"""Says of each client of each phase whether its reply is accepted."""


class PhaseReport(NamedTuple):
    """What rank 0 is told of the clients of a phase, in the order of the request.

    Attributes:
        facts: The facts by which replies are judged, a row a client.
        numbers: The numbers in their replies, by name.
        steps: The number of local steps that each made.
        scores: How their training went; none in a phase without training.
        faults: What is wrong with the form of replies, by client.
    """

    facts: list[list[float]]
    numbers: dict[str, list[float]]
    steps: list[int]
    scores: list[ClientScores]
    faults: dict[int, str]


class RankService:
    """Carries out orders on one rank.

    Attributes:
        ranks: The ranks.
        shares: This rank's shares of runs, by the run's number.
        engine: The engine that trains the clients of this rank.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.shares: dict[int, RunShare] = {}
        self.engine: Engine | None = None

    def obey(self, order: Order) -> None:
        """Carries out an order at a rank other than 0."""
        self.tidy(order)
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
        """Keeps and forgets what the order says, before anything else."""
        for number, homes, scored in order.get("keep", []):
            self.shares[number].keep(dict(homes), scored=scored)
        for number in order.get("drop", []):
            self.shares.pop(number, None)

    def exchange(
        self, order: Order, messages: Sequence[Any] = (), judge: Judge | None = None
    ) -> list[tuple[PhaseReport, list[bool], ReducedReplies | None]] | None:
        """A phase of a round of several runs.

        Args:
            order: What clients train where.
            messages: The messages to the clients of each run, at rank 0.
            judge: Judges the replies, at rank 0.

        Returns:
            At rank 0, for each run, what it is told of the clients, whose replies are accepted, and these averaged, or
            None if there are none.
        """
        asked = order["requests"]
        shares = [self.shares[one["run"]] for one in asked]
        for one, share in zip(asked, shares, strict=True):
            if one["phase"] == 0:
                share.begin_round()
        sent = self._spread(asked, shares, messages)
        self._move(asked, shares)
        requests = [self._request(*each) for each in zip(asked, shares, sent, strict=True)]
        columns = [Columns.of(share.parts.algorithm, one["phase"], _limit(one)) for one, share in _pairs(asked, shares)]
        phases: list[Phase] = []
        failure: Exception | None = None
        reports: list[Any] = []
        try:
            phases = self._train(asked, shares, requests)
            reports = [
                _report(phase, request, wanted)
                for phase, request, wanted in zip(phases, requests, columns, strict=True)
            ]
        except Exception as error:
            failure = error
        joined: list[PhaseReport] = []

        def verdicts_and_numbers(told: list[Any]) -> Order:
            assert judge is not None
            joined.extend(_joined([own[number] for own in told], one) for number, one in enumerate(asked))
            return {"verdicts": judge(joined), "numbers": [report.numbers for report in joined]}

        agreed = self._agree(failure, reports, verdicts_and_numbers)
        verdicts, numbers = agreed["verdicts"], agreed["numbers"]
        received = self._swap(asked, shares, phases, requests)
        reduced = [
            self._reduce(one, share, vectors, own_numbers, mask)
            for one, share, (vectors, _), own_numbers, mask in zip(
                asked, shares, received, numbers, verdicts, strict=True
            )
        ]
        for one, share, request, (_, models), mask in zip(asked, shares, requests, received, verdicts, strict=True):
            if models is not None:
                share.prepare(one["cohort"], one["clients"], models, request.message.cloud, mask)
        whole = self._gather_means(asked, shares, reduced)
        return None if whole is None else list(zip(joined, verdicts, whole, strict=True))

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
        found: list[Any] = []
        failure: Exception | None = None
        try:
            requests = [self._evaluation_request(unit, model) for unit, model in mine]
            results = self._engine().evaluate(requests) if requests else []
            for (unit, _), result in zip(mine, results, strict=True):
                scores = result.validation if unit["validates"] else result.tests["model"]
                found.append([unit["number"], None if scores is None else list(scores)])
        except Exception as error:
            failure = error
        told = self.found(failure, found)
        return None if told is None else [scores for _, scores in sorted(one for own in told for one in own)]

    def estimate_norms(self, order: Order, message: Any = None) -> dict[int, float] | None:
        """‖h_i‖ of the clients of a run, at rank 0, by client."""
        share = self.shares[order["run"]]
        (sent,) = self._spread([order], [share], [message])
        mine = [client for client, home in order["homes"] if home == self.ranks.rank]
        found: list[Any] = []
        failure: Exception | None = None
        try:
            context = server_context(share.parts.training, order["round"])
            request = share.request(share.parts.algorithm.phases[0], mine, sent, context)
            norms = estimate_norms(request) if mine else torch.empty(0)
            found = [[client, norm] for client, norm in zip(mine, norms.tolist(), strict=False)]
        except Exception as error:
            failure = error
        told = self.found(failure, found)
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
        example = getattr(share.parts.algorithm.client_init(share.like), order["field"])
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
            columns: The states' fields by name, and the models under None's name, at rank 0.
            total: The scored model's sum, at rank 0.
        """
        share, ranks = self.shares[order["run"]], self.ranks
        clients, homes = order["clients"], order["homes"]
        here = [place for place, home in enumerate(homes) if home == ranks.rank]
        fresh = share.parts.algorithm.client_init(share.like)
        fields = {}
        for name in order["fields"]:
            example = getattr(fresh, name)
            parts = None
            if columns is not None:
                rows = columns[name].to(example.device)
                parts = [rows[[p for p, h in enumerate(homes) if h == rank]].flatten() for rank in range(ranks.size)]
            own = ranks.deal(parts, len(here) * example.numel(), example)
            fields[name] = own.view(-1, *example.shape)
        if fields and here:
            share.put_states([clients[place] for place in here], fields)
        if order["models"]:
            parts = None
            if columns is not None:
                rows = columns[""].to(share.like.device)
                parts = [rows[:, share.slices.part(rank)].flatten() for rank in range(ranks.size)]
            own = ranks.deal(parts, len(clients) * share.slices.width(ranks.rank), share.like)
            share.put_models(clients, own.view(len(clients), -1))
        if order["scored"] is not None:
            like = share.like.new_empty(0, dtype=torch.float64)
            parts = None if total is None else [total[share.slices.part(rank)] for rank in range(ranks.size)]
            own = ranks.deal(parts, share.slices.width(ranks.rank), like)
            share.put_scored(own.clone(), *order["scored"])
        elif order["unscored"]:
            share.scored = share.next_scored = None

    def _engine(self) -> Engine:
        assert self.engine is not None, "an engine is made before the first order that needs it"
        return self.engine

    def _agree(self, failure: Exception | None, own: Any, answer: Callable[[list[Any]], Order]) -> Order:
        """Tells rank 0 what this rank has found, and all ranks what follows from it.

        Args:
            failure: What has gone wrong at this rank, if anything has.
            own: What this rank has found.
            answer: What follows from what all ranks have found, at rank 0.

        Raises:
            Exception: The failure of this rank, or of another one.
        """
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
            raise failure if failure is not None else _failure_elsewhere(agreed["failures"], self.ranks)
        return agreed

    def found(self, failure: Exception | None, own: Any) -> list[Any] | None:
        """What all ranks have found, at rank 0; None elsewhere.

        Raises:
            Exception: The failure of this rank, or of another one.
        """
        told: list[Any] = []

        def answer(found: list[Any]) -> Order:
            told.extend(found)
            return {}

        self._agree(failure, own, answer)
        return told if self.ranks.rank == 0 else None

    def _spread(self, asked: Sequence[Order], shares: Sequence[RunShare], messages: Sequence[Any]) -> list[Any]:
        """The messages of rank 0, on every rank."""
        device = shares[0].like.device
        specs = [spec for one in asked for spec in one["message"]]
        if self.ranks.rank == 0:
            if self.ranks.size > 1:
                self.ranks.broadcast(packed([field for message in messages for field in message], device))
            return list(messages)
        parcel = torch.empty(packed_length(specs), dtype=torch.uint8, device=device)
        self.ranks.broadcast(parcel)
        fields, found = iter(unpacked(parcel, specs)), []
        for one, share in _pairs(asked, shares):
            kind = share.parts.algorithm.message_type(one.get("phase", 0))
            found.append(kind(*(next(fields) for _ in one["message"])))
        return found

    def _move(self, asked: Sequence[Order], shares: Sequence[RunShare]) -> None:
        """Sends the states of clients that train elsewhere than they live, all at once."""
        sends, receives, arriving = list[Any](), list[Any](), list[Any]()
        for one, share in _pairs(asked, shares):
            for client, source, target in one["moves"]:
                if source == self.ranks.rank:
                    sends.append((packed(share.state(client), share.like.device), target))
                if target == self.ranks.rank:
                    length = packed_length(share.state_specs)
                    parcel = torch.empty(length, dtype=torch.uint8, device=share.like.device)
                    receives.append((parcel, source))
                    arriving.append((share, client, parcel))
        self.ranks.transfer(sends, receives)
        for share, client, parcel in arriving:
            share.take_over(client, unpacked(parcel, share.state_specs))

    def _request(self, one: Order, share: RunShare, message: Any) -> Request:
        own = [client for client, rank in zip(one["clients"], one["ranks"], strict=True) if rank == self.ranks.rank]
        context = server_context(share.parts.training, one["round"], one["phase"])
        return share.request(Work[one["work"]], own, message, context)

    def _train(self, asked: Sequence[Order], shares: Sequence[RunShare], requests: Sequence[Request]) -> list[Phase]:
        busy = [number for number, request in enumerate(requests) if request.clients]
        answers: dict[int, Answers] = {}
        if busy:
            answers = dict(zip(busy, self._engine().exchange([requests[number] for number in busy]), strict=True))
        phases = []
        for number, (one, share) in enumerate(_pairs(asked, shares)):
            places = [place for place, rank in enumerate(one["ranks"]) if rank == self.ranks.rank]
            phases.append(share.trained(requests[number], one["clients"], places, answers.get(number)))
        return phases

    def _swap(
        self,
        asked: Sequence[Order],
        shares: Sequence[RunShare],
        phases: Sequence[Phase],
        requests: Sequence[Request],
    ) -> list[tuple[dict[str, Tensor], Tensor | None]]:
        """Sends the vectors of replies as slices, each to the rank that adds it up.

        Returns:
            For each run, this rank's parts of the vectors of all clients' replies by name, ``[clients, …]``, and of
            their models.
        """
        ranks, like = self.ranks, shares[0].like
        names = [_sent_vectors(one, share) for one, share in _pairs(asked, shares)]
        apart = [_apart(one, share) for one, share in _pairs(asked, shares)]
        outgoing = []
        for rank in range(ranks.size):
            parts = []
            for share, phase, wanted, is_apart in zip(shares, phases, names, apart, strict=True):
                if phase.answers is not None:
                    vectors = [getattr(phase.answers.replies, name) for name in wanted]
                    vectors += [phase.models] if is_apart and phase.models is not None else []
                    parts += [vector[:, share.slices.part(rank)].reshape(-1) for vector in vectors]
            outgoing.append(torch.cat(parts) if parts else like.new_empty(0))
        counts = [[one["ranks"].count(rank) for rank in range(ranks.size)] for one in asked]
        widths = [share.slices.width(ranks.rank) for share in shares]
        each = [len(wanted) + is_apart for wanted, is_apart in zip(names, apart, strict=True)]
        sizes = [
            sum(own[rank] * width * number for own, width, number in zip(counts, widths, each, strict=True))
            for rank in range(ranks.size)
        ]
        arrived = ranks.swap(outgoing, sizes, like)
        begins = [0] * ranks.size
        found: list[tuple[dict[str, Tensor], Tensor | None]] = []
        for one, own, width, wanted, is_apart, share in zip(asked, counts, widths, names, apart, shares, strict=True):
            order = _arrival_order(one["ranks"])
            columns = []
            for _ in range(len(wanted) + is_apart):
                blocks = []
                for rank in range(ranks.size):
                    length = own[rank] * width
                    blocks.append(arrived[rank][begins[rank] : begins[rank] + length].view(own[rank], width))
                    begins[rank] += length
                columns.append(torch.cat(blocks)[order])
            models = columns.pop() if is_apart else None
            by_name = dict(zip(wanted, columns, strict=True))
            if one["models"] and not is_apart:
                models = by_name.get(share.model_field(one["phase"]) or "")
            found.append((by_name, models))
        return found

    def _reduce(
        self,
        one: Order,
        share: RunShare,
        vectors: Mapping[str, Tensor],
        numbers: Mapping[str, Sequence[float]],
        mask: Sequence[bool],
    ) -> ReducedReplies | None:
        """This rank's part of the means; None if no reply is accepted."""
        if not any(mask):
            return None
        algorithm, like = share.parts.algorithm, share.like
        kind, forms = algorithm.reply_type(one["phase"]), forms_of(algorithm.reply_type(one["phase"]))
        width = share.slices.width(self.ranks.rank)
        fields = []
        for name, form in forms.items():
            assert form is not None
            if form.is_vector:
                fields.append(vectors[name] if name in vectors else like.new_zeros(len(mask), width))
            else:
                dtype = form.dtype(like)
                fields.append(torch.tensor(numbers[name], dtype=dtype, device=like.device)[:, None])
        accepted = None if all(mask) else mask
        return reduce_replies(algorithm.means, one["clients"], kind(*fields), accepted)

    def _gather_means(
        self, asked: Sequence[Order], shares: Sequence[RunShare], reduced: Sequence[ReducedReplies | None]
    ) -> list[ReducedReplies | None] | None:
        """The whole means, at rank 0."""
        pairs = [_vector_means(one, share) for one, share in _pairs(asked, shares)]
        own = [
            means.mean(*pair)
            for wanted, means in zip(pairs, reduced, strict=True)
            if means is not None
            for pair in wanted
        ]
        like = shares[0].like
        sizes = [
            sum(
                len(wanted) * share.slices.width(rank)
                for wanted, share, means in zip(pairs, shares, reduced, strict=True)
                if means is not None
            )
            for rank in range(self.ranks.size)
        ]
        parts = self.ranks.gather(torch.cat(own) if own else like.new_empty(0), sizes)
        if parts is None:
            return None
        begins = [0] * self.ranks.size
        whole: list[ReducedReplies | None] = []
        for wanted, share, means in zip(pairs, shares, reduced, strict=True):
            if means is None:
                whole.append(None)
                continue
            found = {}
            for pair in wanted:
                blocks = []
                for rank in range(self.ranks.size):
                    width = share.slices.width(rank)
                    blocks.append(parts[rank][begins[rank] : begins[rank] + width])
                    begins[rank] += width
                found[pair] = torch.cat(blocks)
            whole.append(means.with_means(found))
        return whole

    def _evaluation_request(self, unit: Order, model: Tensor) -> EvaluationRequest:
        task = self.shares[unit["run"]].parts.task
        if unit["validates"]:
            return EvaluationRequest(task, {}, model)
        return EvaluationRequest(task, {"model": model}, None)


def _pairs(asked: Sequence[Order], shares: Sequence[RunShare]) -> list[tuple[Order, RunShare]]:
    return list(zip(asked, shares, strict=True))


def _limit(one: Order) -> NormLimit:
    value, of_median = one["limit"]
    return NormLimit(value, of_median)


def _sent_vectors(one: Order, share: RunShare) -> list[str]:
    """The vectors of a reply that are sent: those that are averaged, and the one that is the model."""
    algorithm, phase = share.parts.algorithm, one["phase"]
    needed = {*algorithm.means, *([share.model_field(phase)] if one["models"] else [])}
    return [name for name in share.vectors(phase) if name in needed]


def _apart(one: Order, share: RunShare) -> bool:
    """Whether models are sent beside the replies, since they aren't a field of them."""
    return bool(one["models"]) and share.model_field(one["phase"]) is None


def _vector_means(one: Order, share: RunShare) -> list[tuple[str, str]]:
    """The means of vectors, by field and weight."""
    algorithm, phase = share.parts.algorithm, one["phase"]
    there = {"one", *forms_of(algorithm.reply_type(phase))}
    vectors = share.vectors(phase)
    return [
        (field, weight)
        for field, weights in algorithm.means.items()
        for weight in weights
        if field in vectors and weight in there
    ]


def _arrival_order(ranks: Sequence[int]) -> list[int]:
    """Where each client of a request stands among those that arrive rank by rank."""
    arrived = sorted(range(len(ranks)), key=lambda place: (ranks[place], place))
    order = [0] * len(ranks)
    for position, place in enumerate(arrived):
        order[place] = position
    return order


def _report(phase: Phase, request: Request, columns: Columns) -> Any:
    """What a rank tells of its clients of a phase."""
    if phase.answers is None:
        return None
    answers = phase.answers
    forms = forms_of(type(answers.replies))
    names = [name for name, form in forms.items() if form is not None and not form.is_vector]
    return {
        "facts": inspect(columns, request.message.cloud, answers.replies).tolist(),
        "numbers": {name: getattr(answers.replies, name).flatten().tolist() for name in names},
        "steps": answers.steps,
        "scores": [list(own) for scores in answers.scores for own in scores.read()],
        "faults": [[client, fault] for client, fault in answers.faults.items()],
        "places": phase.own,
    }


def _joined(reports: Sequence[Any], one: Order) -> PhaseReport:
    """The reports of all ranks on a phase as one, in the order of its clients."""
    there = [report for report in reports if report is not None]
    places = [place for report in there for place in report["places"]]
    order = sorted(range(len(places)), key=lambda position: places[position])

    def in_order(rows: list[T]) -> list[T]:
        return [rows[position] for position in order]

    names = there[0]["numbers"]
    scores = [ClientScores(*own) for report in there for own in report["scores"]]
    by_client = {own.client: own for own in scores}
    return PhaseReport(
        facts=in_order([row for report in there for row in report["facts"]]),
        numbers={name: in_order([value for report in there for value in report["numbers"][name]]) for name in names},
        steps=in_order([steps for report in there for steps in report["steps"]]),
        scores=[by_client[client] for client in one["clients"] if client in by_client],
        faults={client: fault for report in there for client, fault in report["faults"]},
    )


def _told(failure: Exception) -> dict[str, str]:
    """A failure for rank 0, in words."""
    kind = next((kind for kind in (Interrupted, InputError) if isinstance(failure, kind)), None)
    words = str(failure) if kind is not None else "".join(traceback.format_exception(failure)).rstrip()
    return {"kind": "" if kind is None else kind.__name__, "words": words}


def _failure_elsewhere(failures: Sequence[Any], ranks: Ranks) -> Exception:
    """The exception at this rank for failures of others; an interruption only if there is nothing worse."""
    rank, failure = sorted(failures, key=lambda one: (one[1]["kind"] == "Interrupted", one[0]))[0]
    if failure["kind"] == "Interrupted":
        return Interrupted(failure["words"])
    where = f"rank {rank} on {ranks.hosts[rank]}"
    if failure["kind"] == "InputError":
        return InputError(f"{where}: {failure['words']}")
    return RankFailed(f"an error at {where}:\n{failure['words']}")
