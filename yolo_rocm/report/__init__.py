"""The page of a run: everything a training left in its folder, in one file that needs no network."""
