"""What the egress proxy lets out, and what it answers to requests that it does not take."""

from __future__ import annotations

import io
import ipaddress
import json
import socket
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_agentcompass.environments.docker import egress
from pytest_agentcompass.environments.docker.egress import machine_addresses, program_archive
from pytest_agentcompass.environments.docker.egress_proxy.policy import NAME, Policy, plain, split_port

WORLD, OTHER = "93.184.215.14", "8.8.4.4"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("example.org", ("example.org", None)),
        ("Example.ORG.:443", ("example.org", 443)),
        ("10.0.0.1:80", ("10.0.0.1", 80)),
        ("10.0.0.0/8", ("10.0.0.0/8", None)),
        ("[::1]:80", ("::1", 80)),
        ("[2001:db8::]", ("2001:db8::", None)),
        ("2001:db8::1", ("2001:db8::1", None)),
    ],
)
def test_hosts_and_ports(text: str, parts: tuple[str, int | None]) -> None:
    """An entry's and a request's host may carry a port; names have one spelling."""
    assert split_port(text) == parts


@pytest.mark.parametrize("text", ["a:0", "a:65536", "a:b", "a:\u0663", "[::1]:x"])
def test_impossible_ports(text: str) -> None:
    """A port is a number of a port."""
    with pytest.raises(ValueError, match="port"):
        split_port(text)


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("64:ff9b::a00:1", "10.0.0.1"),
        ("2002:a00:1::", "10.0.0.1"),
        ("fe80::1%eth0", "fe80::1"),
        ("2606:4700::1", "2606:4700::1"),
        ("10.1.1.1", "10.1.1.1"),
    ],
)
def test_addresses_in_disguise(text: str, inner: str) -> None:
    """IPv6 forms of an IPv4 address are judged as that one."""
    assert plain(text) == ipaddress.ip_address(inner)


def _permitted(mode: str, entries: list[str], host: str, port: int, *found: str, own: tuple[str, ...] = ()) -> bool:
    """Whether a policy lets *host*, which stands for the addresses *found*, be reached (all of them or none)."""
    policy = Policy(mode, entries, list(own))
    try:
        addresses = [plain(host)]
    except ValueError:
        if not NAME.fullmatch(host) or not policy.may_look_up(host, port):
            return False
        addresses = [plain(text) for text in found]
    permitted = policy.permitted(host, port, addresses, set())
    assert permitted in ([], addresses)
    return bool(permitted)


