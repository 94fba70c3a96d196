"""An observation unlike the simulations is noticed; one of their own kind is not, and nothing else changes."""

from __future__ import annotations

import hashlib
import json
import time
import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import propersbi as ps
from propersbi.posterior import Posterior
from propersbi.samplers import Sampler
from propersbi.storage.files import checksum_of_json
from propersbi.types import InputError
from propersbi.typicality import TypicalityTest, UnlikeSimulations, features_of, find_typicality, p_values_of
from propersbi.typicality.conformal import MAX_NUMBERS

TINY = {"max_steps": 4, "refinement_steps": 1, "draws": 3, "progress": False}
NOISE = 0.1**0.5  # the standard deviation in the ten-parameter Gaussian


def p_values(posterior, x):
    rows = torch.as_tensor(np.asarray(x))
    with torch.no_grad():
        return posterior.typicality_test.p_values(rows.flatten(1), features_of(posterior.sampler, rows)).numpy()


def gaussian(n, seed):
    task = ps.tasks.get("gaussian_linear")
    sims = ps.simulate(task.prior, task.simulate, n, seed=seed, progress=False)
    return np.asarray(sims.theta), np.asarray(sims.x)


@pytest.fixture(scope="module")
def linear():
    return ps.fit(*gaussian(2000, 1), max_steps=4, progress=False)


def test_size_and_power_on_the_ten_parameter_gaussian(linear):
    x = gaussian(2000, 2)[1]
    own = p_values(linear, x)
    assert (own <= 0.05).mean() <= 0.05
    assert (own < 0.01).mean() <= 0.01
    assert (own <= 0.05).mean() > 0.01  # it is a test, and not silence
    shifted = p_values(linear, x + 6 * NOISE)
    assert (shifted <= 0.05).mean() >= 0.95
    assert (shifted < 0.01).mean() >= 0.95
    one = x.copy()
    one[:, 3] += 8 * NOISE
    assert (p_values(linear, one) <= 0.05).mean() >= 0.95
    assert p_values(linear, x + 50).max() < 1e-6


