"""Tests of the blocks."""
