"""Threads and matrix products are set for a block, round no more than usual and are then as they were."""

from types import SimpleNamespace

import pytest
import torch

from propersbi.storage import processor
from propersbi.storage.processor import quick_products, threads
from propersbi.storage.torch_defaults import torch_defaults

SHAPES = [(256, 128, 256), (2560, 8, 64), (2560, 64, 2), (1, 256, 256)]


def setting():
    return torch.backends.mkldnn.matmul.fp32_precision


@pytest.fixture
def on_wide_processor(monkeypatch):
    monkeypatch.setattr(processor, "_is_quicker", lambda: True)


@pytest.mark.parametrize("shape", SHAPES)
def test_products_keep_single_precision(shape):
    rows, inputs, outputs = shape
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, inputs, generator=generator)
    weight = torch.randn(outputs, inputs, generator=generator)
    exact = x.double() @ weight.double().mT
    exact_gradient = exact.mT @ x.double()
    with quick_products():
        found = x @ weight.mT
        gradient = exact.float().mT @ x
    assert (found - exact).abs().max() < 1e-5 * exact.abs().max()
    assert (gradient - exact_gradient).abs().max() < 1e-5 * exact_gradient.abs().max()


@pytest.mark.usefixtures("on_wide_processor")
def test_setting_ends_with_the_block_and_nests():
    with torch_defaults():
        assert setting() == "bf16"
        with quick_products():
            assert setting() == "bf16"
        assert setting() == "bf16"
    assert setting() == "none"


@pytest.mark.usefixtures("on_wide_processor")
def test_setting_ends_after_an_error():
    with pytest.raises(ZeroDivisionError), quick_products():
        _ = 1 / 0
    assert setting() == "none"
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.usefixtures("on_wide_processor")
def test_a_chosen_precision_is_kept():
    torch.backends.mkldnn.matmul.fp32_precision = "ieee"
    try:
        with quick_products():
            assert setting() == "ieee"
        assert setting() == "ieee"
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = "none"


@pytest.mark.usefixtures("on_wide_processor")
def test_earlier_versions_of_pytorch_multiply_as_usual(monkeypatch):
    monkeypatch.setattr(torch.backends, "mkldnn", SimpleNamespace())
    with quick_products():
        assert torch.ones(2, 2).mm(torch.ones(2, 2)).sum() == 8


@pytest.mark.parametrize(
    ("features", "quicker"),
    [
        ({"avx512_f": True}, True),
        ({"avx512_f": True, "amx_tile": True}, False),
        ({"avx2": True}, False),
        ({"architecture": "aarch64"}, False),
    ],
)
def test_only_with_wide_registers_and_without_half_precision(monkeypatch, features, quicker):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: features)
    processor._is_quicker.cache_clear()
    try:
        assert processor._is_quicker() is quicker
    finally:
        processor._is_quicker.cache_clear()


def test_threads():
    before = torch.get_num_threads()
    with threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
