r"""SLCP, simple likelihood and complex posterior (Papamakarios et al. 2019, https://arxiv.org/abs/1805.07226).

Four points in the plane are drawn from one Gaussian and flattened to :math:`x \in R^8`:

.. math::
    x_i \sim N(\mu, \Sigma), \quad \mu = (\theta_1, \theta_2), \quad
    \Sigma = \begin{pmatrix} s_1^2 & \rho s_1 s_2 \\ \rho s_1 s_2 & s_2^2 \end{pmatrix} + \epsilon I, \quad
    s_1 = \theta_3^2, \; s_2 = \theta_4^2, \; \rho = \tanh \theta_5, \quad \theta \sim U(-3, 3)^5

with :math:`\epsilon = 10^{-6}`. The likelihood does not depend on the signs of :math:`\theta_3, \theta_4`: sample the
quadrant where both are positive and flip signs at random. With mean :math:`\bar x`, scatter :math:`S` and
:math:`T(\mu) = S + 4 (\bar x - \mu)(\bar x - \mu)^T` the posterior is

.. math:: F(\mu, \theta) = |\Sigma|^{-2} \exp(-\tfrac12 \operatorname{tr} \Sigma^{-1} T(\mu))

**Exact rejection sampling.** The quadrant is divided according to whether :math:`\theta_3` or :math:`\theta_4` is below
:math:`\tau = 1/8`, and each piece has an envelope whose integral is known in closed form.

*Bulk*, both above: :math:`d\Sigma = 16 (\theta_3 \theta_4)^5 (1 - \rho^2) d\theta`, so that

.. math::
    F d\theta = \tfrac1{16} |\Sigma|^{-13/4} e^{-\frac12 \operatorname{tr} \Sigma^{-1} T}\, w \, d\Sigma, \quad
    w = |\Sigma|^{5/4} (\theta_3 \theta_4)^{-5} (1 - \rho^2)^{-1} \le w_\tau

is an inverse Wishart distribution with 7/2 degrees of freedom times a bounded weight (:math:`(1-\rho^2)^{1/4}` up to
:math:`\epsilon`). Its integral over :math:`\Sigma` is proportional to
:math:`(1 + 4 (\bar x - \mu)^T S^{-1} (\bar x - \mu))^{-7/4}`, a t distribution with 3/2 degrees of freedom:
draw :math:`\mu` from it (or uniformly in its box, whichever rejects less), then :math:`\Sigma` given :math:`\mu`.

*Thin*, one below: there :math:`\epsilon` matters and :math:`w` is unbounded, but the integral of :math:`F` over
:math:`\mu` is at most :math:`\tfrac\pi2 f(\Sigma)`, :math:`f = |\Sigma|^{-3/2} e^{-\frac12 \operatorname{tr}
\Sigma^{-1} S}`, whose supremum is known: draw :math:`\theta_3, \theta_4, \theta_5` uniformly, then
:math:`\mu \sim N(\bar x, \Sigma / 4)`.

*Four nearly collinear points* have a scatter matrix more correlated than any :math:`\Sigma`,
:math:`|r| > \rho_3 = \tanh 3`. Both envelopes then use :math:`S' = \lambda S` with its correlation clipped to
:math:`\pm \rho_3`, :math:`\lambda = (1 - \rho_3 |r|) / (1 - \rho_3^2)`: for all :math:`|\rho| \le \rho_3` this only
raises them, as :math:`\operatorname{tr} \Sigma^{-1} S' \le \operatorname{tr} \Sigma^{-1} S`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import lgamma, log, pi

import numpy as np

from propersbi.tasks.priors import BoxUniform
from propersbi.tasks.reference.rejection import sample_by_rejection
from propersbi.tasks.task import Task
from propersbi.types import InputError

__all__ = ["EXCHANGEABLE", "TASK"]

PRIOR = BoxUniform([-3.0] * 5, [3.0] * 5)
_BOUND = 3.0
_JITTER = 1e-6
_THIN_SCALE = 0.125
_MAX_RHO = float(np.tanh(_BOUND))


def simulate(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Data ``(n, 8)``, four points in sequence, for parameters ``(n, 5)``.

    >>> simulate(np.array([[1.0, -1.0, 0.1, 0.1, 0.0]]), np.random.default_rng(0)).round(2)
    array([[ 1.  , -1.  ,  1.01, -1.  ,  0.99, -1.  ,  1.01, -0.99]])
    """
    first, second = rng.standard_normal((len(theta), 4, 2)).T
    v1, v12, v2 = _covariance(theta[:, 2], theta[:, 3], theta[:, 4])
    root = np.sqrt(v1)
    x1 = theta[:, 0] + root * first
    x2 = theta[:, 1] + v12 / root * first + np.sqrt(v2 - v12**2 / v1) * second
    return np.stack([x1, x2], axis=-1).swapaxes(0, 1).reshape(len(theta), 8)


