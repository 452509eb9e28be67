"""Which grace, and which limits, a recorded stream would have needed, computed by tasks of Spark (`tg.advise`)."""