@pytest.mark.parametrize("n", [100, 300, 1000])
def test_the_size_holds_for_few_simulations_on_average(n):
    rng = np.random.default_rng(n)
    sizes = []
    for seed in range(8):
        x = np.exp(0.7 * rng.normal(size=(n, 5))) @ rng.normal(size=(5, 5))  # skewed and correlated
        test = find_typicality(Plain(), x, np.arange(n // 10, n), seed=seed)
        fresh = np.exp(0.7 * rng.normal(size=(500, 5))) @ np.linalg.lstsq(x, x, rcond=None)[0]
        sizes.append((test.p_values(torch.as_tensor(x[: n // 10]), None) <= 0.05).double().mean().item())
        assert test.p_values(torch.as_tensor(fresh + 1e3), None).max() < 0.01
    assert np.mean(sizes) <= 0.05


class Plain(Sampler):
    """Has no features of its own."""

    theta_shape, x_shape = (1,), (5,)

    def sample(self, m, x):
        return torch.randn(m, len(x), 1)


def test_a_number_that_contradicts_the_others_is_named():
    rng = np.random.default_rng(0)
    wave = rng.normal(size=(800, 1)) + 0.05 * rng.normal(size=(800, 6))  # six times the same number
    test = find_typicality(Plain(), wave, np.arange(80, 800))
    odd = torch.zeros(1, 6, dtype=torch.float64)
    odd[0, 4] = 1.0  # by itself nothing special
    assert test.p_values(odd, None) < 0.01
    first = test.deviant(odd, (2, 3), list("abcdef"))[0]
    assert (first.name, first.place, first.given_others) == ("e", (1, 1), True)
    assert str(first).startswith("e lies ")
    assert str(first).endswith("standard deviations above what the other numbers predict")
    assert test.deviant(torch.zeros(1, 6), (6,)) == ()


def test_posterior_says_how_typical_an_observation_is(linear):
    p_value, deviant = linear.typicality(np.full(10, 0.1))
    assert p_value > 0.05
    assert deviant == ()
    x = np.zeros(10)
    x[7] = 50.0
    found = linear.typicality(x)
    assert found.p_value < 1e-6
    assert found.unlike
    assert [part.name for part in found.deviant] == ["x[7]"]
    assert found.sentence.startswith("The observation is unlike the simulations (p < 1e-06): x[7] lies 1")
    with pytest.raises(InputError, match="keeps no statistics"):
        Posterior(Plain()).typicality(np.zeros(5))


def test_sampling_warns_once_and_draws_the_same(linear):
    x = np.zeros(10)
    with pytest.warns(UnlikeSimulations, match=r"x\[\d\] lies 1\d\d .* may be wrong there") as caught:
        linear.sample(5, x=x + 50)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    silent = Posterior(linear.sampler)
    torch.manual_seed(3)
    expected = silent.sample(20, x=x)
    torch.manual_seed(3)
    assert torch.equal(linear.sample(20, x=x), expected)


def test_batches_warn_of_more_rows_than_chance_explains(linear):
    x = gaussian(1000, 3)[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        linear.sample_batched(1, x)
    x[17] += 50
    with pytest.warns(UnlikeSimulations, match=r"of 1000 observations are unlike the simulations, .* row 17 \(p"):
        linear.sample_batched(1, x)
    with pytest.warns(UnlikeSimulations, match="1000 of 1000 observations"):
        linear.sample_batched(1, gaussian(1000, 4)[1] + 6 * NOISE)


def test_it_costs_little(linear):
    x = torch.zeros(1, 10)
    assert _milliseconds(linear, x) < 5


def _milliseconds(posterior, x):
    def once():
        started = time.perf_counter()
        p_values_of(posterior.typicality_test, posterior.sampler, x)
        return 1e3 * (time.perf_counter() - started)

    once()
    return min(once() for _ in range(30))  # others may be busy on the same machine


@pytest.mark.parametrize("shape", [(1000,), (1, 40, 40), (70, 80)])
def test_data_of_many_numbers(shape):
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(260, 2)).astype(np.float32)
    shapes = rng.normal(size=(2, *shape)).astype(np.float32)
    x = np.tensordot(theta, shapes, 1) + 0.3 * rng.normal(size=(260, *shape)).astype(np.float32)
    made = ps.fit(theta, x, embedding=torch.nn.Flatten(), **TINY)
    assert len(made.typicality_test.kept) == min(np.prod(shape), MAX_NUMBERS)
    assert made.typicality(x[0]).p_value > 0.01
    odd = x[0].copy()
    odd.reshape(-1)[:: max(1, odd.size // 200)] += 6 * 0.3 * 3
    assert made.typicality(odd).unlike
    assert made.typicality(x[0] + 50).unlike
    assert _milliseconds(made, torch.as_tensor(odd[None])) < 5


def test_columns_that_do_not_vary():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(400, 2)), np.zeros((400, 1)), np.full((400, 1), 7.0)], 1)
    test = find_typicality(Plain(), x, np.arange(40, 400))
    good = torch.tensor([[0.1, -0.2, 0.0, 7.0]])
    assert test.p_values(good, None) > 0.05
    for column, value in ((2, 0.5), (3, 7.1)):
        bad = good.clone()
        bad[0, column] = value
        assert test.p_values(bad, None) < 0.01
        assert test.deviant(bad, (4,))[0].place == (column,)
    assert find_typicality(Plain(), np.zeros((100, 3)), np.arange(10, 100)).p_values(torch.zeros(1, 3), None) == 1


def test_too_few_simulations_say_nothing():
    rng = np.random.default_rng(0)
    made = ps.fit(rng.normal(size=(30, 1)), rng.normal(size=(30, 2)), **TINY)
    assert made.typicality_test is None
    made.sample(3, x=[1e6, 1e6])


@pytest.mark.parametrize("options", [{"objective": ps.MaximumLikelihood}, {"ensemble": 2}, {}])
def test_every_kind_of_posterior_keeps_it_on_disk(tmp_path, options):
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(200, 2))
    x = theta + 0.1 * rng.normal(size=theta.shape)
    more = {"max_steps": 4, "progress": False} if "objective" in options else TINY
    made = ps.fit(theta, x, folder=tmp_path, **options, **more)
    loaded = Posterior.load(tmp_path / "posterior")
    for point in ([0.3, 0.2], [40.0, 0.0]):
        assert loaded.typicality(point) == made.typicality(point)
    assert loaded.typicality([40.0, 0.0]).unlike


def test_names_of_the_data_are_kept(tmp_path):
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(200, 2))
    made = ps.fit(theta, theta + 0.1 * rng.normal(size=theta.shape), **TINY)
    named = Posterior(made.sampler, typicality_test=made.typicality_test, x_names=["infected", "dead"])
    named.save(tmp_path / "p")
    loaded = Posterior.load(tmp_path / "p")
    assert loaded.x_names == ("infected", "dead")
    assert "infected lies" in loaded.typicality([40.0, 0.0]).sentence
    with pytest.raises(InputError, match="There are 1 data names for 2 numbers"):
        Posterior(made.sampler, x_names=["infected"])


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: tensors.pop("typicality.calibration"),
        lambda tensors: tensors.update({"typicality.calibration": torch.full((50,), torch.nan)}),
        lambda tensors: tensors.update({"typicality.kept": torch.tensor([0, 99])}),
        lambda tensors: tensors.update({"typicality.data.axes": torch.zeros(3, 3)}),
        lambda tensors: tensors.update({"typicality.limits": torch.zeros(1)}),
        lambda tensors: tensors.update({"typicality.extra": torch.zeros(1)}),
    ],
)
def test_damaged_statistics_are_refused(tmp_path, change):
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(100, 2))
    ps.fit(theta, theta + 0.1 * rng.normal(size=theta.shape), **TINY).save(tmp_path / "p")
    tensors = load_file(tmp_path / "p" / "weights.safetensors")
    change(tensors)
    save_file(tensors, tmp_path / "p" / "weights.safetensors")
    config = json.loads((tmp_path / "p" / "config.json").read_text())
    config.pop("checksum")
    config["weights"] = hashlib.sha256((tmp_path / "p" / "weights.safetensors").read_bytes()).hexdigest()
    (tmp_path / "p" / "config.json").write_text(json.dumps({**config, "checksum": checksum_of_json(config)}))
    with pytest.raises(InputError, match="statistics of the simulations"):
        Posterior.load(tmp_path / "p")


def test_it_is_the_same_from_its_tensors(linear):
    twin = TypicalityTest.from_tensors(linear.typicality_test.to_tensors(), 10)
    x = torch.as_tensor(gaussian(50, 5)[1])
    features = features_of(linear.sampler, x)
    assert torch.equal(twin.p_values(x, features), linear.typicality_test.p_values(x, features))
