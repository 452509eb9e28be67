"""The workloads, a module each: input, contestants, and the bar that tidegate should reach."""
