"""The verdicts are right where the answer is known, and results survive the disk."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from propersbi.diagnostics import Diagnostics, diagnose
from propersbi.types import InputError


class Normal:
    """The posterior of theta ~ N(0, 1), x = theta + N(0, 1), made wider or narrower, or shifted."""

    def __init__(self, width=1.0, shift=0.0):
        self.width, self.shift = width, shift

    def sample_batched(self, sample_shape, x, show_progress_bars=True):
        noise = torch.randn(*sample_shape, *x.shape)
        return x / 2 + self.shift + self.width * 0.5**0.5 * noise


def pairs(n=600, event=(3,), seed=0):
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(n, *event))
    return theta, theta + rng.normal(size=theta.shape)


def simulator(theta, rng):
    return theta + rng.normal(size=theta.shape)


def run(posterior=None, n=600, event=(3,), **options):
    theta, x = pairs(n, event)
    return diagnose(posterior or Normal(), theta, x, **{"num_samples": 200, "progress": False, **options})


@pytest.fixture(scope="module")
def exact():
    return run(observation=pairs()[1][0], simulator=simulator)


def verdict(result, name):
    return next(row for row in result.verdicts if row.name == name)


def test_exact_posterior_is_good_throughout(exact):
    assert exact.overall == "good", exact.summary()
    assert "face value" in exact.headline
    assert np.allclose(exact.parameters["r2"], 0.5, atol=0.1)
    assert np.allclose(exact.parameters["rmse"], 0.5**0.5, atol=0.05)
    assert np.allclose(exact.parameters["crps"], 0.5**0.5 / np.pi**0.5, atol=0.03)
    assert np.allclose(exact.parameters["coverage_90"], 0.9, atol=0.04)
    assert exact.scores["energy_skill"] == pytest.approx(1 - 0.5**0.5, abs=0.03)


def test_reference_posterior_is_compared():
    exact = 0.5**0.5 * np.random.default_rng(1).normal(size=(60, 1))
    good = run(n=30, event=(1,), num_samples=100, observation=np.zeros(1), reference=exact)
    poor = run(n=30, event=(1,), num_samples=100, observation=np.zeros(1), reference=exact + 5)
    assert verdict(good, "C2ST").verdict == "good"
    assert verdict(poor, "C2ST").verdict == "poor"
    assert "classifier" in poor.headline
    assert poor.arrays["reference"].shape == (60, 1)


def test_no_false_alarm_over_many_test_sets():
    words = [
        diagnose(Normal(), *pairs(300, (2,), seed), num_samples=100, seed=seed, progress=False).overall
        for seed in range(30)
    ]
    assert words.count("poor") == 0
    assert words.count("fair") <= 4


@pytest.mark.parametrize(
    ("posterior", "word"), [(Normal(width=0.6), "too narrow"), (Normal(width=2.0), "too wide"), (Normal(shift=0.5), "")]
)
def test_wrong_posteriors_are_poor(posterior, word):
    result = run(posterior)
    assert result.overall == "poor"
    assert "should not be trusted" in result.headline
    assert word in verdict(result, "90 % intervals").reading
    assert verdict(result, "SBC").verdict == "poor"


def test_shift_is_told_from_its_ranks():
    assert (run(Normal(shift=0.5)).parameters["rank_mean"] < 0.4).all()


def test_noise_and_prior_have_no_skill():
    class Prior:
        def sample_batched(self, sample_shape, x, show_progress_bars=True):
            return torch.randn(*sample_shape, *x.shape)

    skill = verdict(run(Prior()), "Energy skill")
    assert skill.verdict == "fair"
    assert skill.value == pytest.approx(0, abs=0.03)
    assert verdict(run(Normal(shift=3.0)), "Energy skill").verdict == "poor"


def test_result_does_not_depend_on_the_caller(exact):
    torch.manual_seed(5)
    np.random.seed(5)
    again = run()
    assert np.array_equal(again.arrays["ranks"], exact.arrays["ranks"])
    assert torch.initial_seed() == 5


def test_observation_arrays(exact):
    assert exact.arrays["samples"].shape == (10_000, 3)
    assert exact.arrays["predictive"].shape == (200, 3)
    assert np.allclose(exact.arrays["samples"].mean(0), pairs()[1][0] / 2, atol=0.03)


def test_failing_simulator_loses_nothing_else():
    def broken(theta):
        raise RuntimeError("no licence")

    result = run(observation=np.zeros(3), simulator=broken)
    assert "samples" in result.arrays
    assert "predictive" not in result.arrays
    assert any("RuntimeError: no licence" in note for note in result.notes)


def test_simulators_in_torch_and_with_invalid_rows():
    def in_torch(theta):
        assert isinstance(theta, torch.Tensor)
        return theta + torch.randn_like(theta)

    def sometimes(theta, rng):
        x = simulator(theta, rng)
        x[:7] = np.nan
        return x

    assert run(observation=np.zeros(3), simulator=in_torch).arrays["predictive"].shape == (200, 3)
    result = run(observation=np.zeros(3), simulator=sometimes)
    assert result.arrays["predictive"].shape == (193, 3)
    assert "7 of 200 data" in result.notes[0]


def test_simulators_of_one_parameter_at_a_time():
    def one(theta, rng):
        a, b, c = theta  # fails on a batch
        return [a + rng.normal(), b + rng.normal(), c + rng.normal()]

    def spread(theta, rng):
        return np.asarray(theta).ravel()[:3] + rng.normal(size=3)  # gives three numbers for a batch too

    for simulate in (one, spread):
        result = run(n=30, observation=np.zeros(3), simulator=simulate)
        assert result.arrays["predictive"].shape == (200, 3)
        assert verdict(result, "Posterior predictive").verdict == "good"
    assert run(n=30, observation=np.zeros(3), simulator=one, batched=False).notes == ()
    assert "no posterior predictive check" in run(n=30, observation=np.zeros(3), simulator=one, batched=True).notes[0]


def test_simulators_that_take_parameters_by_name():
    def named(a, b, c, rng):
        return np.array([a, b, c]) + rng.normal(size=3)

    result = run(n=30, observation=np.zeros(3), simulator=named, parameter_names=list("abc"))
    assert result.arrays["predictive"].shape == (200, 3)


def test_model_that_cannot_explain_the_observation():
    result = run(observation=np.zeros(3), simulator=lambda theta: theta + 100)
    assert verdict(result, "Posterior predictive").verdict == "poor"
    assert result.overall == "poor"


def test_images_are_summarised():
    result = run(n=60, event=(12, 12), num_samples=100, observation=np.zeros((12, 12)), simulator=simulator)
    assert result.event == (12, 12)
    assert result.parameters["r2"].shape == (144,)
    assert result.arrays["ranks"].shape == (60, 64)
    assert result.arrays["samples"].shape[1:] == (12, 12)
    assert "median of 144" in result.summary()
    assert {row.name for row in result.verdicts if row.verdict not in ("good", "info")} == {"Test pairs"}
    assert result.arrays["example_theta"].shape == (8, 12, 12)
    assert result.arrays["example_draws"].shape == (50, 8, 12, 12)
    assert "example_theta" not in run(n=60, event=(3, 3), num_samples=100).arrays


def test_of_many_parameters_a_few_odd_ones_do_not_decide():
    few, many = (
        run(Normal(shift=3.0 * (torch.arange(100) < wrong)), n=200, event=(100,), num_samples=100) for wrong in (3, 10)
    )
    assert verdict(few, "Calibration error").verdict == "good"
    assert verdict(many, "Calibration error").verdict == "poor"
    assert "worse than 95 % of 100 parameters" in verdict(many, "90 % intervals").reading


def test_parameters_that_do_not_vary_are_left_out():
    theta, x = pairs(60, (4,))
    theta[:, 2] = 1
    result = diagnose(Normal(), theta, x, num_samples=100, progress=False, parameter_names=list("abcd"))
    assert result.parameter_names == ("a", "b", "d")
    assert "3 of 4" in result.notes[0]


def test_one_parameter_given_as_plain_numbers():
    theta, x = pairs(50, (1,))
    result = diagnose(Normal(), theta[:, 0].tolist(), x[:, 0].tolist(), num_samples=100, progress=False)
    assert result.event == (1,)


def test_rows_on_disk_are_read_block_by_block(monkeypatch):
    from propersbi.diagnostics import measure

    class Lazy:
        def __init__(self, values):
            self.values, self.shape = values, values.shape
            self.asked = []

        def __len__(self):
            return len(self.values)

        def __getitem__(self, index):
            self.asked.append(index)
            return self.values[index]

    theta, x = pairs(100, (2,))
    monkeypatch.setattr(measure, "BLOCK_NUMBERS", 100 * 2 * 30)
    rows = Lazy(x)
    result = diagnose(Normal(), Lazy(theta), rows, num_samples=100, progress=False)
    assert len(rows.asked) == 5  # a first look for missing entries, then four blocks
    assert result.n == 100


def test_large_events_take_fewer_draws(monkeypatch):
    from propersbi.diagnostics import measure

    monkeypatch.setattr(measure, "MAX_NUMBERS", 600)
    assert run(n=30, num_samples=300).num_samples == 200


def test_summary_is_an_aligned_plain_table(exact):
    text = exact.summary()
    assert text.startswith("GOOD: ")
    assert "theta_3" in text
    assert "\x1b" not in text
    assert all(len(line) < 100 for line in text.splitlines())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"theta": np.zeros((0, 3)), "x": np.zeros((0, 3))}, "There are no simulations"),
        ({"theta": np.zeros((5, 3)), "x": np.zeros((5, 3))}, "5 test pairs; at least 20"),
        ({"x": np.zeros((50, 3))}, "600 rows but x has 50"),
        ({"theta": np.full((600, 3), np.nan)}, "All 600 simulations hold NaN"),
        ({"x": np.full((600, 3), np.inf)}, "All 600 simulations hold NaN or infinite"),
        ({"theta": np.ones((600, 3))}, "None of the 3 parameters varies"),
        ({"theta": "abc"}, "'theta' must be an array of numbers, got str"),
        ({"num_samples": 5}, "at least 100, got 5"),
        ({"reference": np.zeros((10, 3))}, "'reference' is compared with an 'observation'"),
        ({"observation": np.zeros(4)}, r"must have shape \(3,\)"),
        ({"observation": np.array([0, np.nan, 0])}, "'observation' must be finite"),
        ({"observation": np.zeros(3), "reference": np.zeros((10, 2))}, "'reference' must have shape"),
        ({"reference": np.zeros((10, 3)), "observation": "abc"}, "array of numbers, got str"),
        ({"prior_samples": np.zeros((10, 2))}, "'prior_samples' must have shape"),
        ({"parameter_names": ["a"]}, "1 parameter names for 3"),
        ({"batch": True}, "There is no option 'batch'"),
    ],
)
def test_wrong_input_is_a_sentence(change, message):
    theta, x = pairs()
    given = {"theta": theta, "x": x, "num_samples": 100, **change}
    with pytest.raises(InputError, match=message):
        diagnose(Normal(), given.pop("theta"), given.pop("x"), progress=False, **given)


def test_pairs_that_are_not_finite_are_left_out_with_a_warning():
    theta, x = pairs(60)
    x[3] = np.nan
    with pytest.warns(UserWarning, match="1 of 60 simulations hold NaN"):
        result = diagnose(Normal(), theta, x, num_samples=100, progress=False)
    assert result.n == 59


def test_wrong_posteriors_are_sentences():
    class Wrong:
        def __init__(self, values):
            self.values = values

        def sample_batched(self, sample_shape, x, show_progress_bars=True):
            return self.values(sample_shape[0], len(x))

    with pytest.raises(InputError, match=r"shape \(100, 7\)"):
        run(Wrong(lambda m, n: torch.zeros(m, 7)), num_samples=100)
    with pytest.raises(InputError, match="not finite"):
        run(Wrong(lambda m, n: torch.full((m, n, 3), torch.nan)), num_samples=100)


def test_round_trip(exact, tmp_path):
    exact.save(tmp_path)
    loaded = Diagnostics.load(tmp_path)
    assert loaded.verdicts == exact.verdicts
    assert loaded.parameter_names == exact.parameter_names
    assert loaded.notes == exact.notes
    assert loaded.summary() == exact.summary()
    for name, array in exact.arrays.items():
        assert np.array_equal(loaded.arrays[name], array)
    assert "NaN" not in (tmp_path / "diagnostics.json").read_text()


def test_unknown_scores_are_null(exact, tmp_path):
    replace(exact, scores={**exact.scores, "extra": float("nan")}).save(tmp_path)
    assert json.loads((tmp_path / "diagnostics.json").read_text())["scores"]["extra"] is None
    assert np.isnan(Diagnostics.load(tmp_path).scores["extra"])


def rewrite(folder, change):
    path = folder / "diagnostics.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_pickled_objects_are_refused(exact, tmp_path):
    exact.save(tmp_path)

    class Evil:
        def __reduce__(self):
            return (pytest.fail, ("a pickle was run",))

    buffer = io.BytesIO()
    np.savez(buffer, **{**exact.arrays, "prior": np.array([Evil()], dtype=object)})
    (tmp_path / "diagnostics.npz").write_bytes(buffer.getvalue())
    with pytest.raises(InputError, match="checksum"):
        Diagnostics.load(tmp_path)
    rewrite(tmp_path, lambda content: content.update(arrays=hashlib.sha256(buffer.getvalue()).hexdigest()))
    with pytest.raises(InputError, match="plain arrays"):
        Diagnostics.load(tmp_path)


def test_broken_archives_are_refused(exact, tmp_path):
    exact.save(tmp_path)
    for content in (b"", b"not a zip", (tmp_path / "diagnostics.npz").read_bytes()[:-300]):
        (tmp_path / "diagnostics.npz").write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        rewrite(tmp_path, lambda old, digest=digest: old.update(arrays=digest))
        with pytest.raises(InputError):
            Diagnostics.load(tmp_path)
    (tmp_path / "diagnostics.npz").unlink()
    with pytest.raises(InputError, match="There is no file"):
        Diagnostics.load(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.update(format=99),
        lambda content: content.pop("n"),
        lambda content: content.update(n=7),
        lambda content: content.update(n="many"),
        lambda content: content.update(n=None),
        lambda content: content.update(parameters=[]),
        lambda content: content["parameters"].update(r2=["x"]),
        lambda content: content["parameters"].update(r2=[1.0]),
        lambda content: content["parameters"].update(r2=[None, 1.0, 1.0]),
        lambda content: content["scores"].pop("tarp"),
        lambda content: content.update(scores=3),
        lambda content: content.update(parameter_names=["a"]),
        lambda content: content.update(convergence={"converged": "yes", "sentence": ""}),
        lambda content: content.update(convergence=3),
        lambda content: content.pop("convergence"),
        lambda content: content.update(typicality={"p_value": 2.0, "deviant": []}),
        lambda content: content.update(typicality={"p_value": 0.5, "deviant": [{}]}),
        lambda content: content.update(typicality=[]),
    ],
)
def test_tampered_json_is_a_sentence(exact, tmp_path, change):
    exact.save(tmp_path)
    rewrite(tmp_path, change)
    with pytest.raises(InputError):
        Diagnostics.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("shown", np.array([0.0, 1.0, 2.0])),
        ("shown", np.array([0, 1, 3])),
        ("shown", np.array(0)),
        ("ranks", np.zeros((600, 2))),
        ("theta", None),
        ("prior", np.zeros((10, 2))),
        ("samples", np.zeros((10, 2))),
        ("coverage", np.zeros((51, 2))),
    ],
)
def test_arrays_that_do_not_fit_are_a_sentence(exact, tmp_path, name, array):
    arrays = {key: value for key, value in exact.arrays.items() if key != name}
    replace(exact, arrays=arrays if array is None else {**arrays, name: array}).save(tmp_path)
    with pytest.raises(InputError, match=f"'{name}' is missing or misshapen"):
        Diagnostics.load(tmp_path)


def test_missing_or_foreign_json_is_a_sentence(tmp_path):
    with pytest.raises(InputError, match="There is no file"):
        Diagnostics.load(tmp_path)
    (tmp_path / "diagnostics.json").write_text("[1, 2]")
    with pytest.raises(InputError, match="has format None"):
        Diagnostics.load(tmp_path)
