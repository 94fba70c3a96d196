"""The simulator is a program of its own, which reads its arguments and prints numbers."""

import subprocess

PROGRAM = """
BEGIN {
    srand(seed)
    for (i = 0; i < 5; i++) { noise = rand() + rand() + rand() - 1.5; print height - 0.5 * drag * i * i + noise }
}
"""

prior = {"height": (5.0, 20.0), "drag": (0.0, 2.0)}


def simulator(height, drag, rng):
    arguments = {"height": height, "drag": drag, "seed": rng.integers(2**31)}
    words = [word for name, value in arguments.items() for word in ("-v", f"{name}={value}")]
    done = subprocess.run(["awk", *words, PROGRAM], capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.splitlines()]


observation = [12.1, 11.3, 10.2, 7.8, 4.3]
