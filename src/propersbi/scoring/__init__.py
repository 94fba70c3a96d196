r"""Scoring rules estimated from samples. Lower is better.

A scoring rule :math:`S(P, \theta)` says how well a distribution :math:`P` foretold what came true. It is *proper*
when, in expectation over :math:`\theta \sim Q`, no :math:`P` scores lower than :math:`Q` itself, and *strictly* proper
when every other one scores higher. A network that minimises a strictly proper score over pairs :math:`(\theta, x)`
therefore has one target: the posterior of :math:`\theta` given :math:`x`. No density is needed, only :math:`m > 1`
draws :math:`\vartheta_1, \dots, \vartheta_m` per pair.

============================ ============================ =============================================================
rule                         strictly proper              good for
============================ ============================ =============================================================
:class:`EnergyScore`         yes, 0 < beta < 2            everything; a small beta for thin posteriors
:class:`KernelScore`         yes, characteristic kernels  one scale of detail, or several with a ``Mixture``
:class:`SlicedEnergyScore`   yes                          hundreds of draws and more
:class:`Patched`             with the whole, yes          fields and images
:class:`VariogramScore`      no, add one that is          dependence between parameters
:class:`Scaled`              as its rule                  parameters that matter more than others
:class:`Derived`             for what is derived          functions of the parameters
============================ ============================ =============================================================

Rules are functions ``(samples (m, n, *event), theta (n, *event)) -> (n,)``; so may be your own. They can be added and
multiplied: ``EnergyScore() + 0.5 * VariogramScore()``.

References:
    Gneiting & Raftery, Strictly Proper Scoring Rules, Prediction, and Estimation, 2007.
    Pacchiardi & Dutta, Likelihood-Free Inference with Generative Neural Networks via Scoring Rule Minimization, 2022,
    https://arxiv.org/abs/2205.15784
"""

from propersbi.scoring.composed import Derived, Patched, Scaled
from propersbi.scoring.variogram import VariogramScore
from propersbi.scoring.radial import EnergyScore, KernelScore
from propersbi.scoring.rule import WeightedSum, resolved
from propersbi.scoring.sliced import SlicedEnergyScore

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
