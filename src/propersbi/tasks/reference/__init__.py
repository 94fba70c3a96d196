"""Samplers of the true posteriors of the tasks."""
