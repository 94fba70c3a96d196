"""Images of clothes denoised: Fashion-MNIST through the noisy camera, beside published flow matching and consistency.

    apt-get download dataset-fashion-mnist && dpkg -x dataset-fashion-mnist_*.deb fashion      # Debian's package
    python -m benchmarks.fashion fashion/usr/share/datasets/fashion-mnist --images 2000

As in Schmitt et al. (arXiv:2312.05440): the first 2 000 or 60 000 training images, Poisson noise drawn anew in every
step, a blur of 2.5 pixels; test images that no training saw. Their RMSE is that of single draws, for pixels from -1 to
1: the root mean square within an image and its draws, averaged over images. It is shown on that scale here.
"""

from __future__ import annotations

import argparse
from datetime import date
from functools import partial

import numpy as np
import torch
from torch import Tensor

import propersbi as ps
from benchmarks.accuracy import RESULTS, machine
from benchmarks.camera import DRAWS, FIGURES, SEED, measure, plot
from propersbi.simulation import Simulations
from propersbi.storage.files import read_json, write_json
from propersbi.tasks.camera import blurring, simulate
from propersbi.tasks.images.idx import find_images, read_images

BLUR, TEST, SIDE = 2.5, 500, 28
CAMERA = partial(simulate, blur=BLUR)
PUBLISHED = {
    "flow matching, U-Net, published": {2000: (0.278, 565.8), 60_000: (0.217, 565.8)},
    "consistency model, U-Net, published": {2000: (0.311, 0.50), 60_000: (0.238, 0.50)},
}


def sharp(folder: str, part: str, n: int) -> np.ndarray:
    """The first ``n`` images of a part, from 0 to 1."""
    return read_images(find_images(folder, part))[:n].astype(np.float32) / np.float32(255)


def camera(images: Tensor) -> Tensor:
    """Noise and blur, as :func:`propersbi.tasks.camera.simulate`, drawn anew for each batch."""
    ordered = (255 * images).round().flatten(1).sort(1).values
    values = 1 + (ordered.diff(dim=1) != 0).sum(1)
    level = torch.exp2(values.float().log2().ceil()).reshape(-1, 1, 1)
    blur = torch.from_numpy(blurring(SIDE, BLUR)).to(images)
    return blur @ (torch.poisson(images * level) / level).clamp(0, 1) @ blur.T


def rmse(posterior: ps.Posterior, test: Simulations) -> float:
    """Of draws, for pixels from -1 to 1, averaged over images."""
    draws = posterior.sample_batched((DRAWS,), test.x, seed=SEED, show_progress_bars=False).numpy()
    return float(np.sqrt(4 * ((draws - np.asarray(test.theta)) ** 2).mean((0, 2, 3))).mean())


def run(folder: str, images: int, minutes: float) -> dict[str, float | str]:
    theta = sharp(folder, "train", images)
    posterior = ps.fit(
        theta, theta, support=(0.0, 1.0), noise=camera, seed=SEED, time_limit=60 * minutes, max_steps=10**6, stopping=()
    )
    truth = sharp(folder, "test", TEST)
    test = Simulations(truth, CAMERA(truth, np.random.default_rng(SEED)))
    plot({"posterior": posterior}, test, FIGURES / f"fashion_{images}.png", 2)
    cost = {"minutes": minutes, "steps": posterior.info["steps"], "kept": posterior.info["kept_step"]}
    when = {"machine": machine(), "date": date.today().isoformat()}
    return {"draws": rmse(posterior, test), **measure(posterior, test), **cost, **when}


def table(rows: dict[str, dict[str, float]]) -> str:
    lines = [
        "# Fashion-MNIST through the noisy camera",
        "",
        "By `python -m benchmarks.fashion`, where the problem is described: the default recipe on one thread, for so",
        f"many minutes, seed {SEED}; {TEST} test images, {DRAWS} draws each. RMSE of draws: pixels from -1 to 1. Of",
        "the mean: from 0 to 1. Calibration error and coverage as in the other tables of the camera. Published times",
        "are of another machine.",
        "",
        "| | images | minutes | RMSE of draws | of the mean | calibration error | 90 % coverage | ms per draw |",
        "|---" * 8 + "|",
    ]
    for images, row in sorted((int(images), row) for images, row in rows.items()):
        best = min([row["draws"], *(figures[images][0] for figures in PUBLISHED.values() if images in figures)])
        bold = "**" if row["draws"] == best else ""
        lines.append(
            f"| propersbi | {images:,} | {row['minutes']:g} | {bold}{row['draws']:.3f}{bold} | {row['rmse']:.4f} "
            f"| {row['calibration']:.3f} | {row['coverage']:.3f} | {row['ms']:.2f} |"
        )
        lines += [
            f"| {name} | {images:,} | | {figures[images][0]:.3f} | | | | {figures[images][1]:g} |"
            for name, figures in PUBLISHED.items()
            if images in figures
        ]
    made = sorted({f"{row['machine']}, {row['date']}" for row in rows.values()})
    return "\n".join([*lines, "", f"Machine and date: {'; '.join(made)}.", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="with the idx files of Fashion-MNIST")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--minutes", type=float, default=10.0)
    options = parser.parse_args()
    kept = RESULTS / "fashion.json"
    rows = read_json(kept) if kept.exists() else {}
    rows[str(options.images)] = run(options.folder, options.images, options.minutes)
    write_json(kept, rows)
    (RESULTS / "fashion.md").write_text(table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
