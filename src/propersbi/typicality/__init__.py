r"""Whether an observation is like the simulations that a posterior was trained on.

A network answers any question, also about data unlike all it has seen. So the observation is compared with simulations,
in the data themselves (in fixed statistics of them where they are series, sets or images, or have missing entries) and
in the network's own features of them. Let :math:`v` be either of them, standardised number
by number, and :math:`C = V \Lambda V^T + \sigma^2 (I - V V^T)` the covariance, of which only the leading axes are kept.
Four distances see different kinds of deviation: all numbers together, one number by itself, one number given the
others, and the features,

.. math:: T_1 = v^T C^{-1} v, \quad T_2 = \max_j |v_j|, \quad
          T_3 = \max_j |(C^{-1} v)_j| / \sqrt{(C^{-1})_{jj}}, \quad T_4 = T_1(\text{features}).

Their logarithms, in units in which the median is 0 and the 95 % quantile 1, are combined by their maximum :math:`S`.
The p-value is the rank of :math:`S` among :math:`n` simulations that neither the covariance nor, where there are enough
of them, the network was found on (conformal). With :math:`c` of them at least as extreme,

.. math:: p = \frac{1 + c + 2 \sqrt{c\,(1 - c / n)}}{n + 1},

an upper confidence limit, so that the size of the test holds for the simulations at hand and not only on average over
others. Beyond the most extreme one, :math:`p` falls exponentially in :math:`S` at the rate of the upper tenth.
"""

from propersbi.typicality.conformal import (
    TypicalityTest,
    deviations,
    features_of,
    find_typicality,
    p_values_of,
    statistic_names,
    statistics_of,
)
from propersbi.typicality.result import UNLIKE, Deviation, Typicality, UnlikeSimulations

__all__ = [
    "UNLIKE",
    "Deviation",
    "Typicality",
    "TypicalityTest",
    "UnlikeSimulations",
    "deviations",
    "features_of",
    "find_typicality",
    "p_values_of",
    "statistic_names",
    "statistics_of",
]
