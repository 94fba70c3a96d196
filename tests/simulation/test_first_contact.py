"""Simulators as scientists write them: one parameter at a time, by name, failing, hanging, printing."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch.distributions import Independent, MultivariateNormal, Uniform

from propersbi.simulation.executors import Joblib, Serial
from propersbi.simulation.simulations import SimulationError, simulate
from propersbi.simulation.store import Store
from propersbi.types import InputError

RATES = {"beta": (0.2, 0.6), "gamma": (0.05, 0.2)}
WIDE = [(-2.0, 2.0), (-2.0, 2.0)]
OWN = np.random.default_rng(0)  # a generator that the library does not know
BOX = Independent(Uniform(torch.tensor([0.2, 0.05]), torch.tensor([0.6, 0.2])), 1)


def run(prior, simulator, n=30, **options):
    return simulate(prior, simulator, n, **{"progress": False, **options})


def same(a, b):
    for left, right in zip(a, b, strict=True):
        assert np.asarray(left).tobytes() == np.asarray(right).tobytes()
    assert a.failures == b.failures
    assert a.invalid == b.invalid
    return True


class Gaussian:
    def __init__(self, *event):
        self.event = event

    def sample(self, n, rng):
        return rng.normal(size=(n, *self.event))


def epidemic(beta, gamma):
    def slope(t, y):
        return [-beta * y[0] * y[1], beta * y[0] * y[1] - gamma * y[1]]

    return solve_ivp(slope, (0, 60), [0.99, 0.01], t_eval=np.linspace(0, 60, 10)).y[1]


def one_epidemic(theta, rng):
    beta, gamma = theta
    return epidemic(beta, gamma) + 0.01 * rng.normal(size=10)


# -- one parameter at a time, or batches


def test_an_ode_takes_one_theta_at_a_time(capfd):
    sims = run([(0.2, 0.6), (0.05, 0.2)], one_epidemic, progress=True)
    assert "simulator takes one theta at a time\n" in capfd.readouterr().err
    assert sims.x.shape == (30, 10)
    assert same(sims, run([(0.2, 0.6), (0.05, 0.2)], one_epidemic, batched=False))
    expected = epidemic(*sims.theta[7].astype(float))
    np.testing.assert_allclose(sims.x[7], expected, atol=0.06)


def test_one_series_is_not_spread_over_the_rows():
    def ravels(theta, rng):
        parameters = np.ravel(theta)
        return parameters[0] + parameters[1] * rng.normal(size=10)

    sims = run(Gaussian(2), ravels, 100, chunk_size=10)
    assert sims.x.shape == (100, 10)
    residual = sims.x - sims.theta[:, :1]
    assert np.corrcoef(residual.std(1), np.abs(sims.theta[:, 1]))[0, 1] > 0.8


def test_a_simulator_of_batches_is_found(capfd):
    sims = run(Gaussian(2), lambda theta: theta.sum(1), progress=True)
    assert "simulator takes batches of theta\n" in capfd.readouterr().err
    np.testing.assert_allclose(sims.x[:, 0], sims.theta.sum(1), rtol=1e-5)


@pytest.mark.parametrize(
    ("simulator", "batched"),
    [
        (lambda theta: theta @ np.ones((2, 3)), True),
        (lambda theta: np.ones((3, 2)) @ theta, False),
        (lambda theta: theta[..., 0], True),
        (lambda theta: theta[0], False),
        (lambda theta: float(theta[0]) * 2, False),
        (lambda theta: theta.sum(), False),
        (lambda theta: [theta[0], theta[1]], False),
        (lambda theta: [theta[0], theta[1], theta[0]], False),
        (lambda theta: 3.0 if theta[0] > 0 else 2.0, False),
        (lambda theta: np.outer(theta.ravel(), theta.ravel()), False),
        (lambda theta: [row.sum() for row in theta], True),
        (lambda theta: np.exp(theta) / np.exp(theta).sum(), False),  # a softmax of all numbers it is given
        (lambda theta: theta[::-1], False),
        (lambda theta: theta + OWN.normal(size=theta.shape), True),
    ],
)
def test_batches_are_told_from_single_parameters(simulator, batched):
    shapes = []

    def watched(theta):
        shapes.append(theta.shape)
        return simulator(theta)

    run(Gaussian(2), watched, 20, chunk_size=5)
    assert set(shapes[-4:]) == ({(5, 2)} if batched else {(2,)})


def test_one_parameter_of_one_dimension():
    def waits(theta):
        return [theta[0], theta[0] ** 2, theta.item()]

    sims = run(Gaussian(1), waits, 20)
    np.testing.assert_allclose(sims.x, sims.theta ** [[1, 2, 1]], rtol=1e-5)


def test_a_simulator_of_batches_that_often_fails_is_found():
    def fails(theta):
        if (theta[:, 0] > 1.2).any():
            raise ValueError("too large")
        return theta

    for seed in range(5):
        with pytest.warns(UserWarning, match="failed and are excluded"):
            sims = run(Gaussian(2), fails, 100, seed=seed)
        assert len(sims) + sims.failures.total == 100
        assert (sims.theta == sims.x).all()
        assert (sims.theta[:, 0] <= 1.2).all()


def test_batched_overrides():
    sims = run(Gaussian(2), lambda theta: theta, batched=False)
    assert sims.x.shape == (30, 2)
    with pytest.raises(InputError, match=r"must return x of shape \(1, \.\.\.\) for 1 parameters, got \(2,\) at theta"):
        run(Gaussian(2), lambda theta: theta[0], batched=True)


def test_a_complete_store_calls_nothing_and_a_second_group_says_nothing(tmp_path, capfd):
    run(RATES, one_epidemic, path=tmp_path)
    assert run(RATES, lambda theta: 1 / 0, path=tmp_path).x.shape == (30, 10)
    run(RATES, one_epidemic, path=tmp_path, group="test", progress=True)
    assert "simulator takes" not in capfd.readouterr().err


def test_the_calls_that_find_out_leave_no_trace(tmp_path):
    """They neither change the random numbers of the simulations nor those of the caller."""
    np.random.seed(1)
    torch.manual_seed(1)
    before = np.random.get_state()[1].copy(), torch.get_rng_state()
    found = run(BOX, lambda theta: theta + np.random.rand() + torch.rand(1))
    assert (np.random.get_state()[1] == before[0]).all()
    assert (torch.get_rng_state() == before[1]).all()
    assert same(found, run(BOX, lambda theta: theta + np.random.rand() + torch.rand(1), batched=True))


# -- NumPy or torch


def test_a_numpy_simulator_gets_numpy_from_a_torch_prior():
    kinds = []

    def ode(theta):
        kinds.append((type(theta), theta.dtype))
        return epidemic(*theta)

    sims = run(BOX, ode, 10)
    assert set(kinds[-10:]) == {(np.ndarray, np.dtype(np.float64))}
    assert (sims.theta == run(BOX, lambda theta: theta, 10).theta).all()


def test_a_vectorised_numpy_simulator_gets_numpy_from_a_torch_prior():
    kinds = []

    def vectorised(theta):
        kinds.append(type(theta))
        return np.exp(np.asarray(theta)).round(3)

    run(BOX, vectorised, 10, chunk_size=5)
    assert set(kinds[-2:]) == {np.ndarray}
    run(BOX, vectorised, 10, chunk_size=5, batched=True)
    assert set(kinds[-2:]) == {np.ndarray}


@pytest.mark.parametrize("prior", [BOX, Gaussian(2), RATES], ids=["torch", "numpy", "dict"])
@pytest.mark.parametrize(
    "simulator",
    [lambda theta: theta.exp() + torch.randn_like(theta), lambda theta: torch.stack([theta[0].exp(), theta.sum()])],
    ids=["batches", "rows"],
)
def test_a_torch_simulator_gets_tensors(prior, simulator):
    def watched(theta):
        assert isinstance(theta, torch.Tensor)
        return simulator(theta)

    assert run(prior, watched, 20).x.shape == (20, 2)


# -- named parameters


def test_parameters_are_passed_by_name():
    kinds = set()

    def named(gamma, beta, rng):
        kinds.add((type(gamma), type(beta)))
        return epidemic(beta, gamma) + 0.01 * rng.normal(size=10)

    sims = run(RATES, named)
    assert kinds == {(float, float)} or kinds == {(float, float), (np.ndarray, np.ndarray)}  # batches were tried
    assert sims.parameter_names == ("beta", "gamma")
    assert same(sims, run(RATES, one_epidemic))


def test_columns_are_passed_by_name():
    sims = run(RATES, lambda beta, gamma: np.stack([beta, beta / gamma], 1), 20)
    np.testing.assert_allclose(sims.x[:, 1], sims.theta[:, 0] / sims.theta[:, 1], rtol=1e-5)


def test_named_parameters_of_several_numbers():
    prior = {"rate": (0.0, 1.0), "centre": MultivariateNormal(torch.zeros(2), torch.eye(2))}

    def simulator(rate, centre, scale=2.0):
        assert np.shape(rate) == ()
        assert np.shape(centre) == (2,)
        return {"rate": float(rate) * scale, "where": np.asarray(centre)}

    sims = run(prior, simulator, 20)
    assert sims.parameter_names == ("rate", "centre_1", "centre_2")
    assert sims.x_names == ("rate", "where_1", "where_2")
    np.testing.assert_allclose(sims.x, sims.theta * [2, 1, 1], rtol=1e-6)


def test_a_single_argument_gets_the_vector():
    vector = [lambda beta: beta, lambda theta, rng: theta, lambda theta, generator: theta, lambda *theta: theta[0]]
    for simulator in vector:
        sims = run(RATES, simulator, 20)
        assert (sims.theta == sims.x).all()
        assert sims.parameter_names == ("beta", "gamma")


def test_any_keywords_get_all_parameters():
    sims = run(RATES, lambda **rates: rates["beta"] * 2, 20)
    np.testing.assert_allclose(sims.x[:, 0], 2 * sims.theta[:, 0], rtol=1e-6)


@pytest.mark.parametrize(
    ("simulator", "sentence"),
    [
        (lambda beta, gama: 0, "an argument 'gama', which is no parameter of the prior: did you mean 'gamma'?"),
        (lambda beta, gamma, days: 0, "an argument 'days', which is no parameter of the prior: give it a default"),
        (lambda a, b, c: 0, "must be a function of"),
    ],
)
def test_arguments_that_are_no_parameters_are_refused(simulator, sentence):
    with pytest.raises(InputError, match=sentence.replace("?", r"\?")):
        run(RATES, simulator)


def test_a_parameter_that_is_no_argument_is_refused():
    with pytest.raises(InputError, match="a parameter 'delta', which is not an argument of the simulator"):
        run({**RATES, "delta": (0, 1)}, lambda beta, gamma: beta)


def test_parameters_can_be_named_by_the_caller():
    sims = run(BOX, lambda beta, gamma: beta / gamma, 20, parameter_names=["beta", "gamma"])
    assert sims.parameter_names == ("beta", "gamma")
    np.testing.assert_allclose(sims.x[:, 0], sims.theta[:, 0] / sims.theta[:, 1], rtol=1e-5)
    with pytest.raises(InputError, match="'parameter_names' must be 2 different names"):
        run(BOX, lambda theta: theta, parameter_names=["beta"])


# -- what simulators return


class Frame:
    """As much of a DataFrame as is needed."""

    def __init__(self, values, columns):
        self.values, self.columns = np.asarray(values), columns

    def to_numpy(self):
        return self.values


class Series:
    """As much of a Series as is needed."""

    def __init__(self, values, index):
        self.values, self.index = np.asarray(values), index

    def to_numpy(self):
        return self.values


def by_turns(theta):
    """The same entries, in the other order for every second parameter."""
    pairs = [("mean", float(theta[0])), ("spectrum", [theta[1], 1.0])]
    return dict(pairs if theta[0] > 0.4 else pairs[::-1])


@pytest.mark.parametrize(
    ("simulator", "shape", "names"),
    [
        (lambda theta: {"mean": theta[0].item(), "power": theta[[1, 0]]}, (3,), ("mean", "power_1", "power_2")),
        (lambda theta: {"mean": theta[:, 0], "all": theta}, (3,), ("mean", "all_1", "all_2")),
        (lambda theta: Series([theta[0].item(), 1.0], ["a", "b"]), (2,), ("a", "b")),
        (lambda theta: Series([theta[0].item(), 1.0], range(2)), (2,), None),
        (lambda theta: Frame([[theta[0].item(), 1.0]], ["a", "b"]), (2,), ("a", "b")),
        (lambda theta: Frame([[theta[0].item()], [1.0], [2.0]], ["a"]), (3,), None),
        (lambda theta: Frame([[theta[0].item(), 1.0]] * 5, ["a", "b"]), (5, 2), None),
        (lambda theta: Frame(np.column_stack([theta[:, 0], theta[:, 1]]), ["a", "b"]), (2,), ("a", "b")),
        (lambda theta: (theta[0].item(), 2), (2,), None),
        (lambda theta: theta[0].item(), (1,), None),
        (lambda theta: [[theta[0].item(), 2]] * 3, (3, 2), None),
        (lambda theta: np.float64(theta[0].item()), (1,), None),
    ],
)
@pytest.mark.parametrize("prior", [BOX, [(0.2, 0.6), (0.0, 1.0)]], ids=["torch", "numpy"])
def test_results(tmp_path, simulator, shape, names, prior):
    sims = run(prior, simulator, 20)
    assert sims.x.shape == (20, *shape)
    assert sims.x_names == names
    assert sims.x.reshape(20, -1)[:, 0].tolist() == sims.theta[:, 0].tolist()
    stored = run(prior, simulator, 20, path=tmp_path)
    assert same(stored, sims)
    assert stored.x_names == Store.open(tmp_path).x_names == names
    assert run(prior, simulator, 20, path=tmp_path).x_names == names


@pytest.mark.parametrize("batched", [None, False])
def test_the_order_of_a_dict_is_that_of_the_first_row(batched):
    sims = run([(0.2, 0.6), (0.0, 1.0)], by_turns, 40, batched=batched, chunk_size=40)
    first = ("mean", "spectrum_1", "spectrum_2")
    assert sims.x_names in (first, (*first[1:], first[0]))
    column = sims.x_names.index("mean")
    assert (sims.x[:, column] == sims.theta[:, 0]).all()


def test_pandas():
    pandas = pytest.importorskip("pandas")
    sims = run(RATES, lambda beta, gamma: pandas.Series({"peak": beta, "end": gamma}), 20, batched=False)
    assert sims.x_names == ("peak", "end")
    assert (sims.x == sims.theta).all()
    sims = run(RATES, lambda theta: pandas.DataFrame(theta, columns=["a", "b"]), 20)
    assert sims.x_names == ("a", "b")
    assert (sims.x == sims.theta).all()


def test_masked_values_are_missing():
    with pytest.warns(UserWarning, match="of 40 simulations .* have NaN or infinite values"):
        sims = run(Gaussian(2), lambda theta: np.ma.masked_greater(theta, 1.5), 40)
    assert (sims.x <= 1.5).all()


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (None, "returned None instead of numbers"),
        ("text", "must return real numbers, got str"),
        ({}, "returned an empty dict"),
        ({"a": None}, "returned None"),
        ({"a": "text"}, "must return real numbers, got str"),
        (object(), "must return real numbers, got object"),
        ([], "must return at least one number, got \\(0,\\)"),
        ([1, 2, 3], "returned x of shapes \\(2,\\) and \\(3,\\)"),
        ({"b": 1.0}, "returned x of shapes|same names"),
    ],
)
def test_wrong_results_name_their_theta(result, sentence):
    with pytest.raises(InputError, match=sentence) as caught:
        run(np.arange(40.0), lambda theta: result if theta[0] == 7 else [1.0, 2.0], 300, batched=False, chunk_size=300)
    assert "at theta = [7.]" in str(caught.value)


# -- rows that fail


def fails_above(limit):
    def simulator(theta, rng):
        if theta[0] > limit:
            raise ZeroDivisionError(f"a rate was {theta[0]:.6f}")
        return theta + rng.normal(size=2)

    return simulator


@pytest.mark.parametrize("workers", [1, 2])
def test_rows_that_fail_are_excluded_and_recorded(tmp_path, workers):
    sentence = r"\d+ of 400 simulations \(\d\.?\d* %\) failed and are excluded; .* ZeroDivisionError: a rate was 2\."
    with pytest.warns(UserWarning, match=sentence):
        sims = run(Gaussian(2), fails_above(2.0), 400, path=tmp_path, workers=workers)
    assert sims.failures.total == sims.invalid == 400 - len(sims) > 0
    assert f"{sims.invalid} invalid, {sims.invalid} of them failed" in repr(sims)
    assert (np.asarray(sims.theta)[:, 0] <= 2).all()
    drawn = run(Gaussian(2), lambda theta: theta, 400).theta
    for failure in sims.failures:
        np.testing.assert_allclose(drawn[failure.row], failure.theta, rtol=1e-6)
        assert failure.message == f"ZeroDivisionError: a rate was {failure.theta[0]:.6f}"
        assert failure.seed == 0
    with pytest.warns(UserWarning, match="failed"):
        assert same(sims, run(Gaussian(2), fails_above(2.0), 400))


def test_a_store_with_failures_is_continued_with_the_same_bytes(tmp_path):
    simulator = fails_above(1.5)

    def content(folder):
        return {path.name: path.read_bytes() for path in (folder / "train").glob("chunk-*")}

    with pytest.warns(UserWarning, match="failed"):
        whole = run(Gaussian(2), simulator, 95, path=tmp_path / "whole", chunk_size=10)
    names = sorted(content(tmp_path / "whole"))
    assert any(name.endswith(".failures.json") for name in names)
    with pytest.warns(UserWarning, match="failed"):
        run(Gaussian(2), simulator, 42, path=tmp_path / "parts", chunk_size=10)
    for path in sorted((tmp_path / "parts" / "train").glob("chunk-000001.*")):
        path.unlink()  # as if it had not been reached
    with pytest.warns(UserWarning, match="failed"):
        parts = run(Gaussian(2), simulator, 95, path=tmp_path / "parts", chunk_size=10)
    assert content(tmp_path / "parts") == content(tmp_path / "whole")
    assert same(parts, whole)
    with pytest.warns(UserWarning, match="failed"):
        fewer = run(Gaussian(2), simulator, 37, path=tmp_path / "parts")
    assert fewer.failures.rows == tuple(row for row in whole.failures.rows if row < 37)


def test_damaged_failures_are_reported_and_simulated_again(tmp_path):
    with pytest.warns(UserWarning, match="failed"):
        run(Gaussian(2), fails_above(1.5), 95, path=tmp_path)
    path = next((tmp_path / "train").glob("*.failures.json"))
    for text in ("", "[]", '{"rows": [-1], "records": []}', '{"rows": [1], "records": [{"row": 1}]}'):
        content = path.read_text()
        path.write_text(text)
        with pytest.raises(InputError, match=path.name):
            Store.open(tmp_path).failures("train")
        with pytest.warns(UserWarning, match="was damaged: it is set aside|failed"):
            run(Gaussian(2), fails_above(1.5), 95, path=tmp_path)
        assert path.read_text() == content


@pytest.mark.parametrize("chunk_size", [1, 10, 500])
@pytest.mark.parametrize("batched", [True, False])
def test_too_many_failures_stop_the_run(chunk_size, batched):
    calls = []

    def fails(theta):
        calls.append(len(theta))
        if np.ravel(theta)[0] > 0:
            raise ValueError(f"negative rate {np.ravel(theta)[0]}")
        if np.ravel(theta)[1] > 2:
            raise OSError("no file")
        return theta

    sentence = r"\d+ of \d+ simulations failed, more than max_failed = 0.2 .* error was ValueError: negative rate"
    with pytest.raises(SimulationError, match=sentence):
        run(Gaussian(2), fails, 500, chunk_size=chunk_size, batched=batched)
    assert len(calls) < 120


def test_the_share_of_failures_can_be_chosen(tmp_path):
    with pytest.warns(UserWarning, match="failed"):
        sims = run(Gaussian(2), fails_above(0.0), 60, max_failed=0.9)
    assert 10 < sims.failures.total < 50
    with pytest.raises(SimulationError, match="more than max_failed = 0 allows"):
        run(Gaussian(2), fails_above(2.0), 300, max_failed=0)
    with pytest.raises(SimulationError, match=r"All 60 simulations failed: ZeroDivisionError"):
        run(Gaussian(2), fails_above(-99.0), 60, max_failed=1)
    with pytest.raises(SimulationError, match=r"All 1 rows of a chunk failed: ZeroDivisionError"):
        run(Gaussian(2), fails_above(-99.0), 60, max_failed=1, path=tmp_path)


@pytest.mark.parametrize("prior", [BOX, RATES], ids=["torch", "numpy"])
@pytest.mark.parametrize("batched", [None, False])
def test_the_error_of_a_simulator_that_always_fails_is_its_own(prior, batched):
    def fails(theta):
        if theta[0] > 0:
            raise OSError("no file of rates")

    with pytest.raises(SimulationError, match="OSError: no file of rates"):
        run(prior, fails, 100, batched=batched)


def test_a_simulator_that_was_mended_goes_on(tmp_path):
    with pytest.raises(SimulationError, match=r"keeps the \d+ rows that failed: delete the folder"):
        run(Gaussian(2), fails_above(-0.5), 400, path=tmp_path)
    with pytest.warns(UserWarning, match="failed"):
        sims = run(Gaussian(2), fails_above(99.0), 400, path=tmp_path)
    assert 0 < sims.failures.total < 80


def test_the_first_failure_can_be_raised():
    with pytest.raises(SimulationError, match=r"failed at theta = \[.*\]: ZeroDivisionError: a rate") as caught:
        run(Gaussian(2), fails_above(2.0), 400, on_error="raise")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_failed_and_not_finite_rows_are_counted_apart():
    def both(theta):
        if theta[0] > 1.5:
            raise ValueError("no")
        return [theta[0], np.nan if theta[1] > 1.5 else 0.0]

    with pytest.warns(UserWarning) as caught:  # noqa: PT030
        sims = run(Gaussian(2), both, 200)
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == 2
    assert messages[0].startswith(f"{sims.failures.total} of 200 simulations")
    assert "failed" in messages[0]
    assert messages[1].startswith(f"{sims.invalid - sims.failures.total} of 200 simulations")
    assert "NaN" in messages[1]


def test_only_so_many_failures_are_recorded():
    with pytest.warns(UserWarning, match="failed"):
        sims = run(Gaussian(2), fails_above(0.0), 600, max_failed=1, chunk_size=50)
    assert len(sims.failures) <= 100 < sims.failures.total
    assert sims.failures.total == len(sims.failures.rows) == sims.invalid


@pytest.mark.parametrize("executor", [Serial(), Joblib(2)])
def test_a_simulator_that_exits_has_failed(executor):
    def exits(theta):
        if theta[0] > 1.5:
            sys.exit(0)
        return theta.tolist()

    with pytest.warns(UserWarning, match="error was SystemExit: 0"):
        sims = run(WIDE, exits, 100, executor=executor)
    assert 0 < sims.failures.total == 100 - len(sims)


def test_an_exit_is_never_exit_code_0():
    code = """
