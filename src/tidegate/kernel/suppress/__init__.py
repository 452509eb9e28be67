"""Suppression: what holds rows back, and the bounds of its buffers."""
