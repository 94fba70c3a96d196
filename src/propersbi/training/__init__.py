"""Training: objectives, batches, and one loop for all of them, which can be cut off at any time."""

from propersbi.training.adversarial import Adversarial
from propersbi.training.config import TrainConfig
from propersbi.training.history import History, StopReason
from propersbi.training.loop import train
from propersbi.training.objectives import MaximumLikelihood, Objective, ScoreMinimization
from propersbi.training.stopping import Collapse, Evenness, FirstRise, MaxSteps, Patience, Stopping, TimeLimit

__all__ = [
    "Adversarial",
    "Collapse",
    "Evenness",
    "FirstRise",
    "History",
    "MaxSteps",
    "MaximumLikelihood",
    "Objective",
    "Patience",
    "ScoreMinimization",
    "StopReason",
    "Stopping",
    "TimeLimit",
    "TrainConfig",
    "train",
]
