"""Tests of the loaders and what they feed."""
