"""Full disks: a small file system in memory, in a mount namespace of its own, fills up at a random place.

The error names the disk, what was there before is kept, and with more space the work ends with the same bytes as on
an empty disk. ``python -m benchmarks.attacks.disk simulate 20 0`` is what runs inside the namespace.
"""

from __future__ import annotations

import errno
import json
import random
import shutil
import subprocess
import sys
import tempfile
import warnings
from dataclasses import asdict
from pathlib import Path

from benchmarks.attacks.kills import digests, work
from benchmarks.attacks.outcome import Outcome
from propersbi.types import InputError

__all__ = ["attack_full_disk", "can_mount"]

NAMESPACE = ("unshare", "--map-root-user", "--mount")
PAGE = 4096  # bytes, by which such a file system grows


def can_mount() -> bool:
    """Whether this system lets us have a file system of our own."""
    command = [*NAMESPACE, "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tempfile.gettempdir()]
    return shutil.which("unshare") is not None and not subprocess.run(command, capture_output=True).returncode


def attack_full_disk(what: str, count: int, seed: int = 0) -> Outcome:
    """Fill the disk so many times during something."""
    if not can_mount():
        return Outcome(broken=["this system does not allow a file system of one's own (unshare, tmpfs)"])
    command = [*NAMESPACE, sys.executable, "-m", "benchmarks.attacks.disk", what, str(count), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return Outcome(broken=[f"disk full in {what}: {done.stderr[-300:]}"])
    return Outcome(**json.loads(done.stdout.splitlines()[-1]))


def attack(what: str, count: int, seed: int) -> Outcome:
    """The same, where file systems can be mounted."""
    outcome, rng = Outcome(), random.Random(f"{seed} {what}")
    with tempfile.TemporaryDirectory() as scratch:
        whole = Path(scratch) / "whole"
        work(what, whole)
        expected = digests(what, whole)
        pages = sum(-(-path.stat().st_size // PAGE) for path in whole.rglob("*") if path.is_file())
        small = Path(scratch) / "small"
        small.mkdir()
        while outcome.count < count:
            size = PAGE * rng.randint(1, max(2, pages - 1))
            _mount(small, size, "tmpfs")
            try:
                outcome.broken += [f"{what} on {size} bytes: {line}" for line in _fill(what, small / "r", expected)]
                outcome.count += 1
            finally:
                subprocess.run(["umount", small], check=True)
    return outcome


def _fill(what: str, folder: Path, expected: dict[str, str]) -> list[str]:
    """What went wrong on a disk that is too small, and when it became larger."""
    broken = []
    try:
        work(what, folder)
        broken += ["there was space enough"]
    except (OSError, InputError, RuntimeError) as error:
        if "is full" not in str(error) or (isinstance(error, OSError) and error.errno != errno.ENOSPC):
            broken += [f"{type(error).__name__}: {str(error)[:150]}"]
    broken += [f"{path.name} was left half" for path in folder.rglob("*.tmp")]
    _mount(folder.parent, 1 << 28, "remount")
    work(what, folder)
    if digests(what, folder) != expected:
        broken += ["the end differs from that on a large disk"]
    return broken


def _mount(place: Path, size: int, how: str) -> None:
    options = f"size={size}" if how == "tmpfs" else f"remount,size={size}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(asdict(attack(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))))
