"""Planning: pure decisions before anything opens."""
