"""What the card and the host do while a training runs: sources, a sampling thread, a table beside the results."""
