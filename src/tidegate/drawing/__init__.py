"""Shared parts of SVG pictures and HTML pages. They need no network, no script and no font."""
