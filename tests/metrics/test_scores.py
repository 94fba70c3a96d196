"""Metrics against their definitions."""

import numpy as np
import pytest
import scoringrules
import torch
from sklearn.model_selection import KFold, cross_val_score
from sklearn.neural_network import MLPClassifier

from propersbi import metrics
from propersbi.metrics import scores
from propersbi.metrics.classifier import cross_validated_accuracy
from propersbi.types import InputError

PER_ROW = [metrics.crps, metrics.energy_score]
PER_PARAMETER = [metrics.rmse, metrics.nrmse, metrics.r2, metrics.calibration_error]


def conjugate(m, n, seed=0, width=1.0):
    """theta ~ N(0, 1), x = theta + N(0, 1), posterior N(x / 2, 1 / 2): draws ``width`` times as wide."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(n, 2))
    mean = (theta + rng.normal(size=(n, 2))) / 2
    return mean + width * rng.normal(0, 0.5**0.5, (m, n, 2)), theta


# -- classifier two-sample test


def test_c2st_of_equal_and_of_disjoint_distributions():
    a, b = np.random.default_rng(0).normal(size=(2, 400, 2))
    assert metrics.c2st(a, b) == pytest.approx(0.5, abs=0.06)
    assert metrics.c2st(a + 20, b) == 1.0  # a second call: no module may have replaced the function


def test_c2st_is_sbibms():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(150, 2, generator=generator), 1.3 * torch.randn(150, 2, generator=generator) + 0.5
    mean, sd = torch.mean(x, dim=0), torch.std(x, dim=0)
    data = torch.cat([(x - mean) / sd, (y - mean) / sd]).numpy()
    target = np.concatenate((np.zeros(150), np.ones(150)))
    network = MLPClassifier(
        activation="relu", hidden_layer_sizes=(20, 20), max_iter=10000, solver="adam", random_state=1
    )
    folds = KFold(n_splits=5, shuffle=True, random_state=1)
    expected = cross_val_score(network, data, target, cv=folds, scoring="accuracy").mean()
    assert 0.55 < expected < 0.9
    assert metrics.c2st(y.reshape(150, 2, 1), x.reshape(150, 2, 1)) == pytest.approx(expected, abs=0.004)


@pytest.mark.parametrize("n", [60, 61, 403])  # folds of equal and of unequal sizes, with and without a short batch
def test_the_perceptrons_are_those_of_scikit_learn(n):
    rng = np.random.default_rng(n)
    data = rng.normal(size=(n, 3)).astype(np.float32)
    label = (data[:, 0] + rng.normal(0, 0.5, n) > 0).astype(int)
    network = MLPClassifier((12, 7), max_iter=10_000, random_state=3)
    expected = cross_val_score(network, data, label, cv=KFold(4, shuffle=True, random_state=3)).mean()
    accuracy = cross_validated_accuracy(data, label, hidden=(12, 7), folds=4, seed=3)
    assert 0.6 < expected < 1
    assert accuracy == pytest.approx(expected, abs=0.02)


def test_c2st_does_not_change_the_number_of_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        metrics.c2st(np.random.default_rng(0).normal(size=(20, 1)), np.random.default_rng(1).normal(size=(20, 1)))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_c2st_refuses_a_constant_reference():
    a = np.random.default_rng(0).normal(size=(50, 2))
    with pytest.raises(InputError, match="1 of the 2 parameters do not vary"):
        metrics.c2st(a, a * [1, 0])


# -- point estimates


def test_point_estimates_by_hand():
    theta = np.array([[0.0, 10.0], [2.0, 30.0]])
    samples = np.stack([theta + 1, theta + 3])
    assert np.allclose(metrics.rmse(samples, theta), 2)
    assert np.allclose(metrics.nrmse(samples, theta), [1, 0.1])
    assert np.allclose(metrics.r2(samples, theta), [1 - 4 / 1, 1 - 4 / 100])


def test_r2_and_skill_of_the_exact_posterior():
    samples, theta = conjugate(100, 2000)
    assert metrics.r2(samples, theta) == pytest.approx(0.5, abs=0.05)
    prior = np.random.default_rng(9).normal(size=(1000, 2))
    assert metrics.energy_skill(samples, theta, prior) == pytest.approx(1 - 0.5**0.5, abs=0.03)
    nothing = np.random.default_rng(8).normal(size=(100, 2000, 2))
    assert metrics.energy_skill(nothing, theta, prior) == pytest.approx(0, abs=0.01)


# -- calibration error


def slow_calibration_error(samples, theta):
    """The definition, one level and one parameter at a time."""
    errors = []
    for j in range(theta.shape[1]):
        gaps = []
        for alpha in np.linspace(0.01, 1, 100):
            tail = round((1 - alpha) / 2, 3)
            lower, upper = np.quantile(samples[:, :, j], [tail, round(1 - tail, 3)], axis=0)
            gaps.append(abs(np.mean((lower < theta[:, j]) & (theta[:, j] < upper)) - alpha))
        errors.append(np.median(gaps))
    return np.array(errors)


def test_calibration_error_is_its_definition(monkeypatch):
    samples, theta = conjugate(60, 40)
    expected = slow_calibration_error(samples, theta)
    assert np.allclose(metrics.calibration_error(samples, theta), expected)
    monkeypatch.setattr(scores, "MAX_CELLS_PER_BLOCK", 10)  # one parameter at a time
    assert np.allclose(metrics.calibration_error(samples, theta), expected)


def test_calibration_error_detects_over_and_under_confidence():
    exact, narrow, wide = (metrics.calibration_error(*conjugate(200, 4000, width=w)).max() for w in (1, 0.5, 2))
    assert exact < 0.02
    assert narrow > 0.15
    assert wide > 0.15


# -- scores


def test_crps_against_brute_force_and_scoringrules():
    samples, theta = conjugate(30, 20)
    between = np.abs(samples[:, None] - samples[None]).sum((0, 1)) / (30 * 29)
    ours = metrics.crps(samples, theta)
    assert np.allclose(ours, np.abs(samples - theta).mean(0) - between / 2)
    assert np.allclose(ours, scoringrules.crps_ensemble(theta, np.moveaxis(samples, 0, -1), estimator="fair"))


def test_energy_score_against_brute_force(monkeypatch):
    samples, theta = conjugate(30, 20)
    samples += 1e4  # far from the origin distances must not cancel
    theta += 1e4
    to_theta = np.linalg.norm(samples - theta, axis=-1).mean(0)
    between = np.linalg.norm(samples[:, None] - samples[None], axis=-1).sum((0, 1)) / (30 * 29)
    assert np.allclose(metrics.energy_score(samples, theta), 2 * to_theta - between, rtol=1e-9)
    monkeypatch.setattr(scores, "MAX_CELLS_PER_BLOCK", 100)  # blocks of three draws
    assert np.allclose(metrics.energy_score(samples, theta), 2 * to_theta - between, rtol=1e-9)
    assert np.allclose(metrics.crps(samples, theta)[:, 0] * 2, metrics.energy_score(samples[..., :1], theta[:, :1]))


@pytest.mark.parametrize("score", PER_ROW)
def test_scores_are_unbiased_in_the_number_of_draws(score):
    few, many = score(*conjugate(2, 20_000)), score(*conjugate(20, 4000, seed=1))
    error = np.sqrt(few.var(0) / len(few) + many.var(0) / len(many))
    assert np.all(np.abs(few.mean(0) - many.mean(0)) < 4 * error)


def test_mmd():
    x, y = np.random.default_rng(0).normal(size=(2, 40, 3))
    square = (
        ((x[:, None] - y[None]) ** 2).sum(-1),
        ((x[:, None] - x[None]) ** 2).sum(-1),
        ((y[:, None] - y) ** 2).sum(-1),
    )
    xy, xx, yy = (np.exp(-s / 2 / 1.5**2) for s in square)
    off = ~np.eye(40, dtype=bool)
    assert metrics.mmd(x, y, bandwidth=1.5) == pytest.approx(xx[off].mean() + yy[off].mean() - 2 * xy.mean())
    values = [metrics.mmd(*np.random.default_rng(seed).normal(size=(2, 30, 1))) for seed in range(200)]
    assert abs(np.mean(values)) < 4 * np.std(values) / 200**0.5
    assert min(values) < 0
    with pytest.raises(InputError, match=r"'bandwidth' must be positive and less than 1e150, got -1"):
        metrics.mmd(x, y, bandwidth=-1)


# -- shapes


@pytest.mark.parametrize("metric", [*PER_ROW, *PER_PARAMETER])
def test_results_have_the_shape_of_the_event_and_tensors_are_accepted(metric):
    samples, theta = np.random.default_rng(0).normal(size=(9, 5, 2, 3)), np.random.default_rng(1).normal(size=(5, 2, 3))
    result = metric(samples, theta)
    shape = {metrics.crps: (5, 2, 3), metrics.energy_score: (5,)}.get(metric, (2, 3))
    assert result.shape == shape
    assert np.array_equal(metric(torch.tensor(samples), torch.tensor(theta)), result)
    if metric is not metrics.energy_score:
        one = metric(samples[..., 1, 2], theta[..., 1, 2])
        assert np.allclose(one, result[..., 1, 2])
    assert np.allclose(metric(samples.astype(np.float32), theta), result, atol=1e-5)


@pytest.mark.parametrize("metric", [*PER_ROW, *PER_PARAMETER])
def test_wrong_draws_are_refused_with_their_shapes(metric):
    theta = np.random.default_rng(0).normal(size=(5, 2))
    with pytest.raises(InputError, match=r"got \(9, 4, 2\) and \(5, 2\)"):
        metric(np.zeros((9, 4, 2)), theta)
    with pytest.raises(InputError, match=r"got \(0, 5, 2\)"):
        metric(np.zeros((0, 5, 2)), theta)
    with pytest.raises(InputError, match="finite, got 90 and 0 non-finite values"):
        metric(np.full((9, 5, 2), np.nan), theta)


@pytest.mark.parametrize("metric", PER_ROW)
def test_a_spread_needs_two_draws(metric):
    with pytest.raises(InputError, match=r"m >= 2.*got \(1, 5, 2\)"):
        metric(np.zeros((1, 5, 2)), np.zeros((5, 2)))


@pytest.mark.parametrize("metric", [metrics.nrmse, metrics.r2])
def test_parameters_that_do_not_vary_are_refused(metric):
    with pytest.raises(InputError, match="2 of the 2 parameters do not vary"):
        metric(np.zeros((9, 5, 2)), np.zeros((5, 2)))


@pytest.mark.parametrize("metric", [metrics.c2st, metrics.mmd])
def test_wrong_sets_are_refused_with_their_shapes(metric):
    with pytest.raises(InputError, match=r"got \(.*\) and \(.*\)"):
        metric(np.zeros((9, 3)), np.zeros((9, 2)))
    with pytest.raises(InputError, match=r"k > 1"):
        metric(np.zeros((1, 2)), np.zeros((9, 2)))
    with pytest.raises(InputError, match="non-finite values"):
        metric(np.full((9, 2), np.inf), np.zeros((9, 2)))


def test_prior_draws_must_fit():
    with pytest.raises(InputError, match=r"'prior_samples' must be finite draws.*got \(9, 3\)"):
        metrics.energy_skill(np.zeros((9, 5, 2)), np.zeros((5, 2)), np.zeros((9, 3)))


def test_the_energy_distance_of_point_masses_and_of_equal_distributions():
    zeros, threes = np.zeros((4, 1)), np.full((5, 1), 3.0)
    assert metrics.energy_distance(zeros, threes) == 6
    rng = np.random.default_rng(0)
    same = [metrics.energy_distance(*rng.normal(size=(2, 20, 2))) for _ in range(500)]
    assert abs(np.mean(same)) < 4 * np.std(same) / np.sqrt(500)  # unbiased, so below zero as often as above
