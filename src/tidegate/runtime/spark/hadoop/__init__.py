"""Classes for Hadoop, in Java."""
