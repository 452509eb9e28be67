"""What others would run instead: `make bench-peers`."""
