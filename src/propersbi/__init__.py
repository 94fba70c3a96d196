"""Simulation-based inference with generative networks trained by proper scoring rules.

>>> import propersbi as ps
>>> task = ps.tasks.get("two_moons")
>>> sims = ps.simulate(task.prior, task.simulate, 200, seed=0, progress=False)
>>> posterior = ps.fit(sims.theta, sims.x, prior=task.prior, max_steps=2, progress=False)
>>> posterior.sample((1000,), x=task.observation(1)).shape
torch.Size([1000, 2])

Names are imported when they are first used: importing the package does nothing else.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from propersbi import (
        calibration,
        games,
        kernels,
        metrics,
        networks,
        objectives,
        plots,
        scoring,
        support,
        tasks,
        training,
    )
    from propersbi.comparison import Comparison, compare
    from propersbi.diagnostics import Diagnostics, diagnose
    from propersbi.executors import Joblib, Serial
    from propersbi.inference import fit
    from propersbi.objectives import Adversarial, MaximumLikelihood, ScoreMinimization
    from propersbi.posterior import Posterior
    from propersbi.scoring import (
        Derived,
        EnergyScore,
        KernelScore,
        Patched,
        Scaled,
        SlicedEnergyScore,
        VariogramScore,
    )
    from propersbi.simulation import SimulationError, Simulations, simulate
    from propersbi.store import Store
    from propersbi.support import Box
    from propersbi.training import TrainConfig
    from propersbi.types import InputError

__version__ = "0.1.0"

_MODULES = (
    "calibration",
    "games",
    "kernels",
    "metrics",
    "networks",
    "objectives",
    "plots",
    "scoring",
    "support",
    "tasks",
    "training",
)
_NAMES = {
    "Comparison": "comparison",
    "compare": "comparison",
    "Adversarial": "objectives",
    "Box": "support",
    "Derived": "scoring",
    "Diagnostics": "diagnostics",
    "EnergyScore": "scoring",
    "InputError": "types",
    "Joblib": "executors",
    "KernelScore": "scoring",
    "Patched": "scoring",
    "Posterior": "posterior",
    "Scaled": "scoring",
    "MaximumLikelihood": "objectives",
    "ScoreMinimization": "objectives",
    "Serial": "executors",
    "SimulationError": "simulation",
    "Simulations": "simulation",
    "SlicedEnergyScore": "scoring",
    "Store": "store",
    "TrainConfig": "training",
    "VariogramScore": "scoring",
    "diagnose": "diagnostics",
    "fit": "inference",
    "simulate": "simulation",
}

__all__ = [
    "Adversarial",
    "Box",
    "Comparison",
    "Derived",
    "Diagnostics",
    "EnergyScore",
    "InputError",
    "Joblib",
    "KernelScore",
    "MaximumLikelihood",
    "Patched",
    "Posterior",
    "Scaled",
    "ScoreMinimization",
    "Serial",
    "SimulationError",
    "Simulations",
    "SlicedEnergyScore",
    "Store",
    "TrainConfig",
    "VariogramScore",
    "calibration",
    "compare",
    "diagnose",
    "fit",
    "games",
    "kernels",
    "metrics",
    "networks",
    "objectives",
    "plots",
    "scoring",
    "simulate",
    "support",
    "tasks",
    "training",
]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        value = getattr(import_module(f"propersbi.{_NAMES[name]}"), name)
    elif name in _MODULES:
        value = import_module(f"propersbi.{name}")
    else:
        raise AttributeError(f"module 'propersbi' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
