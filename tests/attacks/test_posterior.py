"""Attacks on saved posteriors: kills at every step of saving, two writers, readers in between."""

import multiprocessing
import os
import shutil
import signal

import numpy as np

import propersbi as ps
from propersbi.networks import MLPGenerator
from propersbi.samplers import Sampler, Standardize, Standardized


def make(seed=0):
    import torch

    torch.manual_seed(seed)
    sampler: Sampler = MLPGenerator((2,), (3,), width=4)
    return ps.Posterior(Standardized(sampler, Standardize((2,)), Standardize((3,))))


def draws(folder):
    return ps.Posterior.load(folder).sample((3,), x=np.zeros(3), seed=0).tolist()


def save_and_die(folder, posterior, step):
    """Save in another process, which is killed at a step of it; whether it got through."""
    child = os.fork()
    if child == 0:
        calls = 0

        def counted(real):
            def call(*args, **kwargs):
                nonlocal calls
                calls += 1
                if calls == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*args, **kwargs)

            return call

        for name in ("replace", "rename", "link", "unlink", "fsync"):
            setattr(os, name, counted(getattr(os, name)))
        posterior.save(folder)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_kill_at_any_step_leaves_the_old_or_the_new_posterior(tmp_path):
    folder = tmp_path / "posterior"
    make(0).save(folder)
    old = draws(folder)
    make(1).save(tmp_path / "new")
    new = draws(tmp_path / "new")
    found = []
    for step in range(1, 30):
        shutil.rmtree(folder)
        make(0).save(folder)
        done = save_and_die(folder, make(1), step)
        found.append(draws(folder))
        assert found[-1] in (old, new)
        make(1).save(folder)
        assert draws(folder) == new
        assert sorted(os.listdir(folder)) == ["config.json", "weights.safetensors"]
        if done:
            break
    assert old in found
    assert new in found


def save_often(folder, seed, times):
    posterior = make(seed)
    for _ in range(times):
        posterior.save(folder)


def test_two_writers_and_a_reader_never_see_half_a_posterior(tmp_path):
    folder = tmp_path / "posterior"
    make(0).save(folder)
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=save_often, args=(folder, seed, 10)) for seed in (0, 1)]
    for writer in writers:
        writer.start()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        seen.add(str(draws(folder)))
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert 1 <= len(seen) <= 2
    assert sorted(os.listdir(folder)) == ["config.json", "weights.safetensors"]
