"""What a training step frees, the next one needs again: keep it instead of giving it back to the system."""

from __future__ import annotations

import ctypes
import platform
from functools import cache

__all__ = ["keep_freed_memory"]

# Of glibc's malloc.h: how much may lie free at the top, how much more to ask for, which blocks to ask for one by one.
TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3


@cache
def keep_freed_memory() -> bool:
    """Tell the C library to keep up to 1 GB of freed memory for this process; whether it could be told.

    By default glibc hands blocks of some megabytes back as soon as they are free. A step then gets new pages for all
    its activations, one fault per 4 kB, which small networks feel most.

    Examples:
        >>> keep_freed_memory() == (platform.libc_ver()[0] == "glibc")
        True
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all(
        mallopt(option, size) for option, size in ((MMAP_THRESHOLD, 2**25), (TRIM_THRESHOLD, 2**30), (TOP_PAD, 2**26))
    )
