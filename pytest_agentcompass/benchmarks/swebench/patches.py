"""Model patches as bytes: what they touch, how they are applied, and how they are taken from a sandbox."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import SandboxError
from .git import GIT_SETTINGS, git

if TYPE_CHECKING:
    from ...components.environment import EnvironmentSession

__all__ = [
    "Applied",
    "FilePatch",
    "apply_patch",
    "file_patches",
    "is_empty",
    "lacks_binary_data",
    "take_patch",
    "with_final_newline",
    "write_tree",
]

_TRIES = (
    ("git", "apply", "--verbose"),
    ("git", "apply", "--verbose", "--3way"),
    ("git", "apply", "--verbose", "--reject"),
    ("patch", "--batch", "--forward", "--fuzz=5", "-p1", "-i"),
)
_SECONDS = 300.0
_SHOWN = 4000
_HEADER = re.compile(rb'diff --git "?a/.+ "?(b/.+)$')
_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
#: What tools leave behind. Only files that were not there at the start are left out, committed or not.
_PRODUCTS = (
    "__pycache__/", "*.py[cod]", "*$py.class", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/", ".hypothesis/",
    ".tox/", ".nox/", "/.venv/", "/venv/", "*.egg-info/", ".eggs/", "/build/", "/dist/", ".coverage", ".coverage.*",
    "/htmlcov/", "node_modules/", "*.o", "*.so", "*.orig", "*.rej", ".DS_Store",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FilePatch:
    """One file of a patch: its path, the added lines, and what happens to it."""

    path: str
    added: tuple[bytes, ...] = ()
    is_new: bool = False
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class Applied:
    """How a patch was applied: the *command* that did it (None: none did), and what the tries printed.

    *conflicts*: files in which an earlier three-way try left conflict marks; the official harness grades
    such a tree as it is.
    """

    command: str | None
    output: str = ""
    conflicts: tuple[str, ...] = ()


def is_empty(patch: bytes) -> bool:
    """Whether there is nothing but blanks."""
    return not patch.strip()


def with_final_newline(patch: bytes) -> bytes:
    """Return the patch with its last line ended: without it git calls the patch corrupt."""
    return patch if patch.endswith(b"\n") or not patch else patch + b"\n"


def file_patches(patch: bytes) -> list[FilePatch]:
    """Return the files that a unified diff touches, with the lines it adds."""
    reader = _DiffReader()
    for line in patch.replace(b"\r\n", b"\n").split(b"\n"):
        reader.take(line)
    reader.finish()
    return reader.found


class _DiffReader:
    """Reads a diff line by line; hunks are counted, so what stands inside of one is never taken for a header."""

    def __init__(self) -> None:
        self.found: list[FilePatch] = []
        self._left = [0, 0]  # lines of the current hunk that are still to come: old, new
        self._start("")

    def _start(self, path: str) -> None:
        self._path, self._new, self._deleted, self._named = path, False, False, False
        self._added: list[bytes] = []

    def finish(self) -> None:
        """End the current file."""
        if self._path:
            self.found.append(FilePatch(self._path, tuple(self._added), self._new, self._deleted))
        self._start("")

    def take(self, line: bytes) -> None:
        """Read the next line."""
        if self._left[0] > 0 or self._left[1] > 0:
            self._body(line)
        elif hunk := _HUNK.match(line):
            self._left = [int(count) if count else 1 for count in hunk.groups()]
        elif header := _HEADER.match(line):
            self.finish()
            self._start(_path(header[1]))
        else:
            self._head(line)

    def _body(self, line: bytes) -> None:
        kind = line[:1]
        if kind == b"+":
            self._added.append(line[1:])
        self._left[0] -= kind in (b"-", b" ", b"")
        self._left[1] -= kind in (b"+", b" ", b"")

    def _head(self, line: bytes) -> None:
        if line.startswith(b"--- "):
            if self._named:  # a file without a `diff --git` line
                self.finish()
            self._named = True
            self._path = _path(line[4:]) if not line.startswith(b"--- /dev/null") else self._path
        elif line.startswith(b"+++ ") and not line.startswith(b"+++ /dev/null"):
            self._path = _path(line[4:])
        elif line.startswith(b"rename to "):
            self._path = _path(line[10:])
        elif line.startswith(b"new file mode"):
            self._new = True
        elif line.startswith(b"deleted file mode"):
            self._deleted = True


def _path(name: bytes) -> str:
    text = name.split(b"\t")[0].strip().strip(b'"').decode("utf-8", "replace")
    return text[2:] if text.startswith(("a/", "b/")) else text


def lacks_binary_data(patch: bytes) -> list[str]:
    """Return the lines of binary changes without data (`git diff` without `--binary`): nobody can apply them."""
    return [
        line.decode("utf-8", "replace")
        for line in patch.split(b"\n")
        if line.startswith(b"Binary files ") and line.rstrip().endswith(b" differ")
    ]


async def apply_patch(env: EnvironmentSession, patch: bytes, workdir: str | None) -> Applied:
    """Apply *patch* with the official chain of tries and say which of them did it.

    Between tries the tree is made clean again, since `--reject` leaves half of a patch behind. A patch
    that every command refuses and that yet is wholly there (it can be taken back) counts as applied.
    """
    path = f"{env.scratch_dir}/patch.diff"
    await env.write_bytes(path, with_final_newline(patch))
    output = []
    for number, command in enumerate(_TRIES):
        if number:
            await _clean(env, workdir)
        ended, text = await _try(env, [*command, path], workdir)
        output.append(f"$ {' '.join(command)}\n{text[-_SHOWN:]}")
        if ended:
            return Applied(" ".join(command), "\n".join(output), await _conflicts(env, workdir) if number > 1 else ())
    there, _ = await _try(env, ["git", "apply", "--check", "--reverse", path], workdir)
    return Applied("git apply --check --reverse" if there else None, "\n".join(output))


async def _try(env: EnvironmentSession, command: list[str], workdir: str | None) -> tuple[bool, str]:
    try:
        done = await env.exec(command, cwd=workdir, env=GIT_SETTINGS, timeout=_SECONDS)
    except SandboxError as error:
        if command[0] == "patch" and type(error) is SandboxError:  # an image without the program
            return False, f"patch cannot be run in this sandbox: {error.message}"
        raise
    return done.ok, done.output


async def _conflicts(env: EnvironmentSession, workdir: str | None) -> tuple[str, ...]:
    text = await git(env, workdir, ["ls-files", "--unmerged"])
    return tuple(sorted({line.partition("\t")[2] for line in text.splitlines()}))


async def _clean(env: EnvironmentSession, workdir: str | None) -> None:
    await env.exec(["git", "checkout", "--", "."], cwd=workdir, env=GIT_SETTINGS, timeout=_SECONDS)
    await env.exec(["git", "clean", "-fd"], cwd=workdir, env=GIT_SETTINGS, timeout=_SECONDS)


async def write_tree(env: EnvironmentSession, workdir: str | None, start: str = "HEAD") -> str:
    """Return the id of the tree that the working directory is now, untracked files included.

    Made with an index of our own, so the repository's index stays as it is. Build products that *start* does
    not hold are left out. SandboxError tells what git said.
    """
    index = f"{env.scratch_dir}/agentcompass-index"
    products = f"{env.scratch_dir}/agentcompass-ignore"
    await env.write_text(products, "\n".join(_PRODUCTS) + "\n")
    await env.exec(["rm", "-f", "--", index], cwd=workdir, timeout=60)
    variables = {"GIT_INDEX_FILE": index}
    await git(env, workdir, ["read-tree", start], variables)
    add = ["-c", f"core.excludesFile={products}", "add", "-A", "--", "."]
    await git(env, workdir, add, variables)
    return (await git(env, workdir, ["write-tree"], variables)).strip()


async def take_patch(env: EnvironmentSession, workdir: str | None, start: str, limit: int) -> bytes:
    """Return the changes since the tree or commit *start* as a binary-safe diff.

    SandboxError when git cannot make it, or when it is over *limit* bytes.
    """
    end = await write_tree(env, workdir, start)
    path = f"{env.scratch_dir}/agentcompass.patch"
    options = [
        "--binary",
        "--full-index",
        "--no-renames",
        "--no-ext-diff",
        "--no-textconv",
        "--no-color",
        "--ignore-submodules=none",
    ]
    prefixes = ["--src-prefix=a/", "--dst-prefix=b/", f"--output={path}"]
    await git(env, workdir, ["diff", *options, *prefixes, start, end])
    patch = await env.read_bytes(path, limit=limit + 1)
    if len(patch) > limit:
        raise SandboxError(f"the patch is larger than the limit of {limit} bytes (execution.artifact_limit_bytes)")
    return patch