@pytest.mark.parametrize(
    ("entries", "host", "port", "found", "reached"),
    [
        (["a.org"], "a.org", 443, WORLD, True),
        (["A.org"], "a.org", 443, WORLD, True),
        (["a.org"], "b.a.org", 443, WORLD, False),
        (["a.org"], "xa.org", 443, WORLD, False),
        (["a.org:443"], "a.org", 443, WORLD, True),
        (["a.org:443"], "a.org", 80, WORLD, False),
        (["*.a.org"], "b.a.org", 443, WORLD, True),
        (["*.a.org"], "c.b.a.org", 443, WORLD, True),
        (["*.a.org"], "a.org", 443, WORLD, False),
        (["*.a.org"], "xa.org", 443, WORLD, False),
        ([WORLD], WORLD, 443, "", True),
        ([WORLD], OTHER, 443, "", False),
        ([f"{WORLD}:80"], WORLD, 443, "", False),
        (["93.184.0.0/16"], WORLD, 443, "", True),
        # a name is not looked up for an address: the lookup itself would carry something out
        (["93.184.0.0/16"], "a.org", 443, WORLD, False),
        # local addresses: only where an entry says just that
        (["internal.corp"], "internal.corp", 443, "10.0.0.5", True),
        (["*.corp"], "internal.corp", 443, "10.0.0.5", False),
        (["*.corp", "10.0.0.0/24"], "internal.corp", 443, "10.0.0.5", True),
        (["172.17.0.1:4000"], "172.17.0.1", 4000, "", True),
        (["172.17.0.1:4000"], "172.17.0.1", 22, "", False),
        (["169.254.169.254"], "169.254.169.254", 80, "", True),
        # the proxy's own loopback: never
        (["localhost"], "localhost", 80, "127.0.0.1", False),
        (["127.0.0.0/8"], "127.0.0.1", 80, "", False),
        (["0.0.0.0/0"], "0.0.0.0", 80, "", False),
        (["0.0.0.0/0"], "224.0.0.1", 80, "", False),
        (["::/0"], "::1", 80, "", False),
        (["::/0"], "::ffff:127.0.0.1", 80, "", False),
        (["::/0"], "2606:4700::1", 443, "", True),
        (["0.0.0.0/0"], "2606:4700::1", 443, "", False),
        # other spellings of an address are names that nobody listed
        (["0.0.0.0/0"], "0x7f000001", 80, "127.0.0.1", False),
        (["0.0.0.0/0"], "2130706433", 80, "127.0.0.1", False),
        # what a look-up would read differently than we do
        (["*.a.org"], "8.8.8.8%.a.org", 443, "", False),
        (["*.a.org"], "2606:4700::1%.a.org", 443, "", False),
        (["*.a.org"], "8.8.8.8\0.a.org", 443, "8.8.8.8", False),
        (["*.a.org"], "b\xad.a.org", 443, WORLD, False),
        (["*.a.org"], ".a.org", 443, WORLD, False),
    ],
)
def test_allow_lists(entries: list[str], host: str, port: int, found: str, reached: bool) -> None:
    """Nothing is reached but what is listed."""
    assert _permitted("allowlist", entries, host, port, *filter(None, [found])) is reached


@pytest.mark.parametrize(
    ("entries", "host", "found", "reached"),
    [
        (["b.org"], "a.org", WORLD, True),
        (["b.org"], "b.org", WORLD, False),
        (["b.org:80"], "b.org", WORLD, True),
        (["*.b.org"], "x.b.org", WORLD, False),
        (["*.b.org"], "b.org", WORLD, True),
        ([WORLD], "a.org", WORLD, False),
        (["93.184.0.0/16"], WORLD, "", False),
        (["93.184.0.0/16"], OTHER, "", True),
        (["b.org"], "a.org", "10.0.0.1", False),
        (["b.org"], "a.org", "169.254.169.254", False),
        (["b.org"], "172.17.0.1", "", False),
        (["b.org"], "100.64.0.1", "", False),
        (["b.org"], "::ffff:10.0.0.1", "", False),
        (["b.org"], "fd00::1", "", False),
        (["b.org"], "127.0.0.1", "", False),
        (["b.org"], "0x7f000001", "127.0.0.1", False),
        (["*.b.org"], "x.b.\xadorg", WORLD, False),
        (["*.b.org"], "x.b.org\0", WORLD, False),
        (["b.org"], "fec0::1", "", False),
        (["b.org"], "::10.0.0.1", "", False),
        (["b.org"], "64:ff9b:1::1", "", False),
    ],
)
def test_deny_lists(entries: list[str], host: str, found: str, reached: bool) -> None:
    """What is listed is not reached, by name or address, and no local address is."""
    assert _permitted("denylist", entries, host, 443, *filter(None, [found])) is reached


def test_a_denied_name_is_denied_by_address_too() -> None:
    """Whoever asks for the address of a denied name is refused; a port limits that as well."""
    policy = Policy("denylist", ["b.org", "c.org:80", "*.d.org", OTHER], [])
    assert policy.denied_names(443) == ["b.org"]
    assert policy.denied_names(80) == ["b.org", "c.org"]
    assert policy.permitted(WORLD, 443, [plain(WORLD)], {plain(WORLD)}) == []


