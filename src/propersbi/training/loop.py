"""The training loop: one readable loop for every objective.

It takes batches by number, lets each phase of the objective take its steps, keeps a running average of the weights,
validates the average now and then, keeps the best one and stops when a stopping rule says so. Everything it does at a
step depends on the seed and the step alone, and everything it remembers is in the checkpoint, so a run that was cut off
continues to the same bits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from propersbi.storage.files import sweep
from propersbi.storage.processor import quick_products, threads
from propersbi.storage.progress import progress_bar
from propersbi.storage.randomness import seeded
from propersbi.training.averages import load, mix, places, swapped, tensors
from propersbi.training.batches import BatchSource, share_of
from propersbi.training.checkpoint import config_identity, digest, read_checkpoint, write_checkpoint
from propersbi.training.config import TrainConfig
from propersbi.training.devices import OneDevice, SeveralDevices, find_devices
from propersbi.training.history import History, StopReason
from propersbi.training.logging import LogFunction, Logger, log_function
from propersbi.training.memory import keep_freed_memory
from propersbi.training.objectives import Objective
from propersbi.training.optimizers import build_optimizer
from propersbi.training.stopping import MaxSteps, Stopping, TimeLimit, first_reason
from propersbi.types import Batch, InputError, Phase

__all__ = ["BatchSource", "train"]

MAX_VALIDATION_ROWS = 2500  # scored in one validation, or fewer where these are as many numbers of theta:
MAX_VALIDATION_NUMBERS = 100_000
CLEAR_GAIN = 2.0  # standard errors of the paired difference by which training has to lower the score
MEASURED_ROWS = 500  # of the validation pairs that the objective measures more on than its score


def train(
    objective: Objective,
    batches: BatchSource,
    validation: Batch,
    config: TrainConfig,
    *,
    seed: int = 0,
    device: str = "auto",
    identity: Mapping[str, Any] | None = None,
    checkpoint: str | Path | None = None,
    progress: bool = True,
    logger: Logger | None = None,
) -> History:
    """Train the networks of ``objective`` in place; they end as the best average of their weights.

    Arguments:
        objective: Networks and losses.
        batches: ``batches[i]`` is the i-th batch.
        validation: Pairs for validation.
        config: How to train.
        seed: Of all noise in training.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ...
        identity: What else a checkpoint must agree with to be continued, as plain data.
        checkpoint: A file to continue from, if it is there, and to write to.
        progress: Whether to show a bar with loss, score and time left on stderr.
        logger: Where to report every validation: see :mod:`propersbi.training.logging`.
    """
    log = log_function(logger)
    keep_freed_memory()
    fabric = find_devices(config, device)
    with threads(config.threads), quick_products(), seeded(seed):
        own = {"seed": seed, "validation": digest([validation.theta, validation.x, validation.weight])}
        size = len(batches[0])
        if size < fabric.world_size:
            raise InputError(f"A batch of {size} rows cannot be shared by {fabric.world_size} devices.")
        own |= {"batch_size": size, **(identity or {})}
        run = _Run(objective, config, seed, fabric, own)
        run.resume(Path(checkpoint) if checkpoint else None, len(validation))
        first = fabric.is_global_zero
        return run.loop(batches, validation.to(fabric.device), progress and first, log if first else log_function(None))


class _Run:
    """One training: the networks, their averages and optimisers, and how far it has come."""

    def __init__(
        self,
        objective: Objective,
        config: TrainConfig,
        seed: int,
        fabric: OneDevice | SeveralDevices,
        identity: dict[str, Any],
    ) -> None:
        self.objective, self.config, self.seed, self.fabric = objective, config, seed, fabric
        self.networks = {name: network.to(fabric.device).train() for name, network in objective.networks.items()}
        self.places = {name: places(network) for name, network in self.networks.items()}
        self.averages = {name: tensors(network) for name, network in self.networks.items()}
        self.best = {name: tensors(network) for name, network in self.networks.items()}
        self.optimizers = {name: build_optimizer(network, config) for name, network in self.networks.items()}
        self.history = History()
        self.batch = 0  # batches used so far
        self.lowest: Tensor | None = None  # the validation scores, pair by pair, where their mean was lowest
        self.untrained: Tensor | None = None  # and before training
        self.path: Path | None = None
        self.rules: tuple[Stopping, ...] = (*objective.stopping, MaxSteps(config.max_steps), *config.stopping)
        if config.time_limit is not None:
            self.rules += (TimeLimit(config.time_limit),)
        sizes = {name: [list(t.shape) for t in tensors(net)] for name, net in self.networks.items()}
        self.identity = {**config_identity(config), "weights": sizes, **objective.describe(), **identity}

    def loop(self, batches: BatchSource, validation: Batch, progress: bool, log: LogFunction) -> History:
        history, config = self.history, self.config
        started, saved = time.monotonic() - history.seconds, time.monotonic()
        bar = progress_bar(config.max_steps, "training", "step", show=progress, done=history.steps)
        losses: list[float] = []
        try:
            if config.settle is not None and self.untrained is None:
                self.validate_untrained(validation)
            history.stopped = self.reason()
            while history.stopped is None:
                losses.append(self.step(batches, history.steps))
                history.steps += 1
                bar.update()
                if not self.due(time.monotonic() - started):
                    continue
                self.validate(validation, float(np.mean(losses)))
                losses.clear()
                log(history.last_metrics(), history.steps)
                if config.time_limit is not None:
                    bar.total = min(config.max_steps, round(history.steps * config.time_limit / history.seconds))
                bar.set_postfix_str(history.last_line())
                history.stopped = self.reason()
                if time.monotonic() - saved > config.checkpoint_every:
                    self.save()
                    saved = time.monotonic()
            self.save()
        except KeyboardInterrupt:  # perhaps in the middle of a step: the last checkpoint is the one to continue from
            if self.path or history.kept_score is None:
                raise
            history.stopped = StopReason.INTERRUPTED
        finally:
            bar.close()
        for name, network in self.networks.items():
            load(network, self.best[name])
            network.eval()
        return history

    def reason(self) -> StopReason | None:
        """Why to stop now, agreed on by all devices."""
        found = self.config.end_of_settling(self.history) or first_reason(self.rules, self.history)
        reason: StopReason | None = self.fabric.broadcast(found)
        if reason is not StopReason.PATIENCE or not self.config.settles(self.history):
            return reason
        if self.history.settled is None:  # the weights that are kept may gain from a falling learning rate
            self.history.settled = self.history.steps
            for name, network in self.networks.items():
                load(network, self.best[name])
                self.averages[name] = [tensor.clone() for tensor in self.best[name]]
        return None

    def due(self, seconds: float) -> bool:
        """Whether to validate: now and then, and once more when steps or time have run out."""
        steps, config = self.history.steps, self.config
        last = config.last_step(self.history.settled)
        due = steps % config.validate_every == 0 or steps >= last or steps == config.settle
        if due or config.time_limit is not None:  # the learning rate follows the clock of the first device
            self.history.seconds = self.fabric.broadcast(seconds)
        return due or (config.time_limit is not None and self.history.seconds >= config.time_limit)

    def step(self, batches: BatchSource, step: int) -> float:
        """One round of all phases; the loss of the last phase."""
        loss = 0.0
        self._seed(_place(self.seed, step, self.fabric.global_rank))
        for network in self.networks.values():
            if not network.training:  # train() visits every module
                network.train()
        for phase in self.objective.phases():
            for _ in range(phase.repeats):
                loss = self.descend(phase, batches, step)
                self.batch += 1
        decay = min(self.config.average, (1 + step) / (10 + step))  # young averages must forget their start
        for name, average in self.averages.items():
            mix(average, self.places[name], 1 - decay)
        return loss

    def _seed(self, number: int) -> None:
        """Seed the generator that this device draws from; to seed those of all devices takes a hundred times longer."""
        if self.fabric.device.type == "cpu":
            torch.default_generator.manual_seed(number)
        else:
            torch.manual_seed(number)

    def descend(self, phase: Phase, batches: BatchSource, step: int) -> float:
        network, optimizer = self.networks[phase.network], self.optimizers[phase.network]
        share, weight = share_of(batches, self.batch, self.fabric.global_rank, self.fabric.world_size)
        optimizer.zero_grad()
        with self.fabric.autocast():
            loss = weight * phase.loss(share.to(self.fabric.device))
        self.fabric.backward(loss)
        loss = self.agree(network, loss.detach())
        if self.config.clip is not None:
            nn.utils.clip_grad_norm_(optimizer.weights, self.config.clip)
        for group in optimizer.param_groups:
            group["lr"] = self.config.rate(step, self.history.seconds, self.history.settled)
        optimizer.step()
        return loss.item()

    def agree(self, network: nn.Module, loss: Tensor) -> Tensor:
        """Average gradients and loss over the devices, in one message and whatever the objective calls of a network."""
        if self.fabric.world_size == 1:
            return loss
        gradients = [weight.grad for weight in network.parameters() if weight.grad is not None]
        flat = self.fabric.mean(torch.cat([*(g.flatten() for g in gradients), loss.reshape(1).to(gradients[0])]))
        parts = flat[:-1].split([g.numel() for g in gradients])
        torch._foreach_copy_(gradients, [part.view_as(g) for part, g in zip(parts, gradients, strict=True)])
        return flat[-1]

    def validate(self, validation: Batch, loss: float) -> None:
        """Score the averaged weights on the validation pairs, always with the same noise, and keep the best."""
        history, config = self.history, self.config
        pairs, measures = self.validation_scores(validation)
        score = pairs.mean().item()
        if not all(map(math.isfinite, (score, loss, *measures.values()))):
            history.stopped = StopReason.DIVERGED
            return
        if self.lowest is None or score < self.lowest.mean():
            self.lowest = pairs
        excess = _excess(pairs, self.lowest)
        rate = config.rate(history.steps - 1, history.seconds, history.settled)
        history.record(loss=loss, rate=rate, score=score, excess=excess, measures=measures)
        if config.keep == "last" or excess <= config.keep_within:
            history.kept_step, history.kept_score = history.steps, score
            self.best = {name: [t.clone() for t in average] for name, average in self.averages.items()}
        if self.untrained is not None and history.steps == config.settle:
            gained = -_excess(pairs, self.untrained)
            history.settled = history.steps if gained < CLEAR_GAIN else None

    def validate_untrained(self, validation: Batch) -> None:
        """Score the weights before training: what they already do well needs no training."""
        pairs, _ = self.validation_scores(validation)
        if pairs.isfinite().all():
            self.untrained = self.lowest = pairs
            self.history.kept_score = pairs.mean().item()

    def validation_scores(self, validation: Batch) -> tuple[Tensor, dict[str, float]]:
        """The weighted score of each pair, and what the objective measures besides."""
        fresh = self.config.keep == "last"
        noise = _place(self.seed, self.history.steps) if fresh else self.seed
        with swapped(self.networks, self.averages), torch.inference_mode(), seeded(noise):
            for network in self.networks.values():
                network.eval()
            # Few pairs are scored again with other noise, so that chance is in the pairs and not in the draws.
            most = max(1, MAX_VALIDATION_NUMBERS // validation.theta[0].numel())  # fields and images are large
            size = max(20, min(500, most))
            repeats = 1 if fresh else max(1, min(MAX_VALIDATION_ROWS, most) // len(validation))
            starts = list(range(0, len(validation), size)) * repeats
            rows = [self.objective.validate(validation[i : i + size]) for i in starts]
            measures = dict(self.objective.measures(validation[:MEASURED_ROWS]))
        pairs = torch.cat(rows).double().reshape(-1, len(validation)).mean(0)
        return pairs if validation.weight is None else validation.weight * pairs, measures

    def save(self) -> None:
        if self.path is None or not self.fabric.is_global_zero:
            return
        remembered = {name: optimizer.memory() for name, optimizer in self.optimizers.items()}
        values: dict[str, list[Tensor]] = {"lowest": _copies(self.lowest), "untrained": _copies(self.untrained)}
        for name, network in self.networks.items():
            values |= {f"network {name}": tensors(network), f"moments {name}": remembered[name][0]}
            values |= {f"average {name}": self.averages[name], f"best {name}": self.best[name]}
        state: dict[str, Any] = {f"moments {name}": part[1] for name, part in remembered.items()}
        state |= {"identity": self.identity, "history": self.history.to_json(), "batch": self.batch}
        write_checkpoint(self.path, values, state)

    def resume(self, path: Path | None, validation_rows: int) -> None:
        self.path = path
        if path is None:
            return
        sweep(path.parent)
        if not path.exists():
            return
        saved = read_checkpoint(path, self.fabric.device)
        saved.check_identity(self.identity)
        self.history, self.batch = saved.history(), saved.count("batch")
        finite = self.history.stopped is not StopReason.DIVERGED
        for name, network in self.networks.items():
            own, optimizer = tensors(network), self.optimizers[name]
            self.best[name] = saved.like(f"best {name}", own)
            self.averages[name] = saved.like(f"average {name}", own, finite=finite)
            load(network, saved.like(f"network {name}", own, finite=finite))
            known = saved.flags(f"moments {name}", len(optimizer.param_groups[0]["params"]))
            remembered = saved.like(f"moments {name}", optimizer.memory_like(known), finite=finite)
            optimizer.load_memory(remembered, known)
        scores = torch.zeros(validation_rows, dtype=torch.float64)
        self.lowest, self.untrained = saved.one("lowest", scores), saved.one("untrained", scores)


def _copies(scores: Tensor | None) -> list[Tensor]:
    return [] if scores is None else [scores.clone()]


def _excess(pairs: Tensor, lowest: Tensor) -> float:
    """By how many standard errors of their paired difference scores exceed the lowest ones."""
    gap = pairs - lowest
    error = (gap.std() / math.sqrt(len(gap))).item() if len(gap) > 1 else 0.0
    mean = gap.mean().item()
    return mean / error if error else math.copysign(math.inf, mean) if mean else 0.0


def _place(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)
