"""The Docker environment: sandboxes are containers of a Docker engine."""

from __future__ import annotations

from .provider import DockerEnvironment
from .session import DockerSession
from .sweep import remove_run, sweep

__all__ = ["DockerEnvironment", "DockerSession", "remove_run", "sweep"]
