"""The documentation site: ``make docs``."""

import hashlib
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src" / "propersbi"
sys.path[:0] = [str(HERE / "_ext")]
os.environ.setdefault("OMP_NUM_THREADS", "1")


def digest() -> str:
    """A name for the state of the library: pages are executed again when it changes, and not otherwise."""
    files = sorted(SOURCE.rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


project = "propersbi"
author = "The propersbi developers"
version = release = next(
    line.split('"')[1] for line in (SOURCE / "__init__.py").read_text().splitlines() if line.startswith("__version__")
)
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
    "notebooks",
    "outside",
    "pairs",
]
source_suffix = {".md": "myst-nb"}
exclude_patterns = ["_build", "_cache", "_ext"]
nitpicky = False

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
# Links that docs/_ext/outside.py made: a path within the site.
myst_url_schemes = {"http": None, "https": None, "mailto": None, "repository": {"url": "{{path}}"}}
myst_links_external_new_tab = True

nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE / "_cache" / digest())
nb_execution_timeout = 480
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
nb_output_stderr = "remove"  # progress bars

autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
add_module_names = False

html_theme = "pydata_sphinx_theme"
html_title = "propersbi"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["llms.txt"]
html_sidebars = {"coming_from": [], "troubleshooting": []}
html_show_sourcelink = False
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "navbar_end": ["theme-switcher"],
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "use_edit_page_button": False,
    "search_as_you_type": True,
}
copyright = "The propersbi developers, MIT licence"
