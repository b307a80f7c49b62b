"""How a round is executed."""

from adabest.engine.batched import BatchedEngine
from adabest.engine.bench import Precision
from adabest.engine.classification import LOSSES, ClassificationTask
from adabest.engine.clients import Pieces
from adabest.engine.exchange import Engine, Exchange, Outcome
from adabest.engine.lanes import Lane, advance, advance_together
from adabest.engine.local import LocalTraining
from adabest.engine.memory import Memory, parse_size
from adabest.engine.metrics import Metrics
from adabest.engine.quadratic import QuadraticTask
from adabest.engine.reference import ReferenceEngine
from adabest.engine.simulation import Rules, Simulation
from adabest.engine.state import Snapshot, State, View
from adabest.engine.task import LocalPass, Scores, Task, ValidationScores

__all__ = [
    "LOSSES",
    "BatchedEngine",
    "ClassificationTask",
    "Engine",
    "Exchange",
    "Lane",
    "LocalPass",
    "LocalTraining",
    "Memory",
    "Metrics",
    "Outcome",
    "Pieces",
    "Precision",
    "QuadraticTask",
    "ReferenceEngine",
    "Rules",
    "Scores",
    "Simulation",
    "Snapshot",
    "State",
    "Task",
    "ValidationScores",
    "View",
    "advance",
    "advance_together",
    "parse_size",
]
