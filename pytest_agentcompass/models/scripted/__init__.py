"""The scripted model server: three real protocols on loopback, answers from a file; a public test double.

    python -m pytest_agentcompass model-server SCRIPT.yaml

or in a test: `with serve(Script.model_validate({...})) as server: server.base_url`.
"""

from .script import Conversation, Script, ScriptedError, Turn, load_script
from .server import ScriptedServer, serve

__all__ = ["Conversation", "Script", "ScriptedError", "ScriptedServer", "Turn", "load_script", "serve"]
