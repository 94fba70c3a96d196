"""How much memory training needs on simulations that do not fit in it: 100 000 pairs of 20 000 numbers.

    python -m benchmarks.memory --folder /a/disk/with/5/GB

Writes a store of 4 GB in half precision (random numbers: memory is measured, not learning), trains on it for some
hundred steps, and writes the peak memory of the process to ``results/memory.md``.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from datetime import date
from pathlib import Path

import numpy as np

import propersbi as ps
from benchmarks.accuracy import RESULTS, machine
from propersbi.networks import GridEmbedding
from propersbi.simulation.store import Store

ROWS, CHUNK, SHAPE, SEED = 100_000, 1000, (2, 100, 100), 0


def fill(folder: Path) -> Store:
    """A store of random pairs; every chunk has the same data in another order."""
    store, rng = Store.create_or_open(folder, seed=SEED, chunk_size=CHUNK), np.random.default_rng(SEED)
    x = rng.standard_normal((CHUNK, *SHAPE), dtype=np.float32).astype(np.float16)
    for chunk in store.missing("train", ROWS):
        theta = rng.standard_normal((CHUNK, 100), dtype=np.float32)
        store.write("train", chunk, theta, x[rng.permutation(CHUNK)])
    return store


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where to keep the store; a temporary folder unless given")
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp())
    try:
        theta, x = fill(folder / "store").rows("train")
        started = time.monotonic()
        posterior = ps.fit(theta, x, embedding=GridEmbedding(SHAPE), max_steps=options.steps, stopping=())
        seconds = time.monotonic() - started
    finally:
        if options.folder is None:
            shutil.rmtree(folder)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    size = np.dtype(np.float16).itemsize * ROWS * np.prod(SHAPE) / 2**30
    facts = f"{size:.1f} GB | {posterior.info['steps']} | {seconds:.0f} | **{peak:.2f} GB** |"
    lines = [
        "# Memory",
        "",
        "| pairs | numbers in x | on disk | steps | seconds | peak memory of the process |",
        "|---|---|---|---|---|---|",
        f"| {ROWS:,} | {np.prod(SHAPE):,} | {facts}",
        "",
        f"Half precision on disk, batches of {posterior.info['batch_size']}. The peak is that of the whole process.",
        f"By `python -m benchmarks.memory`, seed {SEED}. Machine: {machine()}. Date: {date.today().isoformat()}.",
    ]
    (RESULTS / "memory.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
