"""How many animals are there, if each is seen with a known probability? A whole number."""

from scipy.stats import poisson

prior = {"animals": poisson(20)}


def simulator(animals, rng):
    return rng.binomial(int(animals), 0.6, size=4)


observation = [11, 14, 12, 10]
