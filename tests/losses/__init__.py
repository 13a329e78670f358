"""Tests of the room `losses`."""
