"""The command line: one module a command; `options` has what they share, `main` puts them together.

Commands read words, call other rooms and print; they compute nothing. They may import every room, nobody imports them,
and they do so inside functions: `--help` must not load torch. A newcomer adds a command here: a function with an
example in `main`, then `python docs/generate.py`.
"""
