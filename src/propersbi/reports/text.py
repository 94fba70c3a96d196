"""Numbers as people read them."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["code", "count", "duration", "number", "percent", "rounded", "tied"]


def number(value: float | None) -> str:
    """Three digits; a dash for what is unknown.

    >>> number(0.12345), number(1e-9), number(None), number(12345.6)
    ('0.123', '1.00e-09', '–', '12,346')
    """
    if not isinstance(value, int | float) or not math.isfinite(value):
        return "–"
    return f"{value:.2e}" if value and abs(value) < 1e-3 else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def tied(text: str) -> str:
    """The text with its per cent signs tied to their numbers."""
    return text.replace(" %", "\u00a0%")


def rounded(value: float, scale: float) -> str:
    """As many digits as the standard deviation makes sense of: three of its own.

    >>> rounded(3.14159, 0.021), rounded(-31415.9, 150.0), rounded(-0.0001, 1.0), rounded(0.5, 0.0)
    ('3.1416', '−31416', '0.00', '0.5')
    """
    if not 1e-6 < scale < 1e6:
        return f"{value:.4g}".replace("-", "−")
    text = f"{value:.{max(0, 2 - math.floor(math.log10(scale)))}f}"
    return text.replace("-", "−") if float(text) else text.removeprefix("-")


def percent(value: float | None) -> str:
    """A share in per cent."""
    return "–" if value is None else f"{100 * value:.0f} %"


def count(value: int | None) -> str:
    """A whole number in groups of three.

    >>> count(1234), count(None)
    ('1,234', '–')
    """
    return "–" if value is None else f"{value:,}"


def duration(seconds: float | None) -> str:
    """A time as people say it.

    >>> duration(4.24), duration(75), duration(7325)
    ('4.2 s', '1 min 15 s', '2 h 2 min')
    """
    if seconds is None or not math.isfinite(seconds):
        return "–"
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.2g} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


def code(value: Any) -> str:
    """What was saved as JSON, as it is written in Python.

    >>> code({"class": "KernelScore", "kernel": {"class": "Gaussian", "bandwidth": 0.5}})
    'KernelScore(kernel=Gaussian(bandwidth=0.5))'
    """
    if isinstance(value, dict) and "class" in value:
        inside = ", ".join(f"{key}={code(part)}" for key, part in value.items() if key != "class")
        return f"{value['class']}({inside})"
    if isinstance(value, list):
        return f"({', '.join(map(code, value))}{',' if len(value) == 1 else ''})"
    return repr(value) if isinstance(value, str) else str(value)
