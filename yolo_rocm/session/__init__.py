"""One run under a preset: what is switched on, for how long, and what is written about it."""
