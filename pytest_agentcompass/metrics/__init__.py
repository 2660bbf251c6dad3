"""From observations to figures."""
