"""Cross-validated perceptrons, one per fold, trained side by side.

The classifier of the two-sample test, as scikit-learn's ``MLPClassifier`` defines it (rectified layers, Adam, small
batches, stopped when the training loss no longer falls) and ``KFold`` cuts it. Started from the same seed the two walk
through the same weights and batches; they differ by rounding. All folds share each matrix product, in single
precision and on one thread: networks this small spend most of their time on everything but arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.utils.rnn import pad_sequence

__all__ = ["cross_validated_accuracy"]

# scikit-learn's defaults
BATCH, RATE, DECAYS, EPS = 200, 1e-3, (0.9, 0.999), 1e-8
PENALTY, TOLERANCE, PATIENCE, EPOCHS = 1e-4, 1e-4, 10, 10_000


def cross_validated_accuracy(
    data: np.ndarray, label: np.ndarray, *, hidden: Sequence[int], folds: int = 5, seed: int = 1
) -> float:
    """The mean over folds of how often the held-out ``label (n,)`` of 0 and 1 is told from ``data (n, d)``.

    >>> x = np.arange(40.0)[:, None] - 19.5
    >>> cross_validated_accuracy(x, np.repeat([0, 1], 20), hidden=(10,))
    1.0
    """
    held_out = np.array_split(np.random.RandomState(seed).permutation(len(data)), folds)
    kept = [np.setdiff1d(np.arange(len(data)), rows) for rows in held_out]
    x, y = torch.as_tensor(data, dtype=torch.float32), torch.as_tensor(label, dtype=torch.float32)
    sizes = [x.shape[1], *hidden, 1]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        trained = _train(x, y, kept, sizes, seed)
        right = [
            ((_layers(weights[None], sizes, x[rows][None])[-1][0, :, 0] > 0) == (y[rows] > 0.5)).double().mean().item()
            for weights, rows in zip(trained, held_out, strict=True)
        ]
    finally:
        torch.set_num_threads(threads)
    return float(np.mean(right))


@torch.inference_mode()
def _train(x: Tensor, y: Tensor, kept: list[np.ndarray], sizes: Sequence[int], seed: int) -> Tensor:
    """The weights ``(folds, number of weights)`` of the perceptrons, each trained on its rows."""
    # Every fold starts from the same seed, so folds of one size share the order of their rows.
    orders = {len(rows): np.random.RandomState(seed) for rows in kept}
    starts = [_first_weights(sizes, order) for order in orders.values()]  # all alike; each moves its own order on
    done = starts[0].repeat(len(kept), 1)
    weights, mean, square = done.clone(), torch.zeros_like(done), torch.zeros_like(done)
    best, stale = torch.full((len(kept),), torch.inf), torch.zeros(len(kept), dtype=torch.long)
    running, steps = torch.arange(len(kept)), 0
    places = {size: np.arange(size) for size in orders}
    for _ in range(EPOCHS):
        for size, order in orders.items():
            places[size] = places[size][order.permutation(size)]
        rows = [torch.as_tensor(kept[fold][places[len(kept[fold])]]) for fold in running.tolist()]
        counts = torch.tensor([len(part) for part in rows])
        index = pad_sequence(rows, batch_first=True)  # folds may differ by one row
        data, target, loss = x[index], y[index], torch.zeros(len(rows))
        for start in range(0, index.shape[1], BATCH):
            batch = slice(start, start + BATCH)
            steps += 1
            loss += _step(
                weights, mean, square, sizes, data[:, batch], target[:, batch], (counts - start).clamp(max=BATCH), steps
            )
        loss /= counts
        stale = torch.where(loss > best - TOLERANCE, stale + 1, 0)
        best = torch.minimum(best, loss)
        done[running] = weights
        going = stale <= PATIENCE
        if not going.any():
            break
        if not going.all():
            weights, mean, square, best, stale, running = (
                each[going] for each in (weights, mean, square, best, stale, running)
            )
    return done


def _first_weights(sizes: Sequence[int], rng: np.random.RandomState) -> Tensor:
    parts = []
    for inputs, outputs in pairwise(sizes):
        bound = (6 / (inputs + outputs)) ** 0.5
        parts += [rng.uniform(-bound, bound, (inputs, outputs)).ravel(), rng.uniform(-bound, bound, outputs)]
    return torch.as_tensor(np.concatenate(parts), dtype=torch.float32)


def _split(flat: Tensor, sizes: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
    """Views of the flat weights: for every layer its matrix ``(folds, in, out)`` and its shift ``(folds, 1, out)``."""
    lengths = [size for inputs, outputs in pairwise(sizes) for size in (inputs * outputs, outputs)]
    parts = flat.split(lengths, dim=1)
    return [
        (matrix.view(-1, inputs, outputs), shift.view(-1, 1, outputs))
        for matrix, shift, (inputs, outputs) in zip(parts[::2], parts[1::2], pairwise(sizes), strict=True)
    ]


def _layers(flat: Tensor, sizes: Sequence[int], x: Tensor) -> list[Tensor]:
    """What every layer puts out, from the data ``(folds, n, d)`` to the log odds ``(folds, n, 1)``."""
    layers = [x]
    *inner, (matrix, shift) = _split(flat, sizes)
    for weight, offset in inner:
        layers.append(torch.baddbmm(offset, layers[-1], weight).relu_())
    return [*layers, torch.baddbmm(shift, layers[-1], matrix)]


def _step(
    weights: Tensor, mean: Tensor, square: Tensor, sizes: Sequence[int], x: Tensor, y: Tensor, count: Tensor, steps: int
) -> Tensor:
    """One step of Adam for every fold, in place; the loss ``(folds,)`` summed over the ``count`` rows of each."""
    layers, parts = _layers(weights, sizes, x), _split(weights, sizes)
    odds = layers[-1][..., 0]
    own = (torch.arange(x.shape[1]) < count[:, None]).float()
    loss = (binary_cross_entropy_with_logits(odds, y, reduction="none") * own).sum(1)
    loss += PENALTY / 2 * sum(matrix.square().sum((1, 2)) for matrix, _ in parts)
    gradient = torch.empty_like(weights)
    signal = ((odds.sigmoid() - y) * own / count[:, None])[..., None]
    share = PENALTY / count[:, None, None]
    for place, (slope, offset) in reversed(list(enumerate(_split(gradient, sizes)))):
        matrix = parts[place][0]
        slope.copy_(torch.baddbmm(matrix * share, layers[place].mT, signal))
        offset.copy_(signal.sum(1, keepdim=True))
        if place:
            # The derivative of a rectified layer: nothing where it put out nothing.
            signal = torch.bmm(signal, matrix.mT)
            signal = torch.ops.aten.threshold_backward(signal, layers[place], 0)
    mean.lerp_(gradient, 1 - DECAYS[0])
    square.mul_(DECAYS[1]).addcmul_(gradient, gradient, value=1 - DECAYS[1])
    rate = RATE * (1 - DECAYS[1] ** steps) ** 0.5 / (1 - DECAYS[0] ** steps)
    weights.addcdiv_(mean, square.sqrt().add_(EPS), value=-rate)
    return loss
