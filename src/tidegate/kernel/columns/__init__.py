"""Columns: numpy and Arrow helpers that know nothing of streams."""
