"""Presets: their schema, the files they come from, which one a card gets, and the environment variables they set."""
