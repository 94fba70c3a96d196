"""Rejection sampling in batches, with an error if the acceptance rate is too low."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from propersbi.types import InputError

__all__ = ["sample_by_rejection"]

_MIN_PROPOSALS = 3_000_000
"""Proposals before the acceptance rate is judged."""

_MAX_PROPOSALS_PER_DRAW = 100_000
"""Data of the simulator need about a hundred, rarely ten thousand."""


def sample_by_rejection(
    propose: Callable[[int, np.random.Generator], np.ndarray], n: int, rng: np.random.Generator, *, batch: int = 100_000
) -> np.ndarray:
    """``n`` independent draws from ``propose(size, rng)``, which returns the accepted ones of ``size`` proposals.

    The accepted rows must be exchangeable, since the last batch is truncated.

    >>> draws = sample_by_rejection(lambda size, rng: (u := rng.random(size))[u < 0.5], 4, np.random.default_rng(0))
    >>> draws.round(2)
    array([0.27, 0.04, 0.02, 0.  ])
    """
    batches: list[np.ndarray] = []
    accepted, proposed = 0, 0
    while accepted < n:
        if proposed >= _MIN_PROPOSALS and proposed > _MAX_PROPOSALS_PER_DRAW * accepted:
            raise InputError(
                "The observation is impossible, or nearly so, under this task: "
                f"{accepted} of {proposed} proposals were accepted."
            )
        size = min(batch, max(1000, 4 * n, proposed))
        batches.append(propose(size, rng))
        accepted, proposed = accepted + len(batches[-1]), proposed + size
    return np.concatenate(batches)[:n]
