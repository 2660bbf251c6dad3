"""Built-in benchmarks, each written as an extension would be."""
