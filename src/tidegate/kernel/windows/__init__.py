"""Windows: the windows of a record, their stored rows, and the rows they emit."""
