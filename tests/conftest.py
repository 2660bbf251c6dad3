"""Shared by the tests that need the extra `test`."""

try:
    from hypothesis import settings
except ImportError:  # pytest loads this file for the example suites too, and those need no extra
    pass
else:
    # A busy machine must not fail a property: time is measured in perf/, never asserted in a test.
    settings.register_profile("agentcompass", deadline=None)
    settings.load_profile("agentcompass")