import sys, numpy as np
from propersbi.simulation import simulate
simulate(np.zeros((5, 2)), lambda theta: sys.exit(0), 30, progress=False)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "SystemExit: 0" in done.stderr


def test_a_prior_that_exits_is_reported():
    class Exits:
        def sample(self, n, rng):
            sys.exit(0)

    with pytest.raises(SimulationError, match="stopped: SystemExit"):
        run(Exits(), lambda theta: theta)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"on_error": "ignore"}, "'on_error' must be 'record' or 'raise', got 'ignore'"),
        ({"max_failed": 20}, "'max_failed' must be a share from 0 to 1, got 20"),
        ({"max_failed": True}, "'max_failed' must be a share"),
        ({"timeout": 0}, "'timeout' must be a positive number of seconds, or None, got 0"),
        ({"timeout": "5"}, "'timeout' must be a positive number"),
        ({"time_out": 5}, r"no argument 'time_out': did you mean 'timeout'\?"),
        ({"colour": 5}, "no argument 'colour': There are on_error, max_failed, timeout, parameter_names"),
        ({"parameter_names": "ab"}, "'parameter_names' must be a list of names, got 'ab'"),
    ],
)
def test_wrong_options_are_refused(options, sentence):
    with pytest.raises(InputError, match=sentence):
        run(Gaussian(2), lambda theta: theta, **options)


