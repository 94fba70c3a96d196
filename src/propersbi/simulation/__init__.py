"""Simulations: drawing parameters, calling the simulator in chunks, and keeping the rows in memory or on disk."""

from propersbi.simulation.executors import Joblib, Serial
from propersbi.simulation.simulations import SimulationError, Simulations, draw, simulate
from propersbi.simulation.store import Store

__all__ = ["Joblib", "Serial", "SimulationError", "Simulations", "Store", "draw", "simulate"]
