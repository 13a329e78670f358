"""Tests of the convolutions."""
