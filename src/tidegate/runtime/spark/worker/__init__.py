"""Code of Spark's Python workers: a task's step, its state and memory, and its rows on their way out."""
