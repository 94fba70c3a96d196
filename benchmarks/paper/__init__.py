"""The paper's experiments (Pacchiardi & Dutta 2022): its networks, critics, patch weights and training.

Reproduction is not the product: nothing here is part of the library, and everything here is built from it. Importing
the package lets posteriors and recipes with these networks and critics be saved and loaded.
"""

from propersbi.storage.config import register

for _module in ("networks", "critics", "gatsbi"):
    register(f"{__name__}.{_module}")
