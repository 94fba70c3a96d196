"""Test pairs of a run: as many as a verdict needs, unless they would take too long."""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable

from propersbi.problem import ENOUGH_PAIRS, Settings
from propersbi.simulation.simulations import Simulations
from propersbi.storage.records import SimulationsRecord

__all__ = ["simulate_test_pairs"]

MOST_SECONDS = 600.0  # that further test pairs may take, unless their number was asked for


def simulate_test_pairs(
    simulate: Callable[[int], Simulations],
    settings: Settings,
    n: int,
    asked: int | None,
    *,
    before: SimulationsRecord | None = None,
    progress: bool = True,
) -> tuple[Simulations, int]:
    """Test pairs and how many were simulated: by default a tenth of ``n`` and at least as many as a verdict needs.

    Where the simulator is so slow that the latter would take long, a tenth has to do, with a warning.

    Arguments:
        simulate: ``(count) -> simulations``, the first ones of a group; calling it again adds what is missing.
        settings: Of the problem.
        n: The simulations to train on.
        asked: How many test pairs were asked for, if any.
        before: What the run simulated before, which tells how slow the simulator is.
        progress: Whether to say how many there are, if that is more than a tenth.
    """
    count = settings.test if asked is None else asked
    if count is not None:
        return simulate(count), count
    few, wanted = settings.few_test_pairs(n), settings.test_pairs(n)
    started = time.monotonic()
    pairs, count = simulate(few), few
    each = (time.monotonic() - started) / few
    if before is not None and before.seconds is not None:
        each = max(each, before.seconds / (before.n + before.test))
    if each * (wanted - few) > MOST_SECONDS:
        warnings.warn(
            f"A simulation takes {each:.2g} s, so there are only {few} test pairs; a verdict better than 'usable with "
            f"care' needs {ENOUGH_PAIRS}: ask for them with test={ENOUGH_PAIRS} (--test {ENOUGH_PAIRS}).",
            stacklevel=3,
        )
        return pairs, count
    while len(pairs) < wanted and count < 2 * wanted:  # rows that fail are no test pairs
        count = math.ceil(wanted * max(1.0, count / max(1, len(pairs))))
        pairs = simulate(count)
    if progress and count > few:
        sys.stderr.write(f"{count} test pairs, as a verdict needs {ENOUGH_PAIRS}; --test asks for another number\n")
    return pairs, count
