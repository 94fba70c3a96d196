"""Shapes are types: every annotated array of these modules is checked at run time in the tests."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

from jaxtyping import install_import_hook

MODULES = ("scoring", "samplers", "networks", "training.objectives", "training.adversarial", "training.divergences")
install_import_hook([f"propersbi.{name}" for name in MODULES], "beartype.beartype")

import pytest  # noqa: E402
import torch  # noqa: E402


@pytest.fixture(autouse=True)
def _repeatable():
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture
def unchecked_shapes():
    """What a user sees: shapes are checked by the library's own sentences only."""
    from jaxtyping import config

    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
