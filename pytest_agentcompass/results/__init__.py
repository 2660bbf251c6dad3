"""The run directory: layout, records, events, locks."""
