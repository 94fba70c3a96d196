"""Install a wheel into a new environment, measure size and time, and use it from there: ``make release-check``."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "install.md"
SHOWN = 12  # packages in the table
USE = """
import torch, propersbi as ps
from importlib.metadata import version
assert "site-packages" in ps.__file__, ps.__file__
assert version("propersbi") == ps.__version__
prior = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
sims = ps.simulate(prior, lambda theta: theta + torch.randn_like(theta), 500, progress=False)
posterior = ps.fit(sims.theta, sims.x, prior=prior, max_steps=20, progress=False)
print(tuple(posterior.sample((1000,), x=[0.1, 0.2]).shape))
"""


def main(arguments: Sequence[str]) -> None:
    (wheel,) = arguments
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "env", with_pip=True)
        python, before = folder / "env" / "bin" / "python", _sizes(folder / "env")
        started, cpu = time.perf_counter(), _cpu()
        install = [python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", Path(wheel).resolve()]
        subprocess.run(list(map(str, install)), check=True, cwd=folder)
        seconds, cpu = time.perf_counter() - started, _cpu() - cpu
        used = subprocess.run([python, "-c", USE], check=True, cwd=folder, capture_output=True, text=True)
        assert used.stdout.strip() == "(1000, 2)", used.stdout
        commands = ["--version"], ["tasks"], ["new", "my_model.py"], ["check", "my_model.py"]
        run = ["run", "my_model.py", "-n", "200", "--test", "50", "--max-steps", "5", "--quiet"]
        for command in (*commands, run):
            subprocess.run(
                [folder / "env" / "bin" / "propersbi", *command], check=True, cwd=folder, capture_output=True
            )
        assert (folder / "runs" / "my_model" / "report.html").exists()
        after = _sizes(folder / "env")
        listed = subprocess.run(
            [python, "-m", "pip", "list", "--format=json"], check=True, capture_output=True, text=True
        )
    packages = len(json.loads(listed.stdout)) - 2  # pip and setuptools were there
    RESULTS.write_text(table({name: after[name] - before.get(name, 0) for name in after}, packages, seconds, cpu))
    print(RESULTS.read_text())


def table(sizes: dict[str, int], packages: int, seconds: float, cpu: float) -> str:
    """The page: the total, and the largest packages."""
    total = sum(sizes.values())
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:SHOWN]
    lines = [
        "# What an installation takes",
        "",
        f"`pip install` of the wheel into an empty environment: {packages} packages, {total / 1e6:,.0f} MB, "
        f"{seconds:.0f} s of wall-clock time, {cpu:.0f} s of processor time. Python {platform.python_version()}, torch "
        "from constraints.txt (the build for CPUs where pip finds one), "
        f"{platform.processor() or platform.machine()}, {date.today()}.",
        "",
        "| folder of site-packages | MB |",
        "|---|---|",
        *(f"| {name} | {size / 1e6:,.1f} |" for name, size in largest),
        f"| everything else | {(total - sum(size for _, size in largest)) / 1e6:,.1f} |",
        "",
        "Made by `make release-check`.",
    ]
    return "\n".join(lines) + "\n"


def _sizes(environment: Path) -> dict[str, int]:
    """The bytes in each folder or file of site-packages."""
    (site,) = environment.glob("lib/python*/site-packages")
    found: dict[str, int] = {}
    for path in site.iterdir():
        if path.name.endswith(".dist-info"):
            continue
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        found[path.name] = sum(file.stat().st_size for file in files)
    return found


def _cpu() -> float:
    """Seconds of processor time of the children so far."""
    import resource

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main(sys.argv[1:])
