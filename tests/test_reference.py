"""The reference is complete: every public name has an entry, and an example that runs."""

import doctest
import inspect
import operator
import re
import subprocess
import sys
from pathlib import Path

import pytest

import propersbi as ps

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
PAGES = sorted(FOLDER.glob("*.md"))
TEXT = "\n".join(page.read_text() for page in PAGES)
ENTRIES = set(re.findall(r"\.\. auto\w+:: propersbi\.(\S+)", TEXT))
MODULES = [name for name in ps.__all__ if inspect.ismodule(getattr(ps, name))]
OUTER = [name for name in ps.__all__ if name not in MODULES]
INNER = [f"{module}.{name}" for module in MODULES for name in getattr(ps, module).__all__ if name not in OUTER]
NAMES = [name for name in (*OUTER, *INNER) if not inspect.ismodule(operator.attrgetter(name)(ps))]


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_entry_and_an_example(name):
    assert name in ENTRIES
    here = TEXT.partition(f":: propersbi.{name}\n")[2].partition(".. auto")[0]
    assert ">>>" in (inspect.getdoc(operator.attrgetter(name)(ps)) or "") + here


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_every_entry_is_a_name(name):
    found = ps
    for part in name.split("."):
        found = getattr(found, part)
    assert inspect.getdoc(found)


@pytest.mark.parametrize("page", [page for page in PAGES if ">>>" in page.read_text()], ids=lambda page: page.stem)
def test_examples_run(page):
    assert doctest.testfile(str(page), module_relative=False).failed == 0


def test_each_module_can_be_the_first_that_is_used():
    code = """
import sys
for name in sys.argv[1:]:
    for module in [module for module in sys.modules if module.startswith("propersbi")]:
        del sys.modules[module]
    import propersbi
    getattr(propersbi, name)
"""
    subprocess.run([sys.executable, "-c", code, *MODULES], check=True, timeout=300)
