"""Rejection sampling: propose in batches, keep what is accepted, give up in good time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from propersbi.types import InputError

__all__ = ["sample_by_rejection"]

_PATIENCE = 3_000_000
"""Proposals after which the acceptance rate is known well enough to judge it."""

_RARE = 100_000
"""Proposals per draw that are too many; the simulator's own data need a hundred, seldom ten thousand."""


def sample_by_rejection(
    propose: Callable[[int, np.random.Generator], np.ndarray], n: int, rng: np.random.Generator, *, batch: int = 100_000
) -> np.ndarray:
    """``n`` independent draws from ``propose(size, rng)``, which returns those of ``size`` proposals it accepts.

    The accepted rows must be exchangeable: the last batch is cut off in the middle.

    >>> half = sample_by_rejection(lambda size, rng: (u := rng.random(size))[u < 0.5], 4, np.random.default_rng(0))
    >>> half.round(2)
    array([0.27, 0.04, 0.02, 0.  ])
    """
    kept, accepted, tried = [], 0, 0
    while accepted < n:
        if tried >= _PATIENCE and tried > _RARE * accepted:
            raise InputError(
                "The observation is impossible, or nearly so, under this task: "
                f"{accepted} of {tried} proposals were accepted."
            )
        size = min(batch, max(1000, 4 * n, tried))
        kept.append(propose(size, rng))
        accepted, tried = accepted + len(kept[-1]), tried + size
    return np.concatenate(kept)[:n]
