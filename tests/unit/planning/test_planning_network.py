"""Network policies: hosts of endpoints and the notice to the agent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentcompass.contracts.network import NetworkMode, NetworkPolicy
from pytest_agentcompass.environments.docker.egress_proxy.policy import NAME, Entry, split_port
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


@pytest.mark.parametrize(
    ("entry", "stored"),
    [
        (" a.org ", "a.org"),
        ("A.org.:443", "A.org:443"),
        ("*.a.org", "*.a.org"),
        ("under_score", "under_score"),
        ("10.0.0.1:80", "10.0.0.1:80"),
        ("10.0.0.9/8", "10.0.0.9/8"),
        ("2001:db8::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:443", "[2001:db8::1]:443"),
        ("[2001:db8::/32]:443", "[2001:db8::/32]:443"),
        ("::/0", "::/0"),
        ("xn--bcher-kva.de", "xn--bcher-kva.de"),
    ],
)
def test_entries(entry: str, stored: str) -> None:
    """Entries have one spelling, which the egress proxy reads in the same way."""
    policy = NetworkPolicy.model_validate({"mode": "allowlist", "hosts": [entry]})
    assert policy.hosts == (stored,)
    assert NetworkPolicy.model_validate(policy.model_dump()) == policy
    _proxy_reads(stored)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("", "no URLs, no blanks"),
        ("http://a.org", "no URLs, no blanks"),
        ("a.org/path", "is no host name"),
        ("a b", "is no host name"),
        ("a.org\n:80", "is no host name"),
        ("a.org:", "impossible port"),
        ("a.org:0", "impossible port"),
        pytest.param("a.org:" + "9" * 5000, "impossible port", id="long port"),
        ("[::1]::80", "impossible port"),
        ("[a.org", "brackets stand around"),
        ("[2001:db8::]/32", "brackets stand around"),
        ("256.1.1.1", "is no host name"),
        ("8080", "is no host name"),
        ("*.1.2.3.4", "is no host name"),
        ("fe80::1%eth0", "without a zone"),
        ("::ffff:8.8.8.8", "IPv4"),
        ("64:ff9b::/96", "IPv4"),
        ("a" * 64 + ".org", "is no host name"),
        ("b\u00fccher.de", "in ASCII: xn--bcher-kva.de"),
        ("**.org", "is no host name"),
        ("*", "is no host name"),
    ],
)
def test_entries_that_say_nothing(entry: str, reason: str) -> None:
    """What is no entry is refused with the reason."""
    with pytest.raises(ValueError, match=reason):
        NetworkPolicy.model_validate({"mode": "denylist", "hosts": [entry]})


@pytest.mark.parametrize("value", [["a.org"], 5, True])
def test_what_is_no_policy(value: object) -> None:
    """Another shape is told what a policy looks like."""
    with pytest.raises(
        ValueError, match=r"is no network policy: give a mode \(public, no-network, allowlist, denylist"
    ):
        NetworkPolicy.model_validate(value)


def _proxy_reads(entry: str) -> None:
    read = Entry(entry)
    host, port = split_port(entry)
    assert read.port == port
    assert read.network is not None or NAME.fullmatch(host.removeprefix("*.")), entry


@given(st.text("a1.:*[]/%-_:", max_size=12) | st.from_regex(r"[a-c1-9.:*\[\]/]{1,10}(:[0-9]{1,6})?", fullmatch=True))
def test_whatever_is_accepted_the_proxy_reads(text: str) -> None:
    """The two readers of entries agree."""
    try:
        policy = NetworkPolicy(mode=NetworkMode.ALLOWLIST, hosts=(text,))
    except ValueError:
        return
    _proxy_reads(policy.hosts[0])
