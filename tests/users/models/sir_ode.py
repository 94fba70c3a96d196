"""An epidemic by ordinary differential equations, one set of parameters at a time."""

import numpy as np
from scipy.integrate import odeint
from scipy.stats import lognorm

POPULATION, DAYS = 1000.0, np.linspace(0, 60, 11)

prior = {"beta": lognorm(s=0.5, scale=0.4), "gamma": (0.05, 0.3)}


def rates(state, t, beta, gamma):
    s, i, _ = state
    new, well = beta * s * i / POPULATION, gamma * i
    return [-new, new - well, well]


def simulator(theta, rng):
    beta, gamma = theta
    infected = odeint(rates, [POPULATION - 1, 1, 0], DAYS, args=(beta, gamma))[1:, 1]
    return rng.poisson(np.clip(infected, 0, None))


observation = [4, 16, 65, 203, 350, 315, 203, 115, 62, 33]