def reference_posterior(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """``n`` exact, independent draws ``(n, 5)`` from the posterior of any observation ``(8,)``.

    10 000 draws take a second for a typical observation, and longer for an unlikely one.

    >>> draws = reference_posterior(np.array([1.0, 2, 2, 1, 1, 1, 0, 0]), 1000, np.random.default_rng(0))
    >>> draws.shape, bool(np.all(np.abs(draws) <= 3))
    ((1000, 5), True)
    """
    mean, scatter = _summarise(x)
    envelope = _Envelope(mean, scatter, _clip_correlation(scatter))
    return sample_by_rejection(envelope.propose, n, rng)


def _covariance(theta3: np.ndarray, theta4: np.ndarray, theta5: np.ndarray) -> tuple[np.ndarray, ...]:
    s1, s2 = theta3**2, theta4**2
    return s1**2 + _JITTER, np.tanh(theta5) * s1 * s2, s2**2 + _JITTER


def _summarise(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sufficient statistics: mean and scatter matrix of the four points."""
    points = x.reshape(4, 2)
    mean = points.mean(0)
    scatter = (points - mean).T @ (points - mean)
    if not scatter.diagonal().all():
        raise InputError(f"The four points of an SLCP observation must differ in both coordinates, got {x}.")
    return mean, scatter


def _clip_correlation(scatter: np.ndarray) -> np.ndarray:
    """The scatter matrix S' of the envelopes."""
    deviation = np.sqrt(scatter.diagonal())
    r = scatter[0, 1] / deviation.prod()
    if abs(r) <= _MAX_RHO:
        return scatter
    clipped = np.copysign(_MAX_RHO, r)
    scale = (1 - clipped * r) / (1 - clipped**2)
    envelope: np.ndarray = scale * np.outer(deviation, deviation) * np.array([[1, clipped], [clipped, 1]])
    return envelope


@dataclass(frozen=True)
class _Envelope:
    """The envelope of one posterior: three pieces, with the logarithms of their integrals and their samplers."""

    mean: np.ndarray
    scatter: np.ndarray
    clipped: np.ndarray

    def propose(self, size: int, rng: np.random.Generator) -> np.ndarray:
        log_masses = np.array([self._log_bulk_mass, self._log_thin_mass(0), self._log_thin_mass(1)])
        masses = np.exp(log_masses - log_masses.max())
        counts = rng.multinomial(size, masses / masses.sum())
        parts = [self._bulk(counts[0], rng), self._thin(0, counts[1], rng), self._thin(1, counts[2], rng)]
        theta = rng.permutation(np.concatenate(parts))  # exchangeable rows, since the last batch is truncated
        theta[:, 2:4] *= rng.choice([-1.0, 1.0], (len(theta), 2))
        return theta

    # -- bulk: mu from a t distribution or the box, Sigma | mu from an inverse Wishart distribution

    def _bulk(self, size: int, rng: np.random.Generator) -> np.ndarray:
        offset = self._draw_offset(size, rng)
        t11, t12, t22 = (self.clipped[i, j] + 4 * offset[i] * offset[j] for i, j in ((0, 0), (0, 1), (1, 1)))
        v1, v12, v2 = _draw_inverse_wishart(t11, t12, t22, rng)
        theta3, theta4 = (np.maximum(v - _JITTER, 0) ** 0.25 for v in (v1, v2))
        inside = (theta3 >= _THIN_SCALE) & (theta4 >= _THIN_SCALE) & (theta3 <= _BOUND) & (theta4 <= _BOUND)
        rho = np.divide(v12, theta3**2 * theta4**2, out=np.ones_like(v12), where=inside)
        inside &= np.abs(rho) <= _MAX_RHO
        theta = np.stack([*(self.mean[:, None] + offset), theta3, theta4, np.arctanh(np.where(inside, rho, 0))], axis=1)
        v1, v12, v2, rho, theta = v1[inside], v12[inside], v2[inside], rho[inside], theta[inside]
        log_w = 1.25 * np.log(v1 * v2 - v12**2) - 5 * np.log(theta[:, 2] * theta[:, 3]) - np.log1p(-(rho**2))
        log_w -= 0.5 * _trace(v1, v12, v2, self.scatter - self.clipped)
        accepted: np.ndarray = theta[-rng.standard_exponential(len(log_w)) < log_w - _log_max_weight()]
        return accepted

    def _draw_offset(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """``mu - mean``, ``(2, k)``: the accepted ones of ``size`` draws from the envelope of the t distribution."""
        offset: np.ndarray
        accepted: np.ndarray
        if self._uniform_mean:
            offset = rng.uniform(-_BOUND, _BOUND, (2, size)) - self.mean[:, None]
            accepted = rng.random(size) < ((1 + self._distance(offset)) / (1 + self._nearest)) ** -1.75
        else:
            t = rng.standard_normal((2, size)) / np.sqrt(rng.chisquare(1.5, size))
            offset = np.linalg.cholesky(self.clipped) @ t / 2
            accepted = np.all(np.abs(self.mean[:, None] + offset) <= _BOUND, axis=0)
        return offset[:, accepted]

    @cached_property
    def _log_bulk_mass(self) -> float:
        wishart = 3.5 * log(2) + 0.5 * log(pi) + lgamma(1.75) + lgamma(1.25)
        return _log_max_weight() - log(16) + wishart - 1.75 * self._log_det + min(self._log_plane, self._log_box)

    @cached_property
    def _uniform_mean(self) -> bool:
        return self._log_box < self._log_plane

    @cached_property
    def _log_plane(self) -> float:
        """The log integral of the t density over the plane."""
        return log(pi / 3) + 0.5 * self._log_det

    @cached_property
    def _log_box(self) -> float:
        """The log integral of its maximum over the box."""
        return float(2 * log(2 * _BOUND) - 1.75 * np.log1p(self._nearest))

    @cached_property
    def _log_det(self) -> float:
        return log(np.linalg.det(self.clipped))

    def _distance(self, offset: np.ndarray) -> np.ndarray:
        distance: np.ndarray = 4 * (offset * np.linalg.solve(self.clipped, offset)).sum(0)
        return distance

    @cached_property
    def _nearest(self) -> float:
        """The smallest distance between the mean and the box: zero inside, otherwise attained on an edge."""
        if (np.abs(self.mean) <= _BOUND).all():
            return 0.0
        precision = np.linalg.inv(self.clipped)
        candidates = []
        for a, b in ((0, 1), (1, 0)):
            for edge in (-_BOUND, _BOUND):
                fixed = edge - self.mean[a]
                free = np.clip(self.mean[b] - precision[a, b] / precision[b, b] * fixed, -_BOUND, _BOUND) - self.mean[b]
                candidates.append((fixed, free) if a == 0 else (free, fixed))
        return float(self._distance(np.array(candidates).T).min())

    # -- thin: theta3, theta4, theta5 uniform, mu | Sigma Gaussian

    def _thin(self, axis: int, size: int, rng: np.random.Generator) -> np.ndarray:
        lower, upper = _thin_box(axis)
        theta3, theta4, theta5 = rng.uniform(lower, upper, (size, 3)).T
        v1, v12, v2 = _covariance(theta3, theta4, theta5)
        determinant = v1 * v2 - v12**2
        log_f = -1.5 * np.log(determinant) - 0.5 * _trace(v1, v12, v2, self.scatter)
        z = rng.standard_normal((2, size)) / 2
        mu1 = self.mean[0] + np.sqrt(v1) * z[0]
        mu2 = self.mean[1] + v12 / np.sqrt(v1) * z[0] + np.sqrt(determinant / v1) * z[1]
        accepted = -rng.standard_exponential(size) < log_f - self._log_thin_height(axis)
        accepted &= (np.abs(mu1) <= _BOUND) & (np.abs(mu2) <= _BOUND)
        theta: np.ndarray = np.stack([mu1, mu2, theta3, theta4, theta5], axis=1)[accepted]
        return theta

    def _log_thin_mass(self, axis: int) -> float:
        lower, upper = _thin_box(axis)
        return log(pi / 2) + self._log_thin_height(axis) + float(np.log(upper - lower).sum())

    def _log_thin_height(self, axis: int) -> float:
        """The maximum of log f, which factorises into the variance of one coordinate and that of the other given it."""
        marginal = self.clipped[axis, axis]
        conditional = np.exp(self._log_det) / marginal
        variance = np.clip(marginal / 3, _JITTER, _THIN_SCALE**4 + _JITTER)
        other = max(conditional / 3, _JITTER)
        return float(-1.5 * np.log(variance * other) - 0.5 * marginal / variance - 0.5 * conditional / other)


def _trace(v1: np.ndarray, v12: np.ndarray, v2: np.ndarray, scatter: np.ndarray) -> np.ndarray:
    """The trace of Sigma^-1 S."""
    trace: np.ndarray = (v2 * scatter[0, 0] - 2 * v12 * scatter[0, 1] + v1 * scatter[1, 1]) / (v1 * v2 - v12**2)
    return trace


def _draw_inverse_wishart(
    t11: np.ndarray, t12: np.ndarray, t22: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, ...]:
    """Covariances with 7/2 degrees of freedom: L (A A^T)^-1 L^T with A by Bartlett's decomposition and T = L L^T."""
    size = len(t11)
    a, b = np.sqrt(rng.chisquare(3.5, size)), np.sqrt(rng.chisquare(2.5, size))
    shear = -rng.standard_normal(size) / (a * b)
    l11 = np.sqrt(t11)
    l21 = t12 / l11
    l22 = np.sqrt(t22 - l21**2)
    b11, b12, b21, b22 = l11 / a, l11 * shear, l21 / a, l21 * shear + l22 / b
    return b11**2 + b12**2, b11 * b21 + b12 * b22, b21**2 + b22**2


def _log_max_weight() -> float:
    """The maximum of w in the bulk: attained at the smallest scale and at one end of 1 - rho^2."""
    scale = _THIN_SCALE**4
    kappa = 2 * _JITTER / scale + (_JITTER / scale) ** 2
    return max(0.25 * log(c) + 1.25 * log(1 + kappa / c) for c in (1 - _MAX_RHO**2, 1.0))


def _thin_box(axis: int) -> tuple[np.ndarray, np.ndarray]:
    """The box where theta3 is thin (axis 0), or where theta4 is and theta3 is not (axis 1)."""
    if axis == 0:
        return np.array([0, 0, -_BOUND]), np.array([_THIN_SCALE, _BOUND, _BOUND])
    return np.array([_THIN_SCALE, 0, -_BOUND]), np.array([_BOUND, _THIN_SCALE, _BOUND])


TASK = Task(
    name="slcp",
    description="Simple likelihood, complex posterior: four Gaussian points in the plane, five parameters, four modes",
    prior=PRIOR,
    simulator=simulate,
    parameter_names=("theta_1", "theta_2", "theta_3", "theta_4", "theta_5"),
    theta_shape=(5,),
    x_shape=(8,),
    posterior=reference_posterior,
)


def _simulate_points(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return simulate(theta, rng).reshape(-1, 4, 2)


def _reference_of_points(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    return reference_posterior(x.reshape(8), n, rng)


def _pair_of_points(i: int) -> tuple[np.ndarray, np.ndarray]:
    return TASK.true_parameters(i), TASK.observation(i).reshape(4, 2)


EXCHANGEABLE = replace(
    TASK,
    description=f"{TASK.description}; the points as a set",
    simulator=_simulate_points,
    x_shape=(4, 2),
    posterior=_reference_of_points,
    pair=_pair_of_points,
    training={"exchangeable": True},
)
