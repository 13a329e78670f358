"""Tests of the BatchNorm of engine hip."""
