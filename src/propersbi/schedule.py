"""How much training a problem takes: emulated pairs, optimiser, steps, batches and weight decay, from its sizes."""

from __future__ import annotations

from typing import Any

__all__ = [
    "FEWEST_FOR_SOAP",
    "FEW_PAIRS",
    "MANY_PAIRS",
    "batch_size",
    "emulated_pairs",
    "emulator_settings",
    "is_long",
    "max_steps",
    "optimizer",
    "peak_rate",
    "simulated_alone",
    "weight_decay",
]

FEW_PAIRS, MANY_PAIRS = 3000, 9000  # training pairs: below, gradients are noisy; above, more of them show more detail
FEW_NUMBERS = 6.5  # in theta and x together: what they say is soon learnt
LONG_VECTOR = 50  # numbers in x above which a network memorises single simulations
LONG_DECAY = 0.3  # of the weights, there
EMULATED = 100_000  # pairs that an emulator makes, where it is of use
DISTINCT = 0.7  # share of different data, below which they are small counts
FEWEST_FOR_SOAP = 30_000  # training pairs of a posterior; it was measured with 9 000 and 95 000
SHORT = 1.5e-3  # seconds for each training pair: no more of them, and nothing is memorised yet
RATE, BRIEF_RATE = 6e-3, 1e-2  # peak of the learning rate of a step of a chain; where there are few steps, higher
WARMUP, SLOW_WARMUP, BRIEF_WARMUP = 300, 900, 150  # steps until then
FEWEST_TO_EMULATE, MOST_TO_EMULATE = 1000, 30_000  # simulations; it was measured with 1 000 and 10 000


def is_long(numbers: int) -> bool:
    """Whether data have so many numbers that a network memorises single simulations."""
    return numbers >= LONG_VECTOR


def emulated_pairs(simulations: int, numbers: int, distinct: float) -> tuple[int, str]:
    """How many pairs to emulate.

    Arguments:
        simulations: How many there are.
        numbers: In the data of each.
        distinct: The share of the data that are different. Small counts occur again and again: there is little to
            memorise, and their probabilities are hard to emulate.

    >>> emulated_pairs(1000, 8, 1.0)
    (100000, '1,000 simulations are few, and data of 8 numbers are easy to emulate')
    """
    few = FEWEST_TO_EMULATE <= simulations <= MOST_TO_EMULATE
    if not (few and not is_long(numbers) and distinct > DISTINCT):
        return 0, ""
    return EMULATED, f"{simulations:,} simulations are few, and data of {numbers} numbers are easy to emulate"


def max_steps(rows: int, numbers: int, *, chain: bool, emulated: bool, optimizer: str = "adamw") -> tuple[int, str]:
    """Gradient steps: more for more simulations, which carry more detail.

    Arguments:
        rows: Simulated pairs to train on.
        numbers: In theta and x together; the more there are, the faster the number of steps grows.
        chain: Whether draws are refined in several steps.
        emulated: Whether there are emulated pairs besides, which delay memorising: then more numbers take more steps.
        optimizer: With SOAP they are half as many, and batches twice as large.
    """
    usual, few = (7000, min(max(numbers / 30, 0.2), 0.4)) if chain else (2500, 0.25)
    often = min(max(numbers / FEW_NUMBERS, 1.0), 1.5 if rows < FEW_PAIRS else 2.0) if emulated else 1.0
    growth = few if rows < MANY_PAIRS and not emulated else min(max(numbers / 18, 0.4), 0.75)
    often = often / 2 if optimizer == "soap" else often
    return round(often * usual * (rows / MANY_PAIRS) ** growth), f"{rows:,} training pairs"


def emulator_settings(rows: int, numbers: int, optimizer: str, steps: int | None = None) -> dict[str, Any]:
    """Settings of an emulator's training; data given parameters are easier to learn than the posterior.

    Arguments:
        rows: Pairs to train on.
        numbers: In theta and x together.
        optimizer: Its own.
        steps: If they were asked for.
    """
    few = rows < FEW_PAIRS and optimizer == "adamw"
    usual = max_steps(rows, numbers, chain=True, emulated=False, optimizer=optimizer)[0] // (4 if few else 2)
    size = min(256, rows) if few else batch_size(rows, large=False, optimizer=optimizer)[0]
    return {"max_steps": steps or usual, "batch_size": size}


def simulated_alone(rows: int, numbers: int) -> float:
    """The share of all steps, the last ones, at low learning rates, that leave emulated pairs out.

    What is emulated may be slightly wrong, that of few simulations more so; too many such steps memorise them, where
    theta and x together have more than a few ``numbers``.
    """
    return 0.15 if rows < FEW_PAIRS or numbers <= FEW_NUMBERS else 0.1


def optimizer(rows: int, *, emulator: bool, time_limit: object = None) -> tuple[str, str]:
    """SOAP, where it does not memorise training pairs: they are many, emulated ones included, or time is short."""
    if rows >= (FEW_PAIRS if emulator else FEWEST_FOR_SOAP):
        return "soap", "a lower score after equally many steps"
    if not emulator and _is_short(rows, time_limit):
        return "soap", f"{time_limit:g} seconds are too few to memorise {rows:,} training pairs"
    return "adamw", f"{rows:,} training pairs are few"


def peak_rate(rows: int, simulated: int, optimizer: str, time_limit: object = None) -> tuple[float, int, str]:
    """The peak of the learning rate of a step of a chain, the warm-up, and why it is so long.

    Arguments:
        rows: Pairs to train on.
        simulated: Those of them that are simulated.
        optimizer: Where steps of SOAP are few, they are larger and start sooner.
        time_limit: Seconds of training, if limited.
    """
    few = simulated < FEW_PAIRS <= rows
    if optimizer == "soap" and (few or _is_short(rows, time_limit)):
        return BRIEF_RATE, BRIEF_WARMUP, "steps are few"
    return RATE, SLOW_WARMUP if rows < FEW_PAIRS else WARMUP, "a chain starts as a Gaussian and leaves it slowly"


def _is_short(rows: int, time_limit: object) -> bool:
    """Whether so many seconds allow few steps only; a time limit that is no number is refused elsewhere."""
    return isinstance(time_limit, int | float) and time_limit <= SHORT * min(rows, FEWEST_FOR_SOAP)


def batch_size(rows: int, *, large: bool, optimizer: str = "adamw") -> tuple[int, str]:
    """Pairs per gradient step; ``large`` data make a step costly, and so does SOAP, whatever the size of a batch."""
    if large:
        return min(64, rows), "large data"
    size, reason = (512, " and SOAP") if optimizer == "soap" else (128 if rows < FEW_PAIRS else 256, "")
    return min(size, rows), f"{rows:,} training pairs{reason}"


def weight_decay(rows: int, numbers: int) -> tuple[float, str]:
    """Where data have many numbers, most of which may say nothing; less per step if more steps make a pass."""
    if not is_long(numbers):
        return 0.0, ""
    return LONG_DECAY * min(1.0, MANY_PAIRS / rows), f"{numbers} numbers in x"
