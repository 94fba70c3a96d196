"""Torch's defaults, whatever the caller has set: single precision, the CPU, and gradients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from propersbi.storage.processor import quick_products

__all__ = ["torch_defaults"]


@contextmanager
def torch_defaults() -> Iterator[None]:
    """Run under torch's own defaults, with quick matrix products, and leave those of the caller as they were.

    >>> import torch
    >>> torch.set_default_dtype(torch.float64)
    >>> with torch_defaults(), torch.no_grad():
    ...     torch.zeros(1).dtype
    torch.float32
    >>> torch.get_default_dtype()
    torch.float64
    >>> torch.set_default_dtype(torch.float32)
    """
    import torch

    before, on_cpu = torch.get_default_dtype(), torch.get_default_device().type == "cpu"
    torch.set_default_dtype(torch.float32)
    try:
        # A device as a context costs time at every call, so only where it is needed.
        device = nullcontext() if on_cpu else torch.device("cpu")
        with torch.inference_mode(False), torch.enable_grad(), device, quick_products():
            yield
    finally:
        torch.set_default_dtype(before)
