"""What it means, on Arrow and numpy: no clock, no I/O, no logging, no Spark.

`packing.pack` does per input partition what needs no state; `stage.Stage.step` does the rest over a `store.Store`.
"""
