"""How much training a problem takes: emulated pairs, optimiser, steps, batches and weight decay, from its sizes."""

from __future__ import annotations

__all__ = [
    "FEWEST_FOR_SOAP",
    "FEW_PAIRS",
    "MANY_PAIRS",
    "batch_size",
    "emulated_pairs",
    "emulator_steps",
    "is_long",
    "max_steps",
    "optimizer",
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
        optimizer: With SOAP they may be half as many, and batches twice as large.
    """
    usual, few = (7000, min(max(numbers / 30, 0.2), 0.4)) if chain else (2500, 0.25)
    often = min(max(numbers / FEW_NUMBERS, 1.0), 2.0) if emulated else 1.0
    growth = few if rows < MANY_PAIRS and not emulated else min(max(numbers / 18, 0.4), 0.75)
    often = often / 2 if _takes_large_batches(optimizer, rows) else often
    return round(often * usual * (rows / MANY_PAIRS) ** growth), f"{rows:,} training pairs"


def emulator_steps(rows: int, numbers: int, optimizer: str) -> int:
    """Gradient steps of an emulator: data given parameters are easier to learn than the posterior."""
    return max_steps(rows, numbers, chain=True, emulated=False, optimizer=optimizer)[0] // 2


def simulated_alone(rows: int, numbers: int) -> float:
    """The share of all steps, the last ones, at low learning rates, that leave emulated pairs out.

    What is emulated may be slightly wrong, that of few simulations more so; too many such steps memorise them, where
    theta and x together have more than a few ``numbers``.
    """
    return 0.15 if rows < FEW_PAIRS or numbers <= FEW_NUMBERS else 0.05


def optimizer(rows: int, *, emulator: bool, time_limit: object = None) -> tuple[str, str]:
    """SOAP, where it does not memorise training pairs: they are many, emulated ones included, or time is short.

    A time limit that is no number is refused elsewhere.
    """
    if rows >= (FEW_PAIRS if emulator else FEWEST_FOR_SOAP):
        return "soap", "a lower score after equally many steps"
    if not emulator and isinstance(time_limit, int | float) and time_limit <= SHORT * rows:
        return "soap", f"{time_limit:g} seconds are too few to memorise {rows:,} training pairs"
    return "adamw", f"{rows:,} training pairs are few"


def batch_size(rows: int, simulated: int, *, large: bool, optimizer: str = "adamw") -> tuple[int, str]:
    """Pairs per gradient step.

    Arguments:
        rows: Pairs to train on.
        simulated: Those of them that are simulated.
        large: Whether data are large, so that a step is costly.
        optimizer: What SOAP computes itself takes as long for any batch, so that large ones save time.
    """
    if large:
        return min(64, rows), "large data"
    if _takes_large_batches(optimizer, simulated):
        return min(512, rows), f"{rows:,} training pairs and SOAP"
    return min(128 if rows < FEW_PAIRS else 256, rows), f"{rows:,} training pairs"


def _takes_large_batches(optimizer: str, simulated: int) -> bool:
    """Where simulations are few, smaller batches with their noisy gradients infer better."""
    return optimizer == "soap" and simulated >= FEW_PAIRS


def weight_decay(rows: int, numbers: int) -> tuple[float, str]:
    """Where data have many numbers, most of which may say nothing; less per step if more steps make a pass."""
    if not is_long(numbers):
        return 0.0, ""
    return LONG_DECAY * min(1.0, MANY_PAIRS / rows), f"{numbers} numbers in x"
