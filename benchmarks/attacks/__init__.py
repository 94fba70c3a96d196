"""Attacks on the library: kills, damaged and hostile files, random calls; ``python -m benchmarks.attacks``."""
