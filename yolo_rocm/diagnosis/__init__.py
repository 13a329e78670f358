"""What is wrong and what to do about it: checks of the machine, probes of the card, and known failures in logs.

Checks look at files and variables only; probes run in child processes that may hang or crash without harm. May import
`ultralytics_hooks`, `preset`, `engines`, `hardware` and `utils`; only `probe_child` imports torch and `conv`. A
newcomer adds a failure in `known_failures.yaml`, a check as a function in one of the `checks_*.py` (its name is the id
of its finding, its docstring is in the docs), and a probe in `probes.py` and `probe_child.py`.
"""
