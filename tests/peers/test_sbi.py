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
