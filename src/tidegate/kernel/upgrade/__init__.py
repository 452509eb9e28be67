"""Upgrades: the changes of a plan with which a checkpoint can go on, and the rewriting of its state for them."""
