"""The metrics of a round."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from adabest.engine.evaluation import EvaluationResult
from adabest.engine.interface import ClientScores
from adabest.engine.state import State
from adabest.engine.threads import one_thread
from adabest.errors import Diverged
from adabest.tasks.objectives.metric import Metric

Metrics = dict[str, float | int | None]

# What is read from the device; the server's numbers have a prefix, since an algorithm may call them anything.
_CLOUD, _H, _ESTIMATES, _ANGLE, _SERVER = "cloud", "h", "estimates", "angle", "server."


def measure(
    before: State,
    after: State,
    *,
    metrics_of_task: Sequence[Metric],
    evaluation: EvaluationResult,
    scores: Sequence[ClientScores],
    cohort: int,
    present: int,
    estimate_norms: Tensor,
    server_numbers: Mapping[str, Tensor],
) -> Metrics:
    """The metrics of a round; None where one doesn't apply or is too large for a number.

    All numbers that lie on a device are read with one copy, since each copy waits for the device.

    Args:
        before: The state that the round began with.
        after: The state that it leads to.
        metrics_of_task: What models are judged by.
        evaluation: The scores of the models of ``after``.
        scores: How the training of the clients went whose replies were accepted, in each phase of the round.
        cohort: How many clients took part; 0 in a round that was skipped.
        present: |S^t|.
        estimate_norms: ‖h_i‖ of all clients that have taken part, float64 ``[clients]``.
        server_numbers: Numbers of the server's state that the algorithm reports.

    Raises:
        Diverged: If a model's test loss isn't finite.
    """
    metrics: Metrics = {"round": after.round}
    names, first = [metric.name for metric in metrics_of_task], metrics_of_task[0].name
    if "scored" not in evaluation.tests:
        metrics |= {f"scored_{name}": None for name in (*names, "loss")}
    for name, tested in evaluation.tests.items():
        if not np.isfinite(tested.loss):
            raise Diverged(f"the test loss of the {name} model is {tested.loss}")
        metrics |= {f"{name}_{metric}": tested.values[metric] for metric in names}
        metrics[f"{name}_loss"] = tested.loss
    metrics[f"train_{first}"] = _mean([own.value for own in scores])
    metrics["train_loss"] = _mean([own.loss for own in scores])
    validation = evaluation.validation
    for name, field in ((first, "mean"), ("spread", "spread"), ("worst_tenth", "worst_tenth")):
        metrics[f"validation_{name}"] = None if validation is None else getattr(validation, field)
    if validation is not None and validation.others:
        metrics |= {f"validation_{name}": value for name, value in validation.others.items()}
    numbers = {_CLOUD: _norm(after.cloud), _ESTIMATES: estimate_norms}
    if after.h is not None:
        numbers[_H] = _norm(after.h)
    if before.h is not None and cohort:
        moved = before.cloud - after.aggregate
        with one_thread():  # several threads add in an order that depends on their number
            product = torch.dot(before.h.to(torch.float64), moved.to(torch.float64))
        numbers[_ANGLE] = torch.stack([product, _norm(before.h), _norm(moved)])
    read = _read(numbers | {_SERVER + name: torch.as_tensor(value) for name, value in server_numbers.items()})
    metrics["cloud_norm"] = read[_CLOUD][0]
    metrics["h_norm"] = read[_H][0] if _H in read else None
    metrics["client_h_norm"] = _mean(read[_ESTIMATES])
    metrics["h_cosine"] = _cosine(*read[_ANGLE]) if _ANGLE in read else None
    metrics |= {name: read[_SERVER + name][0] for name in server_numbers}
    metrics |= {"present": present, "cohort": cohort}
    metrics |= {"bytes_down": after.bytes_down, "bytes_up": after.bytes_up, "local_steps": after.local_steps}
    # Only where there were any: else the rows of a run are those of earlier versions.
    metrics |= {name: count for name in ("rejected", "unanswered") if (count := getattr(after.notes, name))}
    return {name: value if value is None or np.isfinite(value) else None for name, value in metrics.items()}


def _read(tensors: Mapping[str, Tensor]) -> dict[str, list[float]]:
    """The numbers in tensors, with one copy from each device that they lie on."""
    found: dict[str, list[float]] = {}
    for device in {tensor.device for tensor in tensors.values()}:
        here = {name: tensor.flatten() for name, tensor in tensors.items() if tensor.device == device}
        numbers = torch.cat([tensor.to(torch.float64) for tensor in here.values()]).tolist()
        for name, tensor in here.items():
            found[name], numbers = numbers[: len(tensor)], numbers[len(tensor) :]
    return found


def _norm(vector: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(vector, dtype=torch.float64)
    return norm


def _cosine(product: float, one: float, other: float) -> float | None:
    """The cosine of the angle between two vectors out of their product and norms; None where one is zero."""
    return None if one == 0 or other == 0 else product / (one * other)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and not math.isnan(value)]
    return float(np.mean(known)) if known else None
