"""Benchmarks that are commands of the product."""
