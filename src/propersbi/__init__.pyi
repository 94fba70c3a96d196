from . import diagnostics, metrics, networks, plots, samplers, scoring, sequential, simulation, tasks, training
from .app.run import run
from .choices import recipe
from .diagnostics.comparison import Comparison, compare
from .diagnostics.measure import diagnose
from .diagnostics.result import Diagnostics
from .inference import fit
from .metrics import calibration
from .posterior import Posterior
from .problem import Problem
from .recipes import Recipe
from .reports.page import report
from .samplers.bounds import Box
from .samplers.latent import Metropolis, Rejection
from .scoring import (
    Derived,
    EnergyScore,
    KernelScore,
    Patched,
    Scaled,
    SlicedEnergyScore,
    VariogramScore,
    kernels,
)
from .sequential.corrections import CorrectedLatent, ImportanceWeights, Truncated, Uncorrected
from .sequential.rounds import fit_sequential
from .simulation.executors import Joblib, Serial
from .simulation.simulations import SimulationError, Simulations, simulate
from .simulation.store import Store
from .training.adversarial import Adversarial
from .training.config import TrainConfig
from .training.objectives import MaximumLikelihood, ScoreMinimization
from .training.stopping import Evenness, FirstRise, Patience, TimeLimit
from .types import InputError

__version__: str
