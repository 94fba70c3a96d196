"""Simulations: drawing parameters from a prior, running the simulator in chunks, and keeping rows in memory or on disk.

``priors`` draws from anything accepted as a prior, ``simulations`` computes chunks, ``executors`` decides where,
``store`` keeps them in a folder, and ``shards`` reads its files.
"""

from propersbi.simulation.executors import Joblib, Serial
from propersbi.simulation.priors import draw
from propersbi.simulation.simulations import SimulationError, Simulations, simulate
from propersbi.simulation.store import Store

__all__ = ["Joblib", "Serial", "SimulationError", "Simulations", "Store", "draw", "simulate"]
