"""Benchmarks and the demo: convolutions, loaders and whole training steps, ours and stock in one run.

`results` writes the tables and drawings of all of them. This room may import every other one but the command line, and
only that imports it. A newcomer adds a peer to a comparison here: a way in `conv`, `loader` or `train`.
"""
