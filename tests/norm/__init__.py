"""Tests of the normalisation."""
