"""Numbers as people read them."""

from __future__ import annotations

import math
import re

__all__ = ["count", "duration", "number", "percent", "plain", "rounded", "tied"]

OPEN, CLOSE = "\ue000", "\ue001"  # stand for parentheses that are done


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


def plain(text: str) -> str:
    """A text with calls of Python in it, in words.

    >>> plain("scoring rule EnergyScore(beta=0.5, fair=True)")
    'scoring rule energy score (beta 0.5, fair)'
    >>> plain("support Box(lower=(0.0, -1.0), upper=1.0, point_masses=None)")
    'support box (lower 0 | -1, upper 1)'
    >>> plain("network MLPGenerator()"), plain("stopping (Patience(validations=20),)")
    ('network MLP generator', 'stopping patience (validations 20)')
    """
    before = ""
    while before != text:  # from the innermost call outwards; parentheses that are done become private characters
        before = text
        text = re.sub(r"(?<!\w)\(([^()]*)\)", lambda m: " | ".join(_parts(m[1])), text)
        text = re.sub(r"\b([A-Z]\w*)\(([^()]*)\)", lambda m: _call(m[1], m[2]), text)
    text = re.sub(r"\b(\d+)\.0\b", r"\1", text)
    return text.replace(OPEN, "(").replace(CLOSE, ")")


def _call(name: str, arguments: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name).replace("U Net", "U-Net").split()
    spoken = " ".join(word if word.isupper() or "-" in word else word.lower() for word in words)
    inside = ", ".join(filter(None, map(_argument, _parts(arguments))))
    return f"{spoken} {OPEN}{inside}{CLOSE}" if inside else spoken


def _argument(text: str) -> str:
    """``name=value`` in words; what is not set is not said."""
    name, given, value = text.partition("=")
    if not given:
        return text
    name = name.replace("_", " ")
    return {"None": "", "True": name, "False": f"not {name}"}.get(value, f"{name} {value}")


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
