"""What runs in a Python worker of Spark: a task's step, its state and memory, and its rows on their way out."""
