"""An agent that prints its key in every form, and a look at where somebody may find it."""

from __future__ import annotations

import json
import random
import string
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["LEAK", "command_lines", "holds", "random_key", "watched"]

#: prints the key plainly, in two writes, as base64, and as JSON; leaves it in files; then works for a while
LEAK = """
import base64, json, os, sys, time
key = os.environ["MY_KEY"]
print("plain", key)
sys.stdout.write("split " + key[:17]); sys.stdout.flush(); time.sleep(0.3)
sys.stdout.write(key[17:] + "\\n"); sys.stdout.flush()
print("base64", base64.b64encode(key.encode()).decode())
print("inside", base64.b64encode(b"x" + key.encode() + b"y").decode())
print("json", json.dumps({"key": key}))
print("error", key, file=sys.stderr)
open("kept.txt", "w").write(f"kept {key} {json.dumps(key)}")
open("answer.txt", "w").write(key)
time.sleep(1)
"""


def random_key() -> str:
    """Return a key of 40 random characters, some of which JSON escapes."""
    letters = random.choices(string.ascii_letters + string.digits, k=37)
    places = sorted(random.sample(range(1, 37), 3))
    for place, odd in zip(places, '"\\/', strict=True):
        letters.insert(place, odd)
    return "".join(letters)


def forms(key: str) -> tuple[bytes, ...]:
    """Return *key* as it is and as JSON writes it."""
    return key.encode(), json.dumps(key)[1:-1].encode()


def holds(content: bytes, key: str) -> bool:
    """Whether *content* holds *key* in a form that people search for."""
    return any(form in content for form in forms(key))


@contextmanager
def watched(look: Callable[[], Iterator[tuple[str, bytes]]], key: str) -> Iterator[list[str]]:
    """Look again and again during the block; gives the names of places where *key* was seen."""
    found: list[str] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.1):
            found.extend(name for name, content in look() if holds(content, key))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


def command_lines() -> Iterator[tuple[str, bytes]]:
    """Yield the command line of every process of this machine."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield str(path), path.read_bytes()
        except OSError:
            continue  # it has ended
