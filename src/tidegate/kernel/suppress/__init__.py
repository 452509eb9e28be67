"""Suppression: time limits that hold rows back, and the bounds of buffers."""
