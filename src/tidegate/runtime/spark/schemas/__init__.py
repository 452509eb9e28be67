"""Values written by a schema that a registry keeps, Avro and Protobuf, decoded in the workers a batch at a time.

`cursor.py` reads numbers and texts of many records at once; `avro.py`, `avro_resolution.py` and `avro_columns.py` know
Avro, `protobuf.py` Protobuf, `json_schema.py` the columns of a JSON Schema, `registry.py` asks the registry,
`decoding.py` puts all together.
"""
