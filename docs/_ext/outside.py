"""Links from a page to files of the repository outside of ``docs``: they are copied into the site.

Pages of Markdown link to measured tables and to source files by their path, which works wherever the repository is
read. In the site the same link leads to a copy.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

LINK = re.compile(r"(?<!!)(\[[^\[\]]*\])\((\.\./[^)#\s]+)\)")  # and not images, which Sphinx copies itself
SHOWN_AS_TEXT = (".md", ".py", ".toml")


def rewrite(app: Sphinx, page: str, source: list[str]) -> None:
    here = Path(app.env.doc2path(page)).parent
    root = Path(app.srcdir).parent.resolve()

    def replace(match: re.Match[str]) -> str:
        target = (here / match[2]).resolve()
        if target.is_relative_to(Path(app.srcdir).resolve()) or not target.exists():
            return match[0]
        name = target.relative_to(root).as_posix() + (".txt" if target.suffix in SHOWN_AS_TEXT else "")
        copy = Path(app.outdir) / "files" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if target.is_file():
            shutil.copyfile(target, copy)
        else:
            shutil.copytree(target, copy, dirs_exist_ok=True)
            files = sorted(path.name for path in target.iterdir())
            listing = "".join(f'<li><a href="{file}">{file}</a></li>' for file in files)
            (copy / "index.html").write_text(f"<!doctype html><title>{name}</title><ul>{listing}</ul>")
            name += "/index.html"
        return f"{match[1]}(<repository:{'../' * page.count('/')}files/{name}>)"

    source[0] = LINK.sub(replace, source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", rewrite)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
