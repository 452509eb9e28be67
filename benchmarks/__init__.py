"""Benchmarks, run from the root of the repository: `make bench`."""
