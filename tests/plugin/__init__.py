"""Tests of the pytest layer: whole runs in processes of their own."""
