"""The posterior in the hands of the real sbi package: `make peers`."""

import numpy as np
import pytest
import torch

import propersbi as ps

pytest.importorskip("sbi")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def fitted():
    task = ps.tasks.get("two_moons")
    sims = ps.simulate(task.prior, task.simulate, 2000, seed=0, progress=False)
    posterior = ps.fit(sims.theta, sims.x, prior=task.prior, max_steps=500, draws=5, progress=False)
    test = ps.simulate(task.prior, task.simulate, 100, seed=1, progress=False)
    return posterior, torch.from_numpy(np.asarray(test.theta)), torch.from_numpy(np.asarray(test.x))


def test_run_sbc_and_check_sbc(fitted):
    from sbi.diagnostics import check_sbc, run_sbc

    posterior, theta, x = fitted
    ranks, dap = run_sbc(theta, x, posterior, num_posterior_samples=100)
    assert ranks.shape == (100, 2)
    assert ((ranks >= 0) & (ranks <= 100)).all()
    draws = posterior.sample_batched((1,), x=x)[0]
    assert "ks_pvals" in check_sbc(ranks, theta, draws, num_posterior_samples=100)
    assert dap.shape == (100, 2)


def test_run_tarp(fitted):
    from sbi.diagnostics import run_tarp

    posterior, theta, x = fitted
    ecp, alpha = run_tarp(theta, x, posterior, num_posterior_samples=100)
    assert ecp.shape == alpha.shape


def test_pairplot_and_simulate_for_sbi(fitted):
    from sbi.analysis import pairplot
    from sbi.inference import simulate_for_sbi

    posterior, _, x = fitted
    posterior.set_default_x(x[0])
    pairplot(posterior.sample((200,)))
    theta, y = simulate_for_sbi(lambda theta: theta + 1, posterior, 20, show_progress_bar=False)
    assert theta.shape == y.shape == (20, 2)


def test_lc2st(fitted):
    from sbi.diagnostics import LC2ST

    posterior, theta, x = fitted
    draws = posterior.sample_batched((1,), x=x)[0]
    test = LC2ST(theta, x, draws, classifier="mlp", num_folds=1, num_trials_null=2)
    test.train_on_observed_data()
    assert test.get_statistic_on_observed_data(posterior.sample((100,), x=x[0]), x[0]) >= 0


def _priors():
    from sbi.utils import BoxUniform, MultipleIndependent, process_prior
    from torch.distributions import Exponential, Gamma, MultivariateNormal, Uniform

    class Own:
        def sample(self, sample_shape=()):
            return torch.rand(*sample_shape, 2)

        def log_prob(self, values):
            return torch.zeros(len(values))

    zero, one = torch.zeros(1), torch.ones(1)
    box = BoxUniform(torch.zeros(2), torch.tensor([1.0, 2.0]))
    normal = MultivariateNormal(torch.zeros(2), torch.eye(2))
    ends = {"lower_bound": torch.zeros(2), "upper_bound": torch.ones(2)}
    return {
        "box": (box, [0, 0], [1, 2]),
        "one": (BoxUniform(zero, one), [0], [1]),
        "list": (process_prior([Uniform(zero, one), Exponential(one)])[0], [0, 0], [1, np.inf]),
        "mixed": (MultipleIndependent([Gamma(one, one), normal]), [0, -np.inf, -np.inf], [np.inf] * 3),
        "own": (process_prior(Own(), ends)[0], [0, 0], [1, 1]),
    }


@pytest.mark.parametrize("name", ["box", "one", "list", "mixed", "own"])
def test_priors_of_sbi_are_drawn_from_and_their_bounds_known(name):
    prior, lower, upper = _priors()[name]
    sims = ps.simulate(prior, lambda theta: theta + torch.randn_like(theta), 200, progress=False)
    assert sims.theta.shape == (200, len(lower))
    posterior = ps.fit(sims.theta, sims.x, prior=prior, max_steps=2, refinement_steps=1, progress=False)
    low, high = (np.broadcast_to(end, len(lower)) for end in posterior.box.ends())
    np.testing.assert_allclose(low, lower, atol=1e-6)
    np.testing.assert_allclose(high, upper, atol=1e-6)
    draws = posterior.sample(1000, x=10 * np.ones(len(lower)), show_progress_bars=False).numpy()
    assert ((draws >= lower) & (draws <= upper)).all()
