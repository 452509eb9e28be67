"""Joins: records of two inputs that meet by key."""
