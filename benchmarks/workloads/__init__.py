"""The workloads, a module each: its input, its contestants, and the bar that tidegate should reach."""
