"""Whether a posterior can be trusted, measured on fresh simulations whose parameters are known.

>>> from propersbi.diagnostics import diagnose
>>> class Exact:
...     "The exact posterior of theta ~ N(0, 1), x = theta + noise ~ N(0, 1)."
...     def sample_batched(self, shape, x, show_progress_bars=True):
...         x = x.numpy()
...         return x / 2 + np.sqrt(0.5) * np.random.normal(size=(*shape, *x.shape))
>>> import numpy as np
>>> rng = np.random.default_rng(0)
>>> theta = rng.normal(size=(300, 1))
>>> diagnose(Exact(), theta, theta + rng.normal(size=(300, 1)), num_samples=200, progress=False).overall
'good'
"""

from propersbi.diagnostics.measure import diagnose
from propersbi.diagnostics.result import Diagnostics
from propersbi.diagnostics.verdicts import Verdict

__all__ = ["Diagnostics", "Verdict", "diagnose"]
