"""Convolutions of the process through our own code: the dispatcher seam, the planner and the algorithms."""