# -- rows that hang, or take their process with them


def hangs_above(limit):
    def simulator(theta, rng):
        if theta[0] > limit:
            time.sleep(600)
        return theta + rng.normal(size=2) + np.random.normal(size=2)

    return simulator


@pytest.mark.parametrize("workers", [1, 2])
def test_a_row_that_hangs_is_ended(workers):
    started = time.monotonic()
    with pytest.warns(UserWarning, match="error was TimeoutError: no result within 0.5 s"):
        sims = run(Gaussian(2), hangs_above(1.9), 100, timeout=0.5, workers=workers, batched=False)
    assert time.monotonic() - started < 60
    drawn = run(Gaussian(2), lambda theta: theta, 100).theta
    assert sims.failures.rows == tuple(np.flatnonzero(drawn[:, 0] > 1.9))
    assert (sims.theta == drawn[drawn[:, 0] <= 1.9]).all()


@pytest.mark.parametrize("batched", [None, True])
def test_a_time_limit_does_not_change_the_results(batched):
    simulator = noisy if batched else hangs_above(99.0)
    plain = run(Gaussian(2), simulator, 40, batched=batched)
    assert same(run(Gaussian(2), simulator, 40, timeout=60, batched=batched), plain)


def noisy(theta, rng):
    return theta + rng.normal(size=theta.shape) + np.random.normal(size=theta.shape)


