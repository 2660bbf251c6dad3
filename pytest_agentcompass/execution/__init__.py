"""One attempt's lifecycle, and running many of them."""
