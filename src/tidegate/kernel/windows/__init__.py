"""Windows: which windows a record has, what is stored of them, and which rows they emit."""
