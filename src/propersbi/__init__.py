"""Simulation-based inference with generative networks trained by proper scoring rules.

>>> import propersbi as ps
>>> task = ps.tasks.get("two_moons")
>>> sims = ps.simulate(task.prior, task.simulate, 200, seed=0, progress=False)
>>> posterior = ps.fit(sims.theta, sims.x, prior=task.prior, max_steps=2, progress=False)
>>> posterior.sample((1000,), x=task.observation(1)).shape
torch.Size([1000, 2])

Names are imported when they are first used: importing the package does nothing else. The public names are those of
``__init__.pyi``.
"""

import lazy_loader

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
