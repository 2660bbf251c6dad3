"""Built-in sandbox providers."""
