"""Reports that are rebuilt from records."""
