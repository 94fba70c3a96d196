"""Seeded damage to files: bits, bytes, entries of JSON, headers of safetensors; checksums may be made to fit again."""

from __future__ import annotations

import copy
import json
import random
import struct
from collections.abc import Callable
from typing import Any

__all__ = ["damage_bytes", "damage_json", "damage_safetensors"]

DEEP: Any = 0
for _ in range(200):
    DEEP = [DEEP]

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3.5, -0.5, 10**9, -(10**9), 2**31, 2**63, 10**30, 1e30, 1e308, -1e308, 1e-300,
    "", "x", "x" * 5000, "\ud800", "nan", "../..", "Infinity", [], {}, [10**9], [-1], [0], ["a"], [[]], [1, 2, 3],
    [1.5, None], {"class": "EnergyScore"}, {"class": "Box"}, {"class": "custom", "name": "os.system"},
    {"class": "MLPGenerator"}, {"class": "Recipe"}, {"class": "Standardize"}, DEEP,
)  # fmt: skip
CLASSES = (
    "EnergyScore", "Box", "MLPGenerator", "Recipe", "Standardize", "Standardized", "Refined", "LinearResidual",
    "Mixture", "KernelScore", "Gaussian", "Patience", "TrainConfig", "LatentCorrected", "FieldGenerator", "Flow",
    "Integers", "Subset", "MLPEmbedding", "nothing", "os.system",
)  # fmt: skip


WHOLE = (b"", b"\0", b"{}", b"[]", b"null", b'"', b"PK\x03\x04", b"[" * 5000, b"9" * 5000, b"1e999")


def damage_bytes(content: bytes, rng: random.Random) -> bytes:
    """Flip, cut, double, insert, blank or replace some bytes."""
    at = rng.randrange(len(content) + 1)
    length = rng.choice([1, 4, 32, 400])
    kinds: list[Callable[[], bytes]] = [
        lambda: _flip(content, rng),
        lambda: _flip(content, rng),
        lambda: content[:at],
        lambda: content[:at] + content[at + length :],
        lambda: content[:at] + content[max(0, at - length) : at] + content[at:],
        lambda: content[:at] + rng.randbytes(length) + content[at:],
        lambda: content[:at] + bytes(length) + content[at + length :],
        lambda: rng.choice(WHOLE),
    ]
    return rng.choice(kinds)()


def _flip(content: bytes, rng: random.Random) -> bytes:
    if not content:
        return b"\1"
    at = rng.randrange(len(content))
    return content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :]


def damage_json(data: Any, rng: random.Random) -> Any:
    """Replace, remove, add, swap or rename one or two entries."""
    data = copy.deepcopy(data)
    for _ in range(rng.choice([1, 1, 2])):
        places = list(_places(data))
        if not places:
            return rng.choice(VALUES)
        parent, key = rng.choice(places)
        kind = rng.randrange(8)
        if kind <= 3:
            parent[key] = copy.deepcopy(rng.choice(VALUES))
        elif kind == 4:
            del parent[key]
        elif kind == 5 and isinstance(parent, dict):
            parent[rng.choice(["more", "class", "\ud800", "format", "n"])] = copy.deepcopy(rng.choice(VALUES))
        elif kind == 6:
            other, place = rng.choice(places)
            parent[key] = copy.deepcopy(other[place])
        else:
            _rename_class(data, rng)
    return data


def _rename_class(data: Any, rng: random.Random) -> None:
    classes = [(parent, key) for parent, key in _places(data) if key == "class"]
    if classes:
        parent, key = rng.choice(classes)
        parent[key] = rng.choice(CLASSES)


def _places(data: Any) -> Any:
    """All entries, as pairs of their container and key."""
    stack = [data]
    while stack:
        value = stack.pop()
        keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
        for key in keys:
            yield value, key
            stack.append(value[key])


def damage_safetensors(content: bytes, rng: random.Random) -> bytes:
    """Damage the header, or the numbers behind it."""
    (length,) = struct.unpack("<Q", content[:8])
    header, body = json.loads(content[8 : 8 + length]), content[8 + length :]
    if rng.random() < 0.6:
        text = json.dumps(damage_json(header, rng)).encode()
        return struct.pack("<Q", len(text)) + text + body
    special = rng.choice([b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\xff\xff\x7f\x7f", b"\0\0\0\0"])  # NaN, infinity, huge, 0
    at = 4 * rng.randrange(max(1, len(body) // 4))
    return content[: 8 + length] + body[:at] + special + body[at + 4 :]
