"""Randomness has an owner: a seed and a place in the work, never a worker and never the order of calls.

The caller's own random state is left as it was found, everywhere in the library.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from propersbi.storage.checks import check_seed

__all__ = ["seeded", "stream"]


@contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """Run torch code under its own seed; ``None`` uses the caller's random state as it is.

    >>> import torch
    >>> with seeded(1):
    ...     a = torch.rand(2)
    >>> with seeded(1):
    ...     b = torch.rand(2)
    >>> bool((a == b).all())
    True
    """
    if seed is None:
        yield
        return
    import torch

    seed = check_seed(seed)
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


@contextmanager
def stream(seed: int, *place: int) -> Iterator[np.random.Generator]:
    """The random generator that belongs to one place of the work, for example to one chunk of simulations.

    User code may draw from the given generator, but also from the global states of ``random``, NumPy and (where it is
    loaded) torch: all of them are set from the same place, and put back afterwards.

    >>> with stream(0, 7) as rng:
    ...     a = rng.random(), np.random.rand()
    >>> with stream(0, 7) as rng:
    ...     b = rng.random(), np.random.rand()
    >>> a == b
    True
    """
    sequence = np.random.SeedSequence([check_seed(seed), *place])
    rng = np.random.default_rng(sequence)
    global_seed = int(sequence.spawn(1)[0].generate_state(1)[0])
    python_state, numpy_state = random.getstate(), np.random.get_state()
    random.seed(global_seed)
    np.random.seed(global_seed)
    try:
        with seeded(global_seed if "torch" in sys.modules else None):
            yield rng
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