def test_a_batch_that_hangs_is_repeated_row_by_row():
    def hangs(theta):
        if (theta > 37).any():
            time.sleep(600)
        return theta

    with pytest.warns(UserWarning, match="2 of 20 simulations .* TimeoutError"):
        sims = run(np.arange(39.0), hangs, 20, timeout=0.2, chunk_size=5, batched=True, seed=4)
    assert (sims.theta == sims.x).all()


def test_a_row_that_ends_its_process_has_failed():
    def dies(theta):
        if theta[0] > 1.9:
            os._exit(3)
        return theta.tolist()

    with pytest.warns(UserWarning, match="process of the simulator ended with exit code 3"):
        sims = run(Gaussian(2), dies, 100, timeout=30)
    assert 0 < sims.failures.total == 100 - len(sims)


def test_errors_in_processes_are_those_of_the_simulator():
    with pytest.raises(SimulationError, match=r"failed at theta = \[.*\]: ZeroDivisionError: a rate") as caught:
        run(Gaussian(2), fails_above(1.0), 50, timeout=30, on_error="raise", batched=False)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(InputError, match=r"returned None instead of numbers at theta = \["):
        run(Gaussian(2), lambda theta: None, 50, timeout=30, batched=False)


def test_an_error_does_not_wait_for_rows_that_hang():
    def hangs_or_fails(theta):
        if theta[0] > 0:
            time.sleep(600)
        raise ValueError("negative")

    started = time.monotonic()
    with pytest.raises(SimulationError, match="ValueError: negative"):
        run(np.arange(-1.0, 2.0), hangs_or_fails, 40, timeout=500, workers=2, on_error="raise", batched=False)
    assert time.monotonic() - started < 60


