"""Every public implementation is in a table of cases, so that the laws run on it."""

import inspect

import propersbi as ps
from propersbi.samplers import Generator, Sampler, Support, latent
from propersbi.scoring import kernels
from propersbi.sequential import corrections, ratio
from propersbi.simulation import executors
from propersbi.training import Objective, divergences, objectives, stopping
from tests.laws import cases

ABSTRACT_HELPERS = {"Standardize"}  # units, not a family of its own


def classes(*modules):
    """The concrete classes in the ``__all__`` of some modules."""
    found = [getattr(module, name) for module in modules for name in module.__all__]
    return {c for c in found if inspect.isclass(c) and not inspect.isabstract(c)}


def kinds(table):
    return {type(case) for case in table.values()}


def made(table):
    """The classes of what the cases make, and of all samplers inside them."""
    modules = [module for case in table.values() for module in case().modules()]
    return {type(module) for module in modules}


def test_kernels():
    assert classes(kernels) - {kernels.MedianHeuristic} == kinds(cases.KERNELS)


def test_scoring_rules():
    assert classes(ps.scoring) <= kinds({**cases.RULES, **cases.COMPOSED})


def test_samplers_and_generators():
    samplers = {c for c in classes(ps.samplers, ps.networks) if issubclass(c, Sampler)}
    assert samplers <= made(cases.SAMPLERS)
    assert {c for c in samplers if issubclass(c, Generator)} <= made(cases.GENERATORS)


def test_supports():
    public = {c for c in classes(ps.samplers) if issubclass(c, Support)}
    assert public == {type(support) for support, _ in cases.SUPPORTS.values()}


def test_embeddings_and_critics():
    modules = classes(ps.networks)
    assert {c for c in modules if c.__name__.endswith("Embedding")} == {
        type(case()) for case in cases.EMBEDDINGS.values()
    }
    assert {c for c in modules if c.__name__.endswith("Critic")} == {type(case()) for case in cases.CRITICS.values()}


def test_divergences():
    assert classes(divergences) == kinds(cases.DIVERGENCES)


def test_objectives():
    public = {c for c in classes(objectives, ps.training, ratio) if issubclass(c, Objective)}
    assert public == {type(case()) for case in cases.OBJECTIVES.values()}


def test_stopping_rules():
    assert classes(stopping) - {stopping.Stopping} == {type(rule) for rule, _ in cases.STOPPINGS.values()}


def test_latent_variables():
    assert {c for c in classes(latent) if issubclass(c, latent.Rejection | latent.Metropolis)} == kinds(cases.LATENTS)


def test_corrections():
    public = {c for c in classes(corrections) if {"propose", "prepare"} <= set(dir(c))}
    assert public - {corrections.Correction} == kinds(cases.CORRECTIONS)


def test_executors():
    assert classes(executors) == kinds(cases.EXECUTORS)


def test_priors():
    from propersbi.tasks import priors

    assert classes(priors) <= kinds(cases.PRIORS)


def test_tasks():
    assert set(cases.TASKS) == set(ps.tasks.names())
