"""The folder that `tg.configure` puts on the path of Spark's Python processes, for its `sitecustomize` alone."""
