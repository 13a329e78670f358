"""What the card and the host do while a training runs: sources, a sampling thread, and a table next to the results.

Also decides which training steps are timed: their layers, their time by class of operator, and how long the host takes
to launch them; measures how long epochs wait for data (`wait_meter`); and judges what held a training up
(`bottleneck`). May import `data`, `conv`, `hardware` and `utils`, and torch only where torch is already running:
looking never starts a GPU. A newcomer adds a value in `reading.py` and a source of values as a class with `read` in
`sources.py`; something to be timed in a step is a timer for `steps.py`.
"""
