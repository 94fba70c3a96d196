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
        corrections,
        games,
        kernels,
        latent,
        metrics,
        networks,
        objectives,
        plots,
        ratio,
        scoring,
        support,
        tasks,
        training,
    )
    from propersbi.comparison import Comparison, compare
    from propersbi.corrections import CorrectedLatent, ImportanceWeights, Truncated, Uncorrected
    from propersbi.diagnostics import Diagnostics, diagnose
    from propersbi.executors import Joblib, Serial
    from propersbi.inference import fit
    from propersbi.latent import Metropolis, Rejection
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
    from propersbi.sequential import fit_sequential
    from propersbi.simulation import SimulationError, Simulations, simulate
    from propersbi.store import Store
    from propersbi.support import Box
    from propersbi.training import TrainConfig
    from propersbi.types import InputError

__version__ = "0.1.0"

_MODULES = (
    "calibration",
    "corrections",
    "games",
    "kernels",
    "latent",
    "metrics",
    "networks",
    "objectives",
    "plots",
    "ratio",
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
    "CorrectedLatent": "corrections",
    "Derived": "scoring",
    "Diagnostics": "diagnostics",
    "EnergyScore": "scoring",
    "ImportanceWeights": "corrections",
    "InputError": "types",
    "Joblib": "executors",
    "KernelScore": "scoring",
    "Metropolis": "latent",
    "Patched": "scoring",
    "Posterior": "posterior",
    "Rejection": "latent",
    "Scaled": "scoring",
    "MaximumLikelihood": "objectives",
    "ScoreMinimization": "objectives",
    "Serial": "executors",
    "SimulationError": "simulation",
    "Simulations": "simulation",
    "SlicedEnergyScore": "scoring",
    "Store": "store",
    "TrainConfig": "training",
    "Truncated": "corrections",
    "Uncorrected": "corrections",
    "VariogramScore": "scoring",
    "diagnose": "diagnostics",
    "fit": "inference",
    "fit_sequential": "sequential",
    "simulate": "simulation",
}

__all__ = [
    "Adversarial",
    "Box",
    "Comparison",
    "CorrectedLatent",
    "Derived",
    "Diagnostics",
    "EnergyScore",
    "ImportanceWeights",
    "InputError",
    "Joblib",
    "KernelScore",
    "MaximumLikelihood",
    "Metropolis",
    "Patched",
    "Posterior",
    "Rejection",
    "Scaled",
    "ScoreMinimization",
    "Serial",
    "SimulationError",
    "Simulations",
    "SlicedEnergyScore",
    "Store",
    "TrainConfig",
    "Truncated",
    "Uncorrected",
    "VariogramScore",
    "calibration",
    "compare",
    "corrections",
    "diagnose",
    "fit",
    "fit_sequential",
    "games",
    "kernels",
    "latent",
    "metrics",
    "networks",
    "objectives",
    "plots",
    "ratio",
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
