"""Tests; their folders mirror the package."""
