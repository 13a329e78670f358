"""From a bare machine to commands: which torch suits the card, which Python it needs, and how to type it here.

Everything is read from `configs/install.yaml` and from files of the machine; torch and Ultralytics need not be there,
because this room is what brings them. May import `preset` for the names of cards, `hardware` and `utils`. A newcomer
adds a row to the table for a new index or card, a condition to `table.py`, or an operating system's way of typing to
`shell.py`.
"""
