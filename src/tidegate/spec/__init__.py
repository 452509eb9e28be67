"""Specifications by users: frozen values, checked when built, independent of any engine."""
