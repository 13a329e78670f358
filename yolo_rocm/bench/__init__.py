"""Benchmarks, the demo, and `certify`, which runs everything on a card: ours and stock in one run.

`results` writes the tables and drawings of all benchmarks; `certify` puts its parts together, `certify_kernels` and
`certify_parts` are the processes they run in, `certify_outcomes` judges them. This room may import every other one but
the command line, and only that imports it. A newcomer adds a peer to a comparison here: a way in `conv`, `loader` or
`train`.
"""
