"""What came of attacks, and how they are limited in time."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = ["HangError", "Outcome", "limited"]


class HangError(Exception):
    """Something took too long."""


@dataclass
class Outcome:
    """What came of attacks.

    Arguments:
        count: How many there were.
        refused: How many were answered with an ``InputError``.
        broken: What was answered otherwise: the error, and how to repeat it.
        note: What was measured, in a few words.
    """

    count: int = 0
    refused: int = 0
    broken: list[str] = field(default_factory=list)
    note: str = ""

    @classmethod
    def joined(cls, outcomes: Iterable[Outcome]) -> Outcome:
        """That of several attacks."""
        whole = cls()
        for outcome in outcomes:
            whole.count, whole.refused = whole.count + outcome.count, whole.refused + outcome.refused
            whole.broken += outcome.broken
        return whole


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise :class:`HangError` after so many seconds of work, or six times as many of waiting."""

    def stop(*_: Any) -> None:
        raise HangError(f"no answer within {seconds} s")

    before = [signal.signal(number, stop) for number in (signal.SIGALRM, signal.SIGVTALRM)]
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    signal.alarm(6 * seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        for number, handler in zip((signal.SIGALRM, signal.SIGVTALRM), before, strict=True):
            signal.signal(number, handler)
