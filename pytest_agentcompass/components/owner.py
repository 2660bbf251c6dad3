"""Who owns a lock, a container or a temporary folder, and whether that process still lives.

Process ids are used again and start over at a boot, so an owner is known by four values: pid, start
time of the process, boot id and host name. Only an owner that is surely dead is ever called dead.
"""

from __future__ import annotations

import functools
import os
import socket
import subprocess
from pathlib import Path

__all__ = ["boot_id", "host_name", "owner_alive", "process_start_time"]


def host_name() -> str:
    """Return this machine's host name."""
    return socket.gethostname()


@functools.cache
def boot_id() -> str:
    """Return an id of this boot and of the pid namespace, `<boot>.<namespace>`; empty where none can be had.

    The namespace counts because two containers of one machine share the boot but not the pids.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        boot = _output("sysctl", "-n", "kern.boottime").replace(" ", "")
    try:
        space = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        space = ""
    return f"{boot}.{space}" if boot and space else boot


def process_start_time(pid: int | None = None) -> str:
    """Return when the process started (clock ticks since boot on Linux); empty when it is not there.

    A process that has ended but was not waited for (a zombie) counts as not there. The text is only
    ever compared with another of the same machine.
    """
    pid = os.getpid() if pid is None else pid
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return "" if Path("/proc/self/stat").exists() else _output("ps", "-o", "lstart=", "-p", str(pid))
    # The command's name may hold blanks and brackets: fields count from the last bracket (proc(5)).
    state, *rest = stat[stat.rindex(b")") + 1 :].split()
    return "" if state in (b"Z", b"X") else rest[18].decode("ascii")


def owner_alive(pid: int, start: str | None = None, boot: str | None = None, host: str | None = None) -> bool:
    """Whether the process may still live; false only when it surely does not.

    Leave *host* out only for what cannot belong to another machine: an owner of another host or pid
    namespace cannot be looked at and counts as alive. Another boot of this host means dead. An empty
    *start* is not compared.
    """
    if host and host != host_name():
        return True
    mine = boot_id().partition(".")
    theirs = (boot or "").partition(".")
    if theirs[0] and mine[0] and theirs[0] != mine[0]:
        return False
    if theirs[2] and mine[2] and theirs[2] != mine[2]:
        return True
    if pid <= 0:
        return False
    now = process_start_time(pid)
    return (not start or start == now) if now else _hidden(pid)


def _hidden(pid: int) -> bool:
    """Whether *pid* is another user's process that this one may not look at (`hidepid`)."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _output(*command: str) -> str:
    """Return what *command* prints, empty when it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
