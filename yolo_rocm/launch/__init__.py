"""Processes that are started under a preset: scripts, the ranks of several GPUs, children of Ultralytics."""
