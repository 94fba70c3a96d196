"""Blocks of code that belong together stand side by side where the page is wide enough."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

PAIR = re.compile(r"(```python\n# (?:sbi|BayesFlow)\n.*?```)\n\n(```python\n# propersbi\n.*?```)", re.DOTALL)
SIDE_BY_SIDE = r"""::::{grid} 1 1 1 2
:gutter: 2

:::{grid-item}
\1
:::
:::{grid-item}
\2
:::
::::"""


def arrange(app: Sphinx, page: str, source: list[str]) -> None:  # noqa: ARG001
    source[0] = PAIR.sub(SIDE_BY_SIDE, source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", arrange)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
