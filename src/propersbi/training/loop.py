"""The training loop: one readable loop for every objective.

It takes batches by number, lets each phase of the objective take its steps, keeps a running average of the weights,
looks at the held-out score now and then, remembers the best average and stops when it gets no better. Everything it
does at a step depends on the seed and the step alone, so a run that was cut off continues to the same bits.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from propersbi.storage.config import encode
from propersbi.training.config import History, TrainConfig
from propersbi.storage.files import write_with
from propersbi.training.memory import keep_freed_memory
from propersbi.storage.progress import progress_bar
from propersbi.storage.randomness import seeded
from propersbi.types import Batch, InputError, Objective, Phase
from propersbi.training.averages import load, mix, swapped, tensors

__all__ = ["History", "TrainConfig", "train"]


ROWS = 5000  # scored in one look, or fewer where these are as many numbers of theta:
NUMBERS = 100_000

# These say how far or where to train, not what: a checkpoint may be continued with others.
FREE = {"max_steps", "time_limit", "patience", "checkpoint_every", "device", "devices", "threads"}


def train(
    objective: Objective,
    batches: Any,
    held_out: Batch,
    config: TrainConfig,
    *,
    checkpoint: str | Path | None = None,
    progress: bool = True,
) -> History:
    """Train the networks of ``objective`` in place; they end as the best average of their weights.

    Arguments:
        objective: Networks and losses.
        batches: ``batches[i]`` is the i-th batch.
        held_out: Pairs for validation.
        config: How to train.
        checkpoint: A file to continue from, if it is there, and to write to.
        progress: Whether to show a bar with loss, score and time left on stderr.
    """
    keep_freed_memory()
    fabric = _fabric(config)
    with _threads(config.threads), seeded(config.seed):
        run = _Run(objective, config, fabric, {"data": _digest(held_out), "batch_size": len(batches[0])})
        run.resume(Path(checkpoint) if checkpoint else None)
        return run.loop(batches, held_out.to(fabric.device), progress and fabric.is_global_zero)


class _Run:
    """One training: the networks, their averages and optimisers, and how far it has come."""

    def __init__(self, objective: Objective, config: TrainConfig, fabric: Any, data: dict[str, Any]) -> None:
        self.objective, self.config, self.fabric, self.data = objective, config, fabric, data
        self.networks = {name: network.to(fabric.device) for name, network in objective.networks.items()}
        self.averages = {name: tensors(network) for name, network in self.networks.items()}
        self.best = {name: tensors(network) for name, network in self.networks.items()}
        self.optimizers = {name: self._optimizer(network) for name, network in self.networks.items()}
        self.history = History()
        self.batch = 0  # batches used so far
        self.lowest: Tensor | None = None  # the held-out scores, pair by pair, where their mean was lowest
        self.path: Path | None = None

    def _optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        config = self.config
        return torch.optim.AdamW(
            network.parameters(), lr=config.learning_rate, betas=config.betas, weight_decay=config.weight_decay
        )

    def loop(self, batches: Any, held_out: Batch, progress: bool) -> History:
        history, config = self.history, self.config
        started, saved = time.monotonic() - history.seconds, time.monotonic()
        bar = progress_bar(config.max_steps, "training", "step", show=progress, done=history.steps)
        running: list[float] = []
        try:
            while not self.finished():
                running.append(self.step(batches, history.steps))
                history.steps += 1
                bar.update()
                if not self.due(time.monotonic() - started):
                    continue
                history.seconds = self.fabric.broadcast(time.monotonic() - started)
                self.look(held_out, float(np.mean(running)))
                running.clear()
                bar.set_postfix_str(history.last_line())
                if time.monotonic() - saved > config.checkpoint_every:
                    self.save()
                    saved = time.monotonic()
            self.save()
        except KeyboardInterrupt:  # perhaps in the middle of a step: the last checkpoint is the one to continue from
            if self.path or history.best_score is None:
                raise
            history.stopped = "interrupted"
        finally:
            bar.close()
        for name, network in self.networks.items():
            load(network, self.best[name])
            network.eval()
        return history

    def due(self, seconds: float) -> bool:
        """Whether to look at the held-out score: now and then, and once more when steps or time have run out."""
        steps, config = self.history.steps, self.config
        if steps % config.validate_every == 0 or steps >= config.max_steps:
            return True
        return config.time_limit is not None and self.fabric.broadcast(seconds) >= config.time_limit

    def step(self, batches: Any, step: int) -> float:
        """One round of all phases; the loss of the last phase."""
        loss = 0.0
        torch.manual_seed(_place(self.config.seed, step, self.fabric.global_rank))
        for network in self.networks.values():
            network.train()
        for phase in self.objective.phases():
            for _ in range(phase.repeats):
                loss = self.descend(phase, batches[self.batch], step)
                self.batch += 1
        memory = min(self.config.average, (1 + step) / (10 + step))  # young averages must forget their start
        for name, network in self.networks.items():
            mix(self.averages[name], network, 1 - memory)
        return loss

    def descend(self, phase: Phase, batch: Batch, step: int) -> float:
        network, optimizer = self.networks[phase.network], self.optimizers[phase.network]
        share = batch[self.fabric.global_rank :: self.fabric.world_size].to(self.fabric.device)
        optimizer.zero_grad()
        with self.fabric.autocast():
            loss = phase.loss(share)
        self.fabric.backward(loss)
        self.agree(network)
        if self.config.clip is not None:
            nn.utils.clip_grad_norm_(network.parameters(), self.config.clip)
        for group in optimizer.param_groups:
            group["lr"] = self.config.rate(step, self.history.seconds)
        optimizer.step()
        return loss.item()

    def agree(self, network: nn.Module) -> None:
        """Average gradients over the devices, in one message and whatever the objective calls of the network."""
        if self.fabric.world_size == 1:
            return
        gradients = [weight.grad for weight in network.parameters() if weight.grad is not None]
        flat = self.fabric.all_reduce(torch.cat([g.flatten() for g in gradients]), reduce_op="mean")
        torch._foreach_copy_(gradients, [p.view_as(g) for p, g in zip(_parts(flat, gradients), gradients, strict=True)])

    def look(self, held_out: Batch, loss: float) -> None:
        """Score the averaged weights on the held-out pairs, always with the same noise, and keep the best."""
        latest = self.config.first_rise is not None  # the paper's rule: other noise at every look, the latest are kept
        noise = _place(self.config.seed, self.history.steps) if latest else self.config.seed
        with swapped(self.networks, self.averages), torch.inference_mode(), seeded(noise):
            for network in self.networks.values():
                network.eval()
            # Few held-out pairs are scored again with other noise: what is left is the luck of the pairs, not of draws.
            most = max(1, NUMBERS // held_out.theta[0].numel())  # fields and images are many numbers each
            size = max(20, min(500, most))
            again = 1 if latest else max(1, min(ROWS, most) // len(held_out))
            starts = list(range(0, len(held_out), size)) * again
            rows = [self.objective.validate(held_out[i : i + size]) for i in starts]
            trouble = self.objective.trouble(held_out[:500]) if hasattr(self.objective, "trouble") else ""
        pairs = torch.cat(rows).double().reshape(-1, len(held_out)).mean(0)
        if held_out.weight is not None:
            pairs = held_out.weight * pairs
        score = pairs.mean().item()
        if not (math.isfinite(score) and math.isfinite(loss)):
            self.history.stopped = "diverged"
            return
        self.history.trouble = trouble
        rate = self.config.rate(self.history.steps - 1, self.history.seconds)
        self.history.record(self.history.steps, loss, rate, score)
        if self.lowest is None or score < self.lowest.mean():
            self.lowest = pairs
        waited = self.history.steps - self.history.best_step
        self.history.overfits = waited >= 5 * self.config.validate_every and _worse(pairs, self.lowest, errors=10)
        if latest or not _worse(pairs, self.lowest):
            self.history.best_step, self.history.best_score = self.history.steps, score
            self.best = {name: [t.clone() for t in average] for name, average in self.averages.items()}

    def finished(self) -> bool:
        history, config = self.history, self.config
        waited = history.steps - history.best_step
        if history.stopped == "diverged":
            return True
        reasons = {
            "trouble": bool(history.trouble),
            "max_steps": history.steps >= config.max_steps,
            "first_rise": config.first_rise is not None and history.rose(config.first_rise),
            "patience": config.patience is not None
            and config.first_rise is None
            and (history.overfits or waited >= config.patience * config.validate_every),
            "time_limit": config.time_limit is not None and history.seconds >= config.time_limit,
        }
        history.stopped = self.fabric.broadcast(next((name for name, holds in reasons.items() if holds), ""))
        return bool(history.stopped)

    def fingerprint(self) -> dict[str, Any]:
        """What must be the same for a checkpoint to be continued."""
        fixed = {key: value for key, value in dataclasses.asdict(self.config).items() if key not in FREE}
        sizes = {name: sum(t.numel() for t in tensors(net)) for name, net in self.networks.items()}
        chosen = {name: encode(getattr(self.objective, name, None)) for name in ("rule", "m", "game")}
        return {**fixed, "betas": list(self.config.betas), "weights": sizes, **chosen, **self.data}

    def save(self) -> None:
        if self.path is None or not self.fabric.is_global_zero:
            return
        state = {
            "fingerprint": self.fingerprint(),
            "networks": {name: tensors(network) for name, network in self.networks.items()},
            "averages": self.averages,
            "best": self.best,
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
            "history": dataclasses.asdict(self.history),
            "batch": self.batch,
            "lowest": self.lowest,
        }
        write_with(self.path, lambda file: torch.save(state, file))

    def resume(self, path: Path | None) -> None:
        self.path = path
        if path is None or not path.exists():
            return
        state = _read_checkpoint(path, self.fabric.device)
        defaults = dataclasses.asdict(TrainConfig())  # older checkpoints do not name younger options
        for key, value in self.fingerprint().items():
            before = state["fingerprint"].get(key, defaults.get(key))
            if before != value:
                raise InputError(f"'{path}' was trained with {key} = {before}, not {value}: remove it to start anew.")
        for name, network in self.networks.items():
            load(network, state["networks"][name])
            self.optimizers[name].load_state_dict(state["optimizers"][name])
        self.averages, self.best = state["averages"], state["best"]
        self.batch, self.lowest = state["batch"], state["lowest"]
        self.history = History(**state["history"])


def _fabric(config: TrainConfig) -> Any:
    from lightning_fabric import Fabric  # two seconds to import, so only when training starts

    accelerator = "cpu" if config.device == "auto" and not torch.cuda.is_available() else config.device
    strategy = "auto" if config.devices == 1 else "ddp"
    options: dict[str, Any] = {"devices": config.devices, "strategy": strategy, "precision": config.precision}
    try:
        fabric = Fabric(accelerator=accelerator, **options)
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"Training cannot run on {config.devices} x '{config.device}': {reason}") from None
    fabric.launch()
    return fabric


def _read_checkpoint(path: Path, device: torch.device) -> dict[str, Any]:
    try:
        return torch.load(path, map_location=device, weights_only=True)  # tensors and plain data: runs no code
    except Exception as error:
        reason = str(error).split("\n")[0]
        raise InputError(f"The checkpoint '{path}' cannot be read ({reason}): remove it to start anew.") from None


def _worse(pairs: Tensor, lowest: Tensor, errors: float = 1.0) -> bool:
    """Whether scores lie above the lowest ones by more than some standard errors of their paired difference.

    A score hardly sees the last bit of sharpness that longer training brings. Between scores that cannot be told apart,
    the later weights are the better ones.
    """
    gap = pairs - lowest
    return bool(gap.mean() > errors * gap.std() / math.sqrt(len(gap))) if len(gap) > 1 else bool(gap > 0)


def _digest(held_out: Batch) -> str:
    """A short name for the data: other simulations have other held-out parameters or weights."""
    columns = [held_out.theta] if held_out.weight is None else [held_out.theta, held_out.weight]
    content = b"".join(column.contiguous().cpu().numpy().tobytes() for column in columns)
    return hashlib.sha256(content).hexdigest()[:12]


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _parts(flat: Tensor, like: list[Tensor]) -> Iterator[Tensor]:
    return iter(flat.split([tensor.numel() for tensor in like]))


def _place(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)
