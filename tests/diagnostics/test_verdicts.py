"""A verdict is true: it says no more than was measured, and no sentence contradicts another."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

import propersbi as ps
from propersbi.diagnostics import diagnose
from propersbi.diagnostics.convergence import Convergence, convergence_of
from propersbi.diagnostics.headline import CALIBRATION, REASONS, headline
from propersbi.diagnostics.support import share_outside
from propersbi.diagnostics.verdicts import EXIT_CODES, Verdict, curve_band, overall
from propersbi.posterior import Posterior
from propersbi.samplers import Sampler
from propersbi.training.history import History, StopReason
from propersbi.typicality import Deviation, Typicality, UnlikeSimulations
from tests.diagnostics.test_diagnostics import Normal, pairs, run, simulator, verdict

FALLING = [4.0, 3.0, 2.5, 2.0, 1.5, 1.2, 1.0, 0.9, 0.8, 0.7]


def history(scores, stopped=StopReason.MAX_STEPS, excess=None, every=100):
    steps = [every * (i + 1) for i in range(len(scores))]
    curves = {"step": steps, "score": list(scores), "excess": excess or [0.0] * len(scores)}
    return History(validation=curves, steps=steps[-1], stopped=stopped, kept_step=steps[-1], kept_score=scores[-1])


@pytest.fixture(scope="module")
def exact():
    return run(n=400)


@pytest.mark.parametrize(
    ("scores", "converged"),
    [
        (FALLING, False),
        ([4.0, 1.0], False),
        ([4.0], False),
        ([4.0, 1.2, 1.01, 1.005, 1.001, 1.0, 1.0, 1.0, 1.0, 1.0], True),
        ([2.0772, 2.0770, 2.0771, 2.0769], True),  # flat from the start: a regression came first
        ([1.7, 1.68, 1.66, 1.67, 1.7, 1.72, 1.73, 1.73, 1.73, 1.73], True),  # overfits, and the best is kept
        ([-1.0, -1.5, -2.0, -2.5, -3.0], False),
    ],
)
def test_a_training_that_was_cut_off_is_seen(scores, converged):
    assert convergence_of(history(scores)).converged is converged


def test_a_fall_within_the_noise_is_none():
    scores = [2.0, 1.9, 1.8, 1.7, 1.6, 1.62, 1.56, 1.58, 1.5, 1.5]
    assert convergence_of(history(scores)).converged is False
    noisy = [0.0, 0.0, 0.0, 0.0, 0.0, 0.2, 0.0, 0.2, 0.0, 0.0]
    assert convergence_of(history(scores, excess=noisy)).converged is True


@pytest.mark.parametrize("reason", list(StopReason))
def test_every_reason_to_stop_is_judged(reason):
    found = convergence_of(history(FALLING, reason))
    settled = (StopReason.PATIENCE, StopReason.SETTLED, StopReason.FIRST_RISE, StopReason.EVEN)
    assert found.converged is (reason in settled)
    assert found.sentence.endswith(".")


def test_face_value_needs_pairs_convergence_and_a_typical_observation(exact):
    few = run(n=299)
    cut = replace(exact, convergence=convergence_of(history(FALLING)))
    unlike = Typicality(0.005, (Deviation("x[1]", (1,), 7.0, False),))
    far = Typicality(1e-9, unlike.deviant)
    cases = [
        (exact, "good", "face value"),
        (
            replace(exact, convergence=Convergence(True, "It had."), typicality=Typicality(0.3, ())),
            "good",
            "face value",
        ),
        (few, "fair", "299 test pairs are too few"),
        (cut, "fair", "cut off after 1000 steps while its validation score still fell"),
        (
            replace(exact, typicality=unlike),
            "fair",
            "unlike the simulations (p = 0.005): x[1] lies 7 standard deviations",
        ),
        (replace(exact, typicality=far), "poor", "This posterior should not be trusted, although 400 test pairs"),
    ]
    for result, word, text in cases:
        assert result.overall == word
        assert text in result.headline
        assert ("can be taken at face value" in result.headline) == (word == "good")
        assert result.exit_code == {"good": 0, "fair": 3, "poor": 4}[word] == EXIT_CODES[word]


def test_no_sentence_contradicts_another():
    names = [*CALIBRATION, *(name for name in REASONS if name != "Test pairs")]
    for words in product(("good", "fair", "poor"), repeat=3):
        for places in product(range(len(names)), repeat=2):
            given = dict.fromkeys(names, "good") | {"Energy skill": words[2]}
            given |= dict(zip((names[i] for i in places), words, strict=False))
            rows = tuple(Verdict(name, 0.5, word, f"<{name}>.") for name, word in given.items())
            text, word = headline(rows, 500), overall(rows)
            assert ("can be taken at face value" in text) == (word == "good")
            assert ("should not be trusted" in text) == (word == "poor")
            assert not ("roughly right" in text and "not be trusted" in text)
            assert all(f"<{name}>" in text for name in names if given[name] == "poor" and name not in CALIBRATION)


def test_a_joint_curve_outside_its_band_is_not_good(exact):
    levels, low, high = curve_band(exact.n, exact.num_samples)
    assert verdict(exact, "Joint coverage (TARP)").verdict == "good"
    for shift, word in ((0.001, "fair"), (0.2, "poor")):
        curve = np.concatenate([[0.0], np.where(levels < 0.5, high + shift, levels)])
        outside = replace(exact, arrays={**exact.arrays, "tarp": curve})
        assert verdict(outside, "Joint coverage (TARP)").verdict == word
        assert "leaves the band" in verdict(outside, "Joint coverage (TARP)").reading
        assert outside.overall == word
    inside = replace(exact, arrays={**exact.arrays, "tarp": np.concatenate([[0.0], (low + high) / 2])})
    assert verdict(inside, "Joint coverage (TARP)").verdict == "good"


def test_a_worthless_mean_is_said(exact):
    worse = {**exact.parameters, "r2": np.array([0.5, -0.8, 0.5])}
    result = replace(exact, parameters=worse)
    assert result.overall == "poor"
    assert "theta_2, the worst, is further from the truth than the prior's mean (R² = -0.80)" in result.headline


class Exact(Sampler):
    """The posterior of theta ~ N(0, 1), x = theta + N(0, 1)."""

    theta_shape, x_shape = (3,), (3,)

    def sample(self, m, x):
        return x.float() / 2 + 0.5**0.5 * torch.randn(m, *x.shape)


def test_a_posterior_of_the_library_brings_its_history_and_its_prior():
    prior = torch.distributions.Normal(torch.zeros(3), torch.ones(3))
    theta, x = pairs(300)
    made = Posterior(Exact(), prior=prior, history=history(FALLING))
    result = diagnose(made, theta, x, num_samples=100, observation=x[0], simulator=simulator, progress=False)
    assert not result.convergence.converged
    assert result.overall == "fair"
    assert result.arrays["prior"].shape == (10_000, 3)
    assert result.scores["outside"] == 0
    assert result.typicality is None
    assert "prior" not in diagnose(Normal(), theta, x, num_samples=100, progress=False).arrays
    given = diagnose(made, theta, x, num_samples=100, prior_samples=theta[:50], progress=False)
    assert given.arrays["prior"].shape == (50, 3)


def test_a_prior_that_cannot_be_drawn_from_loses_nothing_else():
    class Broken:
        def sample(self, n, rng):
            raise RuntimeError("no licence")

    theta, x = pairs(60)
    result = diagnose(Posterior(Exact(), prior=Broken()), theta, x, num_samples=100, observation=x[0], progress=False)
    assert "could not be drawn from (RuntimeError: no licence)" in result.notes[0]
    assert "outside" not in result.scores


def test_draws_outside_the_prior_are_counted(exact):
    uniform = torch.distributions.Uniform(-torch.ones(3), torch.ones(3))
    theta, x = pairs(60)
    made = Posterior(Exact(), prior=uniform)
    result = diagnose(made, theta, x, num_samples=100, observation=np.zeros(3), progress=False)
    assert result.scores["outside"] == pytest.approx(1 - 0.8427**3, abs=0.03)
    assert verdict(result, "Outside the prior").verdict == "poor"
    assert "lie where the prior has no density" in result.headline
    draws = np.array([[0.5, 0.5], [0.4, 0.6], [0.7, 0.7], [-0.5, 1.5]])
    assert share_outside(torch.distributions.Dirichlet(torch.ones(2)), draws) == 0.5
    assert share_outside([(0.0, 0.6), (0.0, 1.0)], draws) == 0.5
    assert share_outside(lambda rng: rng.normal(size=2), draws) is None


def test_an_unlike_observation_is_said_everywhere(tmp_path):
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(600, 2))
    x = theta + 0.1 * rng.normal(size=theta.shape)
    options = {"max_steps": 5, "refinement_steps": 1, "draws": 3, "progress": False}
    made = ps.fit(theta, x, **options)
    test = rng.normal(size=(50, 2))
    given = {"num_samples": 100, "progress": False}
    with pytest.warns(UnlikeSimulations, match=r"unlike the simulations \(p .* x\[0\] lies 51") as caught:
        result = diagnose(made, test, test + 0.1 * rng.normal(size=test.shape), observation=[50.0, 0.0], **given)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert result.overall == "poor"
    assert result.typicality.deviant[0].place == (0,)
    assert "unlike the simulations" in " ".join(result.summary().split())
    result.save(tmp_path)
    assert ps.Diagnostics.load(tmp_path).typicality == result.typicality
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        diagnose(made, test, test + 0.1 * rng.normal(size=test.shape), observation=[0.5, 0.0], **given)


def test_the_result_shows_itself_in_notebooks(exact):
    page = exact._repr_html_()
    assert "Diagnostics: good." in page
    assert "<td>Joint coverage (TARP)</td>" in page
