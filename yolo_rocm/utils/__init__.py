"""Helpers that know nothing of YOLO, presets or convolutions: files, consoles, progress, patches, process groups.

They import no other room, so that every room can use them. A newcomer puts here what two rooms would otherwise write
twice.
"""
