"""The metrics of a round."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from adabest.engine.interface import Answers
from adabest.engine.state import State
from adabest.errors import Diverged
from adabest.tasks.base import Heartbeat, Task

Metrics = dict[str, float | int | None]


def measure(
    task: Task,
    before: State,
    after: State,
    *,
    answers: Sequence[Answers],
    scored_model: Tensor,
    averaged_model: Tensor | None,
    present: int,
    estimate_norms: Sequence[float],
    server_numbers: Mapping[str, Tensor],
    heartbeat: Heartbeat,
) -> Metrics:
    """The metrics of a round; None where one doesn't apply or is too large for a number.

    Args:
        task: The task, which judges models.
        before: The state that the round began with.
        after: The state that it leads to.
        answers: The clients' answers in each phase of the round.
        scored_model: The scored model of ``after``.
        averaged_model: The averaged model of ``after``, if there is one.
        present: |S^t|.
        estimate_norms: ‖h_i‖ of all clients that have taken part.
        server_numbers: Numbers of the server's state that the algorithm reports.
        heartbeat: Called now and then; what it raises ends the measuring.

    Raises:
        Diverged: If a model's test loss isn't finite.
    """
    metrics: Metrics = {"round": after.round}
    models = {"scored": scored_model, "aggregate": after.aggregate, "cloud": after.cloud}
    if averaged_model is not None:
        models["averaged"] = averaged_model
    for name, model in models.items():
        tested = task.test(model, heartbeat)
        if not np.isfinite(tested.loss):
            raise Diverged(f"the test loss of the {name} model is {tested.loss}")
        metrics |= {f"{name}_accuracy": tested.accuracy, f"{name}_loss": tested.loss}
    scores = [scores.read() for own in answers for scores in own.scores]
    metrics["train_accuracy"] = _mean([accuracy for _, accuracies in scores for accuracy in accuracies])
    metrics["train_loss"] = _mean([loss for losses, _ in scores for loss in losses])
    validation = task.validate(scored_model, heartbeat)
    for name in ("accuracy", "spread", "worst_tenth"):
        metrics[f"validation_{name}"] = None if validation is None else getattr(validation, name)
    metrics["cloud_norm"] = _norm(after.cloud)
    metrics["h_norm"] = None if after.h is None else _norm(after.h)
    metrics["client_h_norm"] = _mean(estimate_norms)
    metrics["h_cosine"] = _cosine(before.h, before.cloud - after.aggregate) if answers else None
    metrics |= {name: float(value) for name, value in server_numbers.items()}
    metrics |= {"present": present, "cohort": len(answers[-1].clients) if answers else 0}
    metrics |= {"bytes_down": after.bytes_down, "bytes_up": after.bytes_up, "local_steps": after.local_steps}
    return {name: value if value is None or np.isfinite(value) else None for name, value in metrics.items()}


def _norm(vector: Tensor) -> float:
    return float(torch.linalg.vector_norm(vector, dtype=torch.float64))


def _cosine(a: Tensor | None, b: Tensor) -> float | None:
    """The cosine of an angle; None where a vector is missing or zero."""
    if a is None or _norm(a) == 0 or _norm(b) == 0:
        return None
    product = torch.dot(a.to(torch.float64), b.to(torch.float64))
    return float(product) / (_norm(a) * _norm(b))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
