"""Network policies: hosts of endpoints and the notice to the agent."""

from __future__ import annotations

import pytest

from pytest_agentcompass.contracts.network import NetworkPolicy
from pytest_agentcompass.planning.network import endpoint_host, restriction_notice, with_host


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://api.x.org/v1", "api.x.org:443"),
        ("http://h/v1", "h:80"),
        ("http://10.0.0.1:8000", "10.0.0.1:8000"),
        ("http://[::1]:9/x", "[::1]:9"),
        ("user.example:81/v1", "user.example:81"),
        ("https://name:secret@h.org", "h.org:443"),
        ("http://h:99999999", None),
        ("", None),
        (None, None),
        ("http://", None),
    ],
)
def test_endpoint_host(url: str | None, host: str | None) -> None:
    """An endpoint's host and port make a valid policy entry, without credentials."""
    assert endpoint_host(url) == host
    if host:
        assert NetworkPolicy.model_validate({"mode": "allowlist", "hosts": [host]}).hosts == (host,)


def test_adding_a_host_twice_changes_nothing() -> None:
    """A host that is listed is not listed again."""
    policy = NetworkPolicy.model_validate({"mode": "allowlist", "hosts": ["h:1"]})
    assert with_host(policy, "h:1") is policy


def test_notice_lists_what_may_be_reached() -> None:
    """The notice names the hosts of a restricted policy and is empty for a public one."""
    assert restriction_notice(NetworkPolicy()) == ""
    assert "none" in restriction_notice(NetworkPolicy.model_validate("no-network"))
    allow = NetworkPolicy.model_validate({"mode": "allowlist", "hosts": ["a.b", "*.c.d:443"]})
    assert "Only these hosts can be reached: a.b, *.c.d:443." in restriction_notice(allow)
    deny = NetworkPolicy.model_validate({"mode": "denylist", "hosts": ["a.b"]})
    assert "cannot be reached: a.b." in restriction_notice(deny)
