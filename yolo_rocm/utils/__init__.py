"""Helpers that know nothing of YOLO, presets or convolutions."""
