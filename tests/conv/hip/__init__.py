"""Tests of the kernels of engine hip."""
