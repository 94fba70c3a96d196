"""Install a wheel into a new environment, measure size and time, and use it from there: ``make release-check``.

python -m benchmarks.install dist/*.whl
python -m benchmarks.install dist/*.whl --before 7a7f184     beside the version of an earlier commit: results/install.md
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
import venv
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Installed:
    """What an installation took: bytes by folder of site-packages, packages, seconds by clock and of processor time."""

    sizes: dict[str, int]
    packages: int
    seconds: float
    cpu: float

    @property
    def row(self) -> str:
        return f"{self.packages} | {sum(self.sizes.values()) / 1e6:,.0f} | {self.seconds:.0f} | {self.cpu:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="Install a wheel into an empty environment, measure, and use it.")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--before", help="a commit whose version is installed as well, for comparison")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        before = None if options.before is None else install(_wheel_of(options.before, folder), folder / "before")
        found = install(options.wheel, folder / "env")
        use(folder, folder / "env" / "bin")
    text = table(found, before, options.before)
    if before is not None:
        RESULTS.write_text(text)
    print(text)


def install(wheel: Path, environment: Path) -> Installed:
    """Install a wheel into a new environment."""
    venv.create(environment, with_pip=True)
    python, before = environment / "bin" / "python", _sizes(environment)
    started, cpu = time.perf_counter(), _cpu()
    command = [python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel.resolve()]
    subprocess.run(list(map(str, command)), check=True, cwd=environment)
    seconds, cpu = time.perf_counter() - started, _cpu() - cpu
    listed = subprocess.run([python, "-m", "pip", "list", "--format=json"], check=True, capture_output=True, text=True)
    after = _sizes(environment)
    sizes = {name: after[name] - before.get(name, 0) for name in after}
    return Installed(sizes, len(json.loads(listed.stdout)) - 2, seconds, cpu)  # pip and setuptools were there


def use(folder: Path, programs: Path) -> None:
    """The three lines, and the commands, from the installed package."""
    used = subprocess.run([programs / "python", "-c", USE], check=True, cwd=folder, capture_output=True, text=True)
    assert used.stdout.strip() == "(1000, 2)", used.stdout
    commands = ["--version"], ["tasks"], ["new", "my_model.py"], ["check", "my_model.py"]
    run = ["run", "my_model.py", "-n", "200", "--test", "50", "--max-steps", "5", "--quiet"]
    for command in (*commands, run):
        subprocess.run([programs / "propersbi", *command], check=True, cwd=folder, capture_output=True)
    assert (folder / "runs" / "my_model" / "report.html").exists()


def _wheel_of(commit: str, folder: Path) -> Path:
    """The wheel of an earlier commit."""
    source = folder / "source"
    source.mkdir()
    archive = subprocess.run(["git", "archive", commit], check=True, cwd=ROOT, capture_output=True).stdout
    subprocess.run(["tar", "x", "-C", source], check=True, input=archive)
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", folder / "old", source], check=True)
    (wheel,) = (folder / "old").glob("*.whl")
    return wheel


def table(found: Installed, before: Installed | None, commit: str | None) -> str:
    """The page: the totals, and the largest packages."""
    total = sum(found.sizes.values())
    largest = sorted(found.sizes.items(), key=lambda item: -item[1])[:SHOWN]
    earlier = [] if before is None else [f"| version of commit {commit} | {before.row}"]
    lines = [
        "# What an installation takes",
        "",
        f"`pip install` of the wheel into an empty environment. Python {platform.python_version()}, torch "
        "from constraints.txt (the build for CPUs where pip finds one), "
        f"{platform.processor() or platform.machine()}, {date.today()}. Seconds by clock include the download.",
        "",
        "| | packages | MB | seconds by clock | of processor time |",
        "|---|---|---|---|---|",
        *earlier,
        f"| this version | {found.row}",
        "",
        "| folder of site-packages | MB |",
        "|---|---|",
        *(f"| {name} | {size / 1e6:,.1f} |" for name, size in largest),
        f"| everything else | {(total - sum(size for _, size in largest)) / 1e6:,.1f} |",
        "",
        f"By `python -m benchmarks.install dist/*.whl --before {commit}`.",
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
    main()
