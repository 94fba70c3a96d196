"""How torch uses the processor: how many threads, and which library multiplies matrices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

__all__ = ["quick_products", "threads"]

UNSET, ONEDNN = "none", "bf16"  # settings of PyTorch; the second leaves products to oneDNN


@contextmanager
def quick_products() -> Iterator[None]:
    """Multiply matrices by oneDNN within the block, on processors where it may be quicker and rounds no more.

    PyTorch multiplies by MKL, which uses AVX-512 on Intel's processors only; oneDNN, a part of PyTorch as well, uses it
    on all of them. It takes half the time on some, and as long on those that execute AVX-512 in two halves. PyTorch's
    setting for this would also allow it half precision, which it uses on processors with units for such products:
    there it stays off. Who has chosen a precision keeps it.

    >>> import torch
    >>> with quick_products():
    ...     torch.ones(200, 100).mm(torch.ones(100, 50)).unique()
    tensor([100.])
    """
    import torch

    matmul = getattr(torch.backends.mkldnn, "matmul", None)  # since PyTorch 2.9
    if matmul is None or matmul.fp32_precision != UNSET or not _is_quicker():
        yield
        return
    matmul.fp32_precision = ONEDNN
    try:
        yield
    finally:
        matmul.fp32_precision = UNSET


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads of torch within the block."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def _is_quicker() -> bool:
    """Whether there are oneDNN and AVX-512, and no units for products in half precision."""
    import torch

    features = torch.cpu.get_capabilities()
    halves = features.get("amx_tile", False) or features.get("avx10_2", False)
    return torch.backends.mkldnn.is_available() and features.get("avx512_f", False) and not halves
