"""Everything that is accepted as a prior: its draws, its names, its density, and sentences for what is not one."""

import numpy as np
import pytest
import scipy.stats as st
import torch
from torch import distributions as dist

import propersbi as ps
from propersbi.samplers.priors import describe
from propersbi.simulation.prior_kinds import Kind, kind_of
from propersbi.simulation.priors import check_prior, draw, event_shape, parameter_names
from propersbi.storage.randomness import stream
from propersbi.types import InputError


class Frame:
    """What a DataFrame of pandas or polars has of what is used."""

    def __init__(self, **columns):
        self.data = {name: np.asarray(column) for name, column in columns.items()}
        self.columns = list(columns)

    @property
    def shape(self):
        return len(self), len(self.columns)

    def __len__(self):
        return len(next(iter(self.data.values())))

    def __getitem__(self, name):
        return Series(name, self.data[name])

    def to_numpy(self):
        return np.stack(list(self.data.values()), 1)

    def __array__(self, dtype=None, copy=None):
        return self.to_numpy()

    def sample(self, n=None, random_state=None):
        raise AssertionError("this is pandas' own method, not a prior's")


class Series:
    def __init__(self, name, values):
        self.name, self.values = name, np.asarray(values)
        self.shape, self.dtype = self.values.shape, self.values.dtype

    def __len__(self):
        return len(self.values)

    def to_numpy(self):
        return self.values

    def sample(self, n=None):
        raise AssertionError("this is pandas' own method, not a prior's")


class Own:
    def sample(self, n, rng):
        return rng.normal(size=(n, 2))


ROWS = np.arange(20.0).reshape(10, 2)
FRAME = Frame(rate=np.linspace(0, 1, 10), count=np.arange(10))

# Priors, the shape of a draw, and the names of its numbers.
PRIORS = {
    "torch": (dist.Normal(0.0, 1.0), (1,), None),
    "torch batch": (dist.Uniform(torch.zeros(3), torch.ones(3)), (3,), None),
    "torch matrix": (dist.LKJCholesky(3), (3, 3), None),
    "list of torch": ([dist.Normal(0.0, 1.0), dist.Exponential(1.0)], (2,), None),
    "list of multivariate": (
        [dist.MultivariateNormal(torch.zeros(2), torch.eye(2)), dist.Uniform(0.0, 1.0)],
        (3,),
        None,
    ),
    "tuple": ((dist.Normal(0.0, 1.0), Own()), (3,), None),
    "nested": ([[dist.Normal(0.0, 1.0), (0.0, 1.0)], (2.0, 3.0)], (3,), None),
    "dict": ({"beta": dist.LogNormal(0.0, 1.0), "gamma": (0.1, 1.0)}, (2,), ("beta", "gamma")),
    "dict with a vector": ({"beta": Own(), "gamma": (0, 1)}, (3,), ("beta_1", "beta_2", "gamma")),
    "dict with a matrix": ({"s": st.wishart(3, np.eye(2))}, (4,), ("s_1", "s_2", "s_3", "s_4")),
    "scipy": (st.norm(1.0, 2.0), (1,), None),
    "scipy batch": (st.gamma([1.0, 2.0, 3.0]), (3,), None),
    "scipy discrete": (st.binom(10, 0.5), (1,), None),
    "scipy vector": (st.multivariate_normal(np.zeros(2), np.eye(2)), (2,), None),
    "scipy scalar vector": (st.multivariate_normal(0.0, 1.0), (1,), None),
    "scipy dirichlet": (st.dirichlet([1.0, 2.0, 3.0]), (3,), None),
    "scipy matrix": (st.wishart(3, np.eye(2)), (2, 2), None),
    "scipy density estimate": (st.gaussian_kde(np.random.default_rng(0).normal(size=(2, 50))), (2,), None),
    "scipy correlation": (st.random_correlation([0.5, 1.5]), (2, 2), None),
    "scipy values": (st.rv_discrete(values=([0, 3, 7], [0.2, 0.3, 0.5])), (1,), None),
    "pair": ((0.0, 2.0), (1,), None),
    "pair of integers": ((0, 2), (1,), None),
    "pair of vectors": (([0.0, 1.0, 2.0], [1.0, 2.0, 3.0]), (3,), None),
    "pairs": ([(0, 1), (2, 3)], (2,), None),
    "own": (Own(), (2,), None),
    "function": (lambda rng: rng.normal(size=3), (3,), None),
    "function of a number": (lambda rng: rng.normal(), (1,), None),
    "torch function": (lambda rng: torch.randn(2), (2,), None),
    "array": (ROWS, (2,), None),
    "tensor": (torch.as_tensor(ROWS), (2,), None),
    "list of rows": (ROWS[:, :1].tolist(), (1,), None),
    "frame": (FRAME, (2,), ("rate", "count")),
    "series": (FRAME["rate"], (1,), ("rate",)),
    "columns": ({"a": ROWS[:, 0], "b": ROWS}, (3,), ("a", "b_1", "b_2")),
}


def drawn(prior, n=50, place=0):
    with stream(0, place) as rng:
        return draw(prior, n, rng)


