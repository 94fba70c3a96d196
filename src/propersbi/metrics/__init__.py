"""Metrics of posterior samples: errors, proper scores, calibration, and distances between two samples."""

from propersbi.metrics import calibration as calibration
from propersbi.metrics.scores import (
    c2st,
    calibration_error,
    crps,
    energy_distance,
    energy_score,
    energy_skill,
    mmd,
    nrmse,
    r2,
    rmse,
)

__all__ = [
    "c2st",
    "calibration_error",
    "crps",
    "energy_distance",
    "energy_score",
    "energy_skill",
    "mmd",
    "nrmse",
    "r2",
    "rmse",
]
