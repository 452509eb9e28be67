"""Test topologies without Spark or Java."""

from tidegate.instants import Window
from tidegate.testing.driver import TopologyTestDriver

__all__ = ["TopologyTestDriver", "Window"]
