"""Other engines on the same work, each in an environment of its own: `make bench-peers`."""
