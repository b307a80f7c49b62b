"""How a round is executed."""

from adabest.engine.classification import LOSSES, ClassificationTask
from adabest.engine.clients import Pieces
from adabest.engine.exchange import Engine, Outcome
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
    "ClassificationTask",
    "Engine",
    "LocalPass",
    "LocalTraining",
    "Memory",
    "Metrics",
    "Outcome",
    "Pieces",
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
    "parse_size",
]
