"""Cross-validated perceptrons, one per fold, trained simultaneously.

The classifier of the two-sample test, as defined by scikit-learn's ``MLPClassifier`` (ReLU layers, Adam, mini-batches,
stopped when the training loss no longer decreases) and ``KFold``. With the same seed both follow the same sequence of
weights and batches, up to rounding. All folds share each matrix product, in single precision and on one thread: for
networks this small, overhead dominates arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.utils.rnn import pad_sequence

from propersbi.storage.processor import quick_products, threads

__all__ = ["cross_validated_accuracy"]

# scikit-learn's defaults, except for the number of epochs, which is sbibm's
BATCH_SIZE, LEARNING_RATE, BETAS, EPSILON = 200, 1e-3, (0.9, 0.999), 1e-8
L2_PENALTY, TOLERANCE, PATIENCE, MAX_EPOCHS = 1e-4, 1e-4, 10, 10_000


def cross_validated_accuracy(
    data: np.ndarray, label: np.ndarray, *, hidden: Sequence[int], folds: int = 5, seed: int = 1
) -> float:
    """The accuracy on held-out rows, averaged over folds, of predicting ``label (n,)``, 0 or 1, from ``data (n, d)``.

    >>> x = np.arange(40.0)[:, None] - 19.5
    >>> cross_validated_accuracy(x, np.repeat([0, 1], 20), hidden=(10,))
    1.0
    """
    held_out = np.array_split(np.random.RandomState(seed).permutation(len(data)), folds)
    training = [np.setdiff1d(np.arange(len(data)), rows) for rows in held_out]
    x, y = torch.as_tensor(data, dtype=torch.float32), torch.as_tensor(label, dtype=torch.float32)
    sizes = [x.shape[1], *hidden, 1]
    with threads(1), quick_products():
        weights = _train(x, y, training, sizes, seed)
        accuracy = [
            ((_layers(fold[None], sizes, x[rows][None])[-1][0, :, 0] > 0) == (y[rows] > 0.5)).double().mean().item()
            for fold, rows in zip(weights, held_out, strict=True)
        ]
    return float(np.mean(accuracy))


@torch.inference_mode()
def _train(x: Tensor, y: Tensor, training: list[np.ndarray], sizes: Sequence[int], seed: int) -> Tensor:
    """The weights ``(folds, number of weights)`` of the perceptrons, each trained on its training rows."""
    # Every fold starts from the same seed, so folds of the same size share the order of their rows.
    streams = {len(rows): np.random.RandomState(seed) for rows in training}
    initial = [_initial_weights(sizes, stream) for stream in streams.values()]  # all equal; each advances its stream
    final = initial[0].repeat(len(training), 1)
    weights, mean, square = final.clone(), torch.zeros_like(final), torch.zeros_like(final)
    best, stale = torch.full((len(training),), torch.inf), torch.zeros(len(training), dtype=torch.long)
    active, step = torch.arange(len(training)), 0
    order = {size: np.arange(size) for size in streams}
    for _ in range(MAX_EPOCHS):
        for size, stream in streams.items():
            order[size] = order[size][stream.permutation(size)]
        rows = [torch.as_tensor(training[fold][order[len(training[fold])]]) for fold in active.tolist()]
        counts = torch.tensor([len(fold) for fold in rows])
        index = pad_sequence(rows, batch_first=True)  # folds may differ by one row
        data, target, loss = x[index], y[index], torch.zeros(len(rows))
        for start in range(0, index.shape[1], BATCH_SIZE):
            batch, count = slice(start, start + BATCH_SIZE), (counts - start).clamp(max=BATCH_SIZE)
            step += 1
            loss += _adam_step(weights, mean, square, sizes, data[:, batch], target[:, batch], count, step)
        loss /= counts
        stale = torch.where(loss > best - TOLERANCE, stale + 1, 0)
        best = torch.minimum(best, loss)
        final[active] = weights
        improving = stale <= PATIENCE
        if not improving.any():
            break
        if not improving.all():
            state = (weights, mean, square, best, stale, active)
            weights, mean, square, best, stale, active = (tensor[improving] for tensor in state)
    return final


def _initial_weights(sizes: Sequence[int], rng: np.random.RandomState) -> Tensor:
    parts = []
    for inputs, outputs in pairwise(sizes):
        bound = (6 / (inputs + outputs)) ** 0.5
        parts += [rng.uniform(-bound, bound, (inputs, outputs)).ravel(), rng.uniform(-bound, bound, outputs)]
    return torch.as_tensor(np.concatenate(parts), dtype=torch.float32)


def _split(flat: Tensor, sizes: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
    """Views of the flat weights: per layer, the matrix ``(folds, in, out)`` and the bias ``(folds, 1, out)``."""
    lengths = [size for inputs, outputs in pairwise(sizes) for size in (inputs * outputs, outputs)]
    parts = torch.split(flat, lengths, dim=1)
    return [
        (matrix.view(-1, inputs, outputs), bias.view(-1, 1, outputs))
        for matrix, bias, (inputs, outputs) in zip(parts[::2], parts[1::2], pairwise(sizes), strict=True)
    ]


def _layers(flat: Tensor, sizes: Sequence[int], x: Tensor) -> list[Tensor]:
    """The outputs of every layer, from the data ``(folds, n, d)`` to the log odds ``(folds, n, 1)``."""
    outputs = [x]
    *hidden, (last_matrix, last_bias) = _split(flat, sizes)
    for matrix, bias in hidden:
        outputs.append(torch.baddbmm(bias, outputs[-1], matrix).relu_())
    return [*outputs, (outputs[-1] * last_matrix.mT).sum(2, keepdim=True) + last_bias]


def _adam_step(
    weights: Tensor, mean: Tensor, square: Tensor, sizes: Sequence[int], x: Tensor, y: Tensor, count: Tensor, step: int
) -> Tensor:
    """One step of Adam for every fold, in place; the loss ``(folds,)`` summed over the ``count`` rows of each."""
    outputs, layers = _layers(weights, sizes, x), _split(weights, sizes)
    logits = outputs[-1][..., 0]
    mask = (torch.arange(x.shape[1]) < count[:, None]).float()
    loss = (binary_cross_entropy_with_logits(logits, y, reduction="none") * mask).sum(1)
    loss += L2_PENALTY / 2 * sum(matrix.square().sum((1, 2)) for matrix, _ in layers)
    gradient = torch.empty_like(weights)
    delta = ((logits.sigmoid() - y) * mask / count[:, None])[..., None]
    penalty = L2_PENALTY / count[:, None, None]
    for layer, (matrix_gradient, bias_gradient) in reversed(list(enumerate(_split(gradient, sizes)))):
        matrix, single = layers[layer][0], delta.shape[2] == 1
        # A matrix with a single column is quicker to multiply number by number.
        product = (outputs[layer] * delta).sum(1).unsqueeze(2) if single else torch.bmm(outputs[layer].mT, delta)
        torch.addcmul(product, matrix, penalty, out=matrix_gradient)
        torch.sum(delta, 1, keepdim=True, out=bias_gradient)
        if layer:
            delta = delta * matrix.mT if single else torch.bmm(delta, matrix.mT)
            delta = torch.ops.aten.threshold_backward(delta, outputs[layer], 0)  # the derivative of a ReLU
    mean.lerp_(gradient, 1 - BETAS[0])
    square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
    rate = LEARNING_RATE * (1 - BETAS[1] ** step) ** 0.5 / (1 - BETAS[0] ** step)
    weights.addcdiv_(mean, square.sqrt().add_(EPSILON), value=-rate)
    return loss
