"""Sequential inference: rounds of simulations for one observation, and the corrections that make them count."""

from propersbi.sequential.corrections import CorrectedLatent, Correction, ImportanceWeights, Truncated, Uncorrected
from propersbi.sequential.ratio import estimate_ratio
from propersbi.sequential.rounds import fit_sequential

__all__ = [
    "CorrectedLatent",
    "Correction",
    "ImportanceWeights",
    "Truncated",
    "Uncorrected",
    "estimate_ratio",
    "fit_sequential",
]