@pytest.mark.parametrize(("prior", "event", "names"), PRIORS.values(), ids=PRIORS)
def test_draws_names_and_shapes(prior, event, names):
    for n in (1, 2, 50):
        theta = drawn(prior, n)
        assert tuple(theta.shape) == (n, *event)
        assert np.isfinite(np.asarray(theta)).all()
    assert event_shape(prior) == event
    assert parameter_names(prior) == names
    check_prior(prior)
    assert np.array_equal(np.asarray(drawn(prior)), np.asarray(drawn(prior)))
    assert not np.array_equal(np.asarray(drawn(prior)), np.asarray(drawn(prior, place=1)))


@pytest.mark.parametrize("prior", [case[0] for case in PRIORS.values()], ids=PRIORS)
def test_draws_lie_in_the_support_that_is_found(prior):
    said = describe(prior)
    theta = torch.as_tensor(np.asarray(drawn(prior, 200)), dtype=torch.float64)
    assert said.support.fits(theta.shape[1:])
    assert not said.support.outside(theta.flatten(1)).any()


@pytest.mark.parametrize("prior", [case[0] for case in PRIORS.values()], ids=PRIORS)
def test_a_problem_is_simulated(prior):
    sims = ps.simulate(prior, lambda theta: np.asarray(theta).reshape(len(theta), -1).sum(1), 20, progress=False)
    assert len(sims.theta) == 20


def test_a_list_draws_its_parts_one_after_the_other():
    first, second = dist.Normal(0.0, 1.0), dist.Exponential(1.0)
    with stream(0, 0):
        expected = torch.stack([first.sample((50,)), second.sample((50,))], 1)
    assert torch.equal(drawn([first, second]), expected)
    with stream(0, 0) as rng:
        rows = rng.integers(10, size=50)
    assert np.array_equal(drawn(ROWS), ROWS[rows])


def test_rows_of_columns_belong_together():
    theta = drawn({"a": np.arange(100), "b": -np.arange(100)})
    assert (theta[:, 0] == -theta[:, 1]).all()
    theta = drawn(Frame(a=np.arange(100), b=-np.arange(100)))
    assert (theta[:, 0] == -theta[:, 1]).all()


def test_uniform_priors_are_uniform():
    theta = drawn([(0.0, 1.0), (10.0, 30.0)], 5000)
    assert st.kstest(theta[:, 0], "uniform").pvalue > 1e-3
    assert st.kstest((theta[:, 1] - 10) / 20, "uniform").pvalue > 1e-3


@pytest.mark.parametrize(
    ("prior", "sentence"),
    [
        (5, r"A prior must have a method sample\(n, rng\), or be .*, got 5\."),
        ("normal", "got 'normal'"),
        (None, "got None"),
        (dist.Normal, "A prior must have .*got <class"),
        ([(0.0, 1.0), 3.0], r"got 3\.0"),
        ({"a": 1.0}, r"got 1\.0"),
        ({}, "needs at least 1 parameter"),
        ((1.0, 0.0), r"needs finite numbers with low < high, got \(1.0, 0.0\)"),
        ((0.0, np.inf), "needs finite numbers"),
        ([(0.0, 1.0), (3.0, 2.0)], r"got \(3.0, 2.0\)"),
        (((0.0, 1.0), (2.0, 3.0)), "can be read in two ways: write a list"),
        ([[0.0, 1.0], [2.0, 3.0]], r"can be read in two ways: write a tuple \(low, high\)"),
        ([0.0, 1.0], "can be read in two ways"),
        (lambda: 3.0, "must take one argument, rng"),
        (lambda a, b: 3.0, "must take one argument, rng"),
        (lambda rng: "a", "must return real numbers"),
        (np.array(["a", "b"]), "got array"),
        (np.zeros((0, 2)), "needs at least 1 draw"),
        (Frame(a=np.array(["x", "y"], dtype=object)), "must hold numbers only"),
        ({"a": np.zeros(3), "b": np.zeros(4)}, r"must have one length, got \[3, 4\]"),
        (st.gamma, "has no parameters"),
    ],
)
def test_what_is_not_a_prior_gets_a_sentence(prior, sentence):
    with pytest.raises(InputError, match=sentence):
        drawn(prior)


def test_names_that_occur_twice_are_refused():
    with pytest.raises(InputError, match="more than one parameter named 'a_1'"):
        parameter_names({"a": [(0, 1), (0, 1)], "a_1": (0, 1)})


def test_integers_are_found():
    assert describe(np.arange(7)).discrete == (0,)
    assert describe(np.arange(7)).support == ps.Box(0.0, 6.0)
    assert describe(np.arange(7.0)).discrete == ()
    assert describe(torch.arange(8).reshape(4, 2)).discrete == (0, 1)
    assert describe(FRAME).discrete == (1,)
    assert describe(FRAME).support == ps.Box((None, 0.0), (None, 9.0))
    assert describe([dist.Poisson(3.0), (0.0, 1.0), st.binom(10, 0.5), np.ones((5, 1), bool)]).discrete == (0, 2, 3)
    assert kind_of(st.poisson(3.0)) is Kind.SCIPY


DENSITIES = (
    "torch",
    "torch batch",
    "list of torch",
    "list of multivariate",
    "scipy",
    "scipy density estimate",
    "pairs",
)
