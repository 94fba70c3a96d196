"""Every executed page as a notebook to download, generated from the same source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from myst_nb.core.read import is_myst_markdown_notebook, read_myst_markdown_notebook
from sphinx.application import Sphinx


def is_executed(app: Sphinx, page: str) -> bool:
    path = Path(app.env.doc2path(page))
    return path.suffix == ".md" and is_myst_markdown_notebook(path.read_text())


def add_link(app: Sphinx, page: str, source: list[str]) -> None:
    """A line at the end of every executed page."""
    if is_executed(app, page):
        up = "../" * page.count("/")
        link = f'<a href="{up}notebooks/{page.replace("/", "-")}.ipynb" download>Download this page as a notebook</a>'
        source[0] += f'\n\n<p class="notebook">{link}</p>\n'


def write_notebooks(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.name != "html":
        return
    folder = Path(app.outdir) / "notebooks"
    folder.mkdir(exist_ok=True)
    for page in app.env.found_docs:
        if is_executed(app, page):
            text = Path(app.env.doc2path(page)).read_text()
            notebook = read_myst_markdown_notebook(text)
            notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
            nbformat.write(notebook, folder / f"{page.replace('/', '-')}.ipynb")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", add_link)
    app.connect("build-finished", write_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
