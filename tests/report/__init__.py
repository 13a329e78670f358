"""Tests of the page of a run."""
