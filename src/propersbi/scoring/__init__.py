r"""Scoring rules estimated from samples. Lower is better.

A scoring rule :math:`S(P, \theta)` measures how well a distribution :math:`P` predicts the true value :math:`\theta`.
It is *proper* if, in expectation over :math:`\theta \sim Q`, no :math:`P` scores lower than :math:`Q`, and *strictly*
proper if every :math:`P \neq Q` scores higher. The expected score over pairs :math:`(\theta, x)` is therefore minimised
only by the posterior of :math:`\theta` given :math:`x`. No density is needed, only :math:`m > 1` draws
:math:`\vartheta_1, \dots, \vartheta_m` per pair.

============================ ============================ =============================================================
rule                         strictly proper              use it for
============================ ============================ =============================================================
:class:`EnergyScore`         yes, 0 < beta < 2            most problems; a small beta for thin posteriors
:class:`KernelScore`         yes, characteristic kernels  one length scale, or several with a ``KernelMixture``
:class:`SlicedEnergyScore`   yes                          hundreds of draws or more
:class:`Patched`             if the full rule is          fields and images
:class:`VariogramScore`      no, add one that is          dependence between parameters
:class:`Scaled`              if its rule is               parameters that matter more than others
:class:`Derived`             for the derived quantity     functions of the parameters
============================ ============================ =============================================================

Rules are callables ``(samples (m, n, *event), theta (n, *event)) -> (n,)``; any function with this signature is a
rule. They can be added and multiplied: ``EnergyScore() + 0.5 * VariogramScore()``.

References:
    Gneiting & Raftery, Strictly Proper Scoring Rules, Prediction, and Estimation, 2007.
    Pacchiardi & Dutta, Likelihood-Free Inference with Generative Neural Networks via Scoring Rule Minimization, 2022,
    https://arxiv.org/abs/2205.15784
"""

from propersbi.scoring.composed import Derived, Patched, Scaled
from propersbi.scoring.radial import EnergyScore, KernelScore
from propersbi.scoring.rule import WeightedSum, resolved
from propersbi.scoring.sliced import SlicedEnergyScore
from propersbi.scoring.variogram import VariogramScore

__all__ = [
    "Derived",
    "EnergyScore",
    "KernelScore",
    "Patched",
    "Scaled",
    "SlicedEnergyScore",
    "VariogramScore",
    "WeightedSum",
    "resolved",
]
