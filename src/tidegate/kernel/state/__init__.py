"""State: where it is stored, in which frames, and the index of what is stored."""
