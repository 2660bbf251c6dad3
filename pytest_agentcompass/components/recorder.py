"""A recording of a tmux session, made by asciinema from outside of it.

asciinema runs in a tmux server of its own, where it records a read-only client of the session. So nothing of it
stands between the session's shell and its terminal: it is no child of the shell, ends with none of the shell's
processes, and what it needs (a UTF-8 locale, a folder for its settings) is not in the shell's environment or home.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ..redaction import clean_text
from .context import current_attempt

if TYPE_CHECKING:
    from .environment import EnvironmentSession

__all__ = ["Recorder"]

_SECONDS = 30.0  # that starting or ending it may take
_LIMIT = 50_000_000  # bytes of a recording that are kept: the beginning
_NONE = "no-asciinema"

# Ends when the session has its client, in vain when asciinema has ended or 10 seconds are over.
_START = """
command -v asciinema >/dev/null || {{ echo {none}; exit 0; }}
unset TMUX
tmux -u -L {own} -f /dev/null start-server ';' set-option -g status off ';' \
  set-window-option -g remain-on-exit on ';' new-session -d -s recorder -x {width} -y {height} {command} || exit 1
n=0
until [ -n "$(tmux -L {socket} list-clients -t {name} 2>/dev/null)" ]; do
  n=$((n + 1))
  if [ $n -gt 100 ] || [ "$(tmux -L {own} display-message -p -t recorder '#{{pane_dead}}')" = 1 ]; then
    tmux -L {own} capture-pane -p
    tmux -L {own} kill-server
    exit 1
  fi
  sleep 0.1 || sleep 1
done
"""

# asciinema writes all that it has and ends by itself when its client has gone.
_STOP = """
tmux -L {socket} detach-client -s {name} 2>/dev/null
n=0
while [ "$(tmux -L {own} display-message -p -t recorder '#{{pane_dead}}' 2>/dev/null)" = 0 ] && [ $n -lt 50 ]; do
  n=$((n + 1))
  sleep 0.1 || sleep 1
done
tmux -L {own} kill-server 2>/dev/null
true
"""


class Recorder:
    """The recorder of one session; *socket* and *name* are the session's own, as *user* is."""

    def __init__(self, env: EnvironmentSession, socket: str, name: str, user: str | None) -> None:
        self.file = f"/tmp/.{socket}.cast"
        self._env = env
        self._user = user
        self._folder = f"/tmp/.{socket}"
        self._words = {"socket": socket, "own": f"{socket}-recorder", "name": shlex.quote(name)}

    async def start(self, width: int, height: int) -> bool:
        """Record from now on; False where the image has no asciinema, or where it does not work (see `logs/`)."""
        attach = "tmux -u -L {socket} attach-session -r -t {name}".format(**self._words)
        record = f"asciinema rec --quiet --overwrite -c {shlex.quote(attach)} {self.file}"
        # asciinema refuses to work in other locales, and writes an id for its service into its folder.
        command = f"LC_ALL=C.UTF-8 ASCIINEMA_CONFIG_HOME={self._folder} exec {record}"
        script = _START.format(**self._words, command=shlex.quote(command), width=width, height=height, none=_NONE)
        done = await self._env.exec(script, shell=True, user=self._user, timeout=_SECONDS)
        if done.ok and _NONE not in done.stdout:
            return True
        if not done.ok:
            current_attempt().write_log("recorder.txt", f"asciinema does not work here:\n{done.output.strip()}\n")
        return False

    async def stop(self) -> None:
        """End the recording; the session lives on. FileNotFoundError when nothing was recorded.

        What is kept is `recording.cast` in the attempt's folder, scrubbed.
        """
        await self._env.exec(_STOP.format(**self._words), shell=True, user=self._user, timeout=_SECONDS)
        content = await self._env.read_bytes(self.file, limit=_LIMIT)
        await self._env.exec(["rm", "-rf", self.file, self._folder], user=self._user, timeout=_SECONDS)
        # A line that was cut is no event.
        text = content[: content.rfind(b"\n") + 1].decode("utf-8", "replace")
        path = current_attempt().directory / "recording.cast"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(clean_text(text), encoding="utf-8", newline="")