def test_an_executor_may_limit_the_time_too():
    plain = run(WIDE, hangs_above(99.0), 20, batched=False, chunk_size=10)
    assert same(run(WIDE, hangs_above(99.0), 20, batched=False, chunk_size=10, timeout=60, executor=Joblib(1)), plain)


def test_a_time_limit_needs_no_main_guard(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import time\n"
        "from propersbi.simulation import simulate\n"
        "def simulator(theta):\n"
        "    if theta[0] > 0.95:\n"
        "        time.sleep(600)\n"
        "    return [theta[0], 1.0]\n"
        "sims = simulate([(0, 1), (0, 1)], simulator, 50, timeout=0.5, progress=False, workers=2)\n"
        "print(sims)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "of them failed)" in done.stdout


# -- printing


def printing():
    def prints(theta, rng):
        sys.stdout.write(f"beta is {theta[0]:.3f}\n")
        sys.stderr.write("warning\n")
        sys.stdout.write("no newline")
        sys.stdout.write("\n")
        return theta + rng.normal(size=2)

    return prints


@pytest.mark.parametrize("options", [{}, {"executor": Joblib(2)}, {"timeout": 60}], ids=["here", "workers", "timeout"])
def test_what_is_printed_does_not_tear_the_bar(capfd, options):
    sims = run(WIDE, printing(), 20, batched=False, progress=True, **options)
    out, err = capfd.readouterr()
    expected = [f"beta is {value:.3f}" for value in np.asarray(sims.theta)[:, 0]]
    assert sorted(line for line in out.splitlines() if line.startswith("beta")) == sorted(expected)
    assert set(out.splitlines()) <= {*expected, "warning", "no newline"}
    assert "20/20" in err
    torn = [line for line in err.replace("\r", "\n").splitlines() if "sim" in line and "warning" in line]
    assert torn == []


def test_without_a_bar_nothing_is_redirected(capfd):
    run(WIDE, printing(), 5, batched=False)
    out, err = capfd.readouterr()
    assert out.count("beta is") == 5
    assert err.count("warning") == 5


# -- the start of workers


def test_short_runs_do_not_start_workers():
    pids = set()
    run(Gaussian(2), lambda theta: pids.add(os.getpid()) or theta.tolist(), 100, workers=2)
    assert pids == {os.getpid()}


def test_long_runs_go_on_in_workers(monkeypatch, tmp_path):
    monkeypatch.setattr("propersbi.simulation.startup.HEAD_START", 0.05)
    monkeypatch.setattr("propersbi.simulation.startup.START_UP", 0.1)

    def slow(theta, rng):
        (tmp_path / str(os.getpid())).touch()
        time.sleep(0.01)
        return theta + rng.normal(size=2)

    parallel = run(Gaussian(2), slow, 100, workers=2, batched=False)
    assert len(list(tmp_path.iterdir())) >= 2
    assert same(parallel, run(Gaussian(2), slow, 100, batched=False))
