"""What `docs/generate.py` is made of: one module for each kind of page, each a function from facts to Markdown."""
