"""Laws of executors."""

import numpy as np

from propersbi.simulation import simulate
from tests.laws.cases import EXECUTORS
from tests.laws.common import every


@every(EXECUTORS)
def test_executor_gives_the_bytes_of_serial(case):
    def prior_sample(n, rng):
        return rng.normal(size=(n, 2))

    prior = type("Normal", (), {"sample": staticmethod(prior_sample)})()
    simulator = lambda theta, rng: theta + rng.normal(size=theta.shape)  # noqa: E731
    expected = simulate(prior, simulator, 250, seed=3, progress=False)
    given = simulate(prior, simulator, 250, seed=3, executor=case, progress=False)
    assert np.asarray(given.theta).tobytes() == np.asarray(expected.theta).tobytes()
    assert np.asarray(given.x).tobytes() == np.asarray(expected.x).tobytes()
