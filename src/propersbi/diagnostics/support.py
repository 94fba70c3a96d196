"""The share of posterior draws where the prior has no density, as far as the prior says where that is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from propersbi.simulation.prior_kinds import Kind, components, is_discrete_scipy, kind_of, uniform_ends
from propersbi.simulation.priors import event_shape

__all__ = ["share_outside"]


def share_outside(prior: Any, draws: np.ndarray) -> float | None:
    """The share of draws ``(n, *event)`` outside the support of a prior; ``None`` where it does not know it.

    >>> share_outside({"a": (0.0, 1.0), "b": torch.distributions.Normal(0.0, 1.0)}, np.array([[0.5, 9.0], [1.5, 0.0]]))
    0.5
    >>> share_outside(np.zeros((10, 2)), np.ones((5, 2))) is None
    True
    """
    try:
        found = _inside(prior, draws)
    except Exception:  # of any kind: a prior is the user's own
        return None
    return None if found is None else float(1 - found.mean())


def _inside(prior: Any, draws: np.ndarray) -> np.ndarray | None:
    """Which draws have a density, ``(n,)``."""
    parts = components(prior)
    if parts is None:
        return _inside_part(prior, draws)
    flat, found, start = draws.reshape(len(draws), -1), [], 0
    for _, part in parts:
        size = math.prod(event_shape(part))
        found.append(_inside(part, flat[:, start : start + size]))
        start += size
    known = [rows for rows in found if rows is not None]
    return np.logical_and.reduce(known) if known else None


def _inside_part(prior: Any, draws: np.ndarray) -> np.ndarray | None:
    kind = kind_of(prior)
    if kind is Kind.TORCH and isinstance(prior, torch.distributions.Distribution):
        theta, support = torch.as_tensor(draws), prior.support
        if support is None:
            return None
        inside = support.check(theta.reshape(len(draws), *prior.batch_shape, *prior.event_shape)).numpy()
    elif kind is Kind.SCIPY:
        inside = np.isfinite(prior.logpmf(draws) if is_discrete_scipy(prior) else prior.logpdf(draws))
    elif kind is Kind.UNIFORM:
        low, high = uniform_ends(prior)
        inside = (draws >= low) & (draws <= high)
    else:
        return None
    return np.asarray(inside.reshape(len(draws), -1).all(1))
