"""The grace and the limits that a recorded stream would have needed, computed by tasks of Spark (`tg.advise`)."""
