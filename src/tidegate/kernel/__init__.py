"""The semantics of tidegate on Arrow and numpy: no clock, no I/O, no logging, no Spark.

`packing.pack` does the stateless work of an input partition; `stage.Stage.step` does the rest over a `store.Store`.
"""
