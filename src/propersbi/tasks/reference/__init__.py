"""Samplers from the true posteriors of the tasks: rejection, truncated normals, and Markov chains."""