def test_the_machines_own_addresses_are_local() -> None:
    """An address of the engine's machine counts as local, also where the whole world may call it."""
    assert not _permitted("denylist", ["b.org"], WORLD, 443, own=(WORLD,))
    assert not _permitted("allowlist", ["*.org"], "a.org", 443, WORLD, own=(WORLD,))
    assert _permitted("allowlist", [WORLD], WORLD, 443, own=(WORLD,))


def test_addresses_of_this_machine(tmp_path: Path) -> None:
    """They are read from the kernel's tables; without tables there are none."""
    if Path("/proc/net/fib_trie").exists():
        assert "127.0.0.1" in machine_addresses()
    trie, inet6 = tmp_path / "trie", tmp_path / "inet6"
    assert machine_addresses(trie, inet6) == []
    trie.write_text(
        "  +-- 0.0.0.0/0 3 0 5\n     |-- 10.1.0.9\n        /32 host LOCAL\n     |-- 10.1.0.0\n        /24 link\n"
    )
    inet6.write_text("fe800000000000000000000000000009 02 40 20 80     eth0\n")
    assert machine_addresses(trie, inet6) == ["10.1.0.9", "fe80::9"]


# ---------------------------------------------------------------- the program itself


Start = Callable[..., tuple["subprocess.Popen[str]", int]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a proxy as it stands in a container (its port is the system's choice); it is ended after the test."""
    running: list[subprocess.Popen[str]] = []

    def _start(**given: Any) -> tuple[subprocess.Popen[str], int]:
        order = {"mode": "allowlist", "hosts": ["only.invalid:443", "localhost"], "address": "127.0.0.1", "port": 0}
        with tarfile.open(fileobj=io.BytesIO(program_archive({**order, **given}))) as archive:
            for entry in archive:
                content = archive.extractfile(entry)
                assert content is not None
                (tmp_path / entry.name).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / entry.name).write_bytes(content.read())
        program = egress.PROGRAM.replace("'/", f"'{tmp_path}/")
        words = [sys.executable, "-I", "-c", program, str(tmp_path / "agentcompass-egress" / "order.json")]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        return process, json.loads(line)[1] if line else 0

    yield _start
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def proxy(start: Start) -> tuple[subprocess.Popen[str], int]:
    """A running proxy that lets out to nowhere, and its port."""
    return start()


def _say(port: int, data: bytes) -> bytes:
    """Return all that the proxy answers to *data*."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(data)
        return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize(
    ("data", "status", "text"),
    [
        (
            b"CONNECT a.org:443 HTTP/1.1\r\n\r\n",
            b"403",
            b"a.org:443 cannot be reached under this task's network policy",
        ),
        (
            b"CONNECT only.invalid:80 HTTP/1.1\r\n\r\n",
            b"403",
            b"only these can be reached: only.invalid:443, localhost",
        ),
        (b"CONNECT only.invalid:443 HTTP/1.1\r\n\r\n", b"502", b"only.invalid:443 did not answer"),
        (b"CONNECT localhost:22 HTTP/1.1\r\n\r\n", b"403", b"localhost:22 cannot be reached"),
        (b"CONNECT [::1]:22 HTTP/1.1\r\n\r\n", b"403", b"[::1]:22 cannot"),
        (b"CONNECT a.org HTTP/1.1\r\n\r\n", b"400", b"no host with a port"),
        (b"CONNECT :443 HTTP/1.1\r\n\r\n", b"400", b"no host with a port"),
        (b"CONNECT a.org:99999 HTTP/1.1\r\n\r\n", b"400", b"impossible port"),
        (b"GET http://a.org/x HTTP/1.1\r\nHost: only.invalid\r\n\r\n", b"403", b"a.org:80 cannot"),
        (b"GET http://a.org?q=only.invalid/ HTTP/1.1\r\n\r\n", b"403", b"a.org:80 cannot"),
        (b"GET http://only.invalid:443@a.org/ HTTP/1.1\r\n\r\n", b"403", b"a.org:80 cannot"),
        (b"GET https://a.org/ HTTP/1.1\r\n\r\n", b"400", b"CONNECT and http://"),
        (b"GET / HTTP/1.1\r\nHost: a.org\r\n\r\n", b"400", b"this is a proxy"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", b"400", b"this is a proxy"),
        (b"GET http://\xff\xfe/ HTTP/1.1\r\n\r\n", b"403", b"cannot be reached"),
        pytest.param(
            b"CONNECT a.org:" + b"4" * 5000 + b" HTTP/1.1\r\n\r\n", b"400", b"impossible port", id="long port"
        ),
        (b"CONNECT 8.8.8.8%.localhost:443 HTTP/1.1\r\n\r\n", b"403", b"cannot be reached"),
        (b"CONNECT 8.8.8.8\0.only.invalid:443 HTTP/1.1\r\n\r\n", b"403", b"cannot be reached"),
        pytest.param(b"CONNECT " + b"a" * 300 + b".org:443 HTTP/1.1\r\n\r\n", b"403", b"cannot be", id="long name"),
        pytest.param(
            b"GET http://a.org/ HTTP/1.1\r\nx: " + b"y" * 100_000 + b"\r\n\r\n", b"431", b"too long", id="long head"
        ),
    ],
)
def test_answers(proxy: tuple[subprocess.Popen[str], int], data: bytes, status: bytes, text: bytes) -> None:
    """Each request is answered with a status and a reason for people, and the next one too."""
    for _ in range(2):
        answer = _say(proxy[1], data)
        assert answer.startswith(b"HTTP/1.1 " + status), answer
        assert text in answer


def test_a_large_upload_is_told_why_it_is_refused(proxy: tuple[subprocess.Popen[str], int]) -> None:
    """What the client is still sending is read, or it would not see the answer."""
    head = b"POST http://a.org/ HTTP/1.1\r\nContent-Length: 20000000\r\n\r\n"
    answer = _say(proxy[1], head + b"x" * 20_000_000)
    assert answer.startswith(b"HTTP/1.1 403")
    assert b"a.org:80 cannot be reached" in answer


def test_connections_without_a_request(proxy: tuple[subprocess.Popen[str], int]) -> None:
    """A connection that ends before its request does not end the proxy; each target is told once."""
    process, port = proxy
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"CONNECT a.o")
    for _ in range(3):
        assert b"403" in _say(port, b"CONNECT a.org:443 HTTP/1.1\r\n\r\n")
    assert b"403" in _say(port, b"CONNECT b.org:443 HTTP/1.1\r\n\r\n")
    process.terminate()
    assert process.stdout is not None
    assert [json.loads(line) for line in process.stdout] == [["refused", "a.org:443"], ["refused", "b.org:443"]]


def test_too_many_targets(proxy: tuple[subprocess.Popen[str], int]) -> None:
    """What is refused in masses does not hide what is asked for after it, and that there was more is told."""
    process, port = proxy
    for number in range(502):
        assert b"403" in _say(port, b"CONNECT junk%d.org:443 HTTP/1.1\r\n\r\n" % number)
    assert b"502" in _say(port, b"CONNECT only.invalid:443 HTTP/1.1\r\n\r\n")
    process.terminate()
    assert process.stdout is not None
    told = [json.loads(line) for line in process.stdout]
    assert told[499:] == [["refused", "junk499.org:443"], ["more refused", ""], ["allowed", "only.invalid:443"]]


def test_strangers_are_not_served(start: Start) -> None:
    """Only the sandbox's own network may use the proxy."""
    _, port = start(peers="198.18.0.0/29")
    assert _say(port, b"") == b""


def test_an_order_that_cannot_be_read(start: Start) -> None:
    """The proxy ends with one line."""
    process, _ = start(hosts=["a.org:b"])
    assert process.communicate()[1] == "the policy cannot be read: impossible port in 'a.org:b'\n"
    assert process.returncode == 1
