"""Limits that keep the code readable; ruff checks complexity, statements and arguments."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "src").rglob("*.py"))
MAX_FUNCTION_LINES, MAX_FILE_LINES, MAX_FIT_LINES = 50, 330, 150

# Where objects of the user's, or of another library, are asked what they can do. The library's own never are.
FOREIGN = {
    "app/cli.py": 2,  # typer's errors
    "diagnostics/comparison.py": 3,  # samplers of any library
    "diagnostics/measure.py": 1,  # likewise
    "layouts.py": 4,  # arrays of any library
    "observations.py": 1,  # tables of pandas
    "recipes.py": 1,  # lists and arrays of users
    "samplers/base.py": 2,  # a user's own module
    "samplers/priors.py": 3,  # priors
    "samplers/torch_support.py": 4,  # torch's constraints
    "sequential/corrections.py": 1,  # priors
    "simulation/prior_kinds.py": 15,  # priors: those of torch, SciPy, pandas and of users
    "simulation/priors.py": 2,  # likewise
    "simulation/results.py": 3,  # what simulators return, tables of pandas among it
    "simulation/runs.py": 1,  # the iterator of a user's executor
    "storage/processor.py": 1,  # versions of torch
    "training/batches.py": 2,  # arrays and rows of any kind
}


def name_of(path):
    return path.relative_to(ROOT / "src" / "propersbi").as_posix()


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def lines_of(function):
    """Lines of the body without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) and len(function.body) > 1 else function.body
    return body[-1].end_lineno - body[0].lineno + 1


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_functions_and_files_are_short(path):
    tree = ast.parse(path.read_text())
    assert [f.name for f in functions(tree) if lines_of(f) > MAX_FUNCTION_LINES] == []
    assert len(path.read_text().splitlines()) <= MAX_FILE_LINES


def test_fit_is_short():
    assert len((ROOT / "src" / "propersbi" / "inference.py").read_text().splitlines()) <= MAX_FIT_LINES


def probes(tree):
    """Calls of ``hasattr``, and of ``getattr`` with a default."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    return [c for c in calls if c.func.id == "hasattr" or (c.func.id == "getattr" and len(c.args) == 3)]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_attribute_of_the_librarys_own_objects_is_probed(path):
    assert len(probes(ast.parse(path.read_text()))) == FOREIGN.get(name_of(path), 0)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_private_name_is_imported_from_another_module(path):
    imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    names = [alias.name for node in imports if (node.module or "").startswith("propersbi") for alias in node.names]
    assert [name for name in names if name.startswith("_") and not name.startswith("__")] == []


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_module_says_what_it_is(path):
    assert ast.get_docstring(ast.parse(path.read_text()))
