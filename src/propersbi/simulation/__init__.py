"""Simulations: drawing parameters from a prior, running the simulator in chunks, and keeping rows in memory or on disk.

``priors`` draws from anything accepted as a prior. ``calls``, ``styles`` and ``results`` call a simulator and read what
it returns, ``probing`` finds out how it wants to be called, and ``callers`` and ``processes`` call it under a random
stream, here or in processes that can be ended. ``chunks`` computes chunks of rows, ``failures`` keeps account of rows
that fail, ``executors`` and ``startup`` decide where chunks are computed, ``dispatch`` and ``engines`` compute them on
clusters, and ``runs`` collects them; ``store`` keeps them in a folder, and ``shards`` reads its files.
"""

from propersbi.simulation.executors import Joblib, Serial
from propersbi.simulation.priors import draw
from propersbi.simulation.simulations import Failure, Failures, SimulationError, Simulations, simulate
from propersbi.simulation.store import Store

__all__ = ["Failure", "Failures", "Joblib", "Serial", "SimulationError", "Simulations", "Store", "draw", "simulate"]
