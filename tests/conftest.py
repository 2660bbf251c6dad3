"""Shared by the tests that need the extra `test`."""

from hypothesis import settings

# A busy machine must not fail a property: time is measured in perf/, never asserted in a test.
settings.register_profile("agentcompass", deadline=None)
settings.load_profile("agentcompass")
