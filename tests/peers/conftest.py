import pytest
import torch


@pytest.fixture(autouse=True)
def gradients():
    """BayesFlow switches gradients off for the process when it is imported, and sbi cannot train without."""
    torch.set_grad_enabled(True)
