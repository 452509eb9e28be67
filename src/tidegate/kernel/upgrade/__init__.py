"""Upgrades: which changes of a plan go on with a checkpoint, and what is rewritten for them."""
