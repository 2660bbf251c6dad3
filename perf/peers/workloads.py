"""The workloads as files: tasks in our format, and one container task in both Terminal-Bench formats."""

from __future__ import annotations

from pathlib import Path

__all__ = ["write_answers", "write_commands", "write_tb1", "write_tb2"]

_TEST = "def test_answer():\n    assert open('/app/answer').read() == 'done\\n'\n"
_SOLUTION = "#!/bin/bash\necho done > /app/answer\n"
_COMPOSE = """services:
  client:
    build: {dockerfile: Dockerfile}
    image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}
    container_name: ${T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME}
    command: ["sh", "-c", "sleep infinity"]
    environment: ["TEST_DIR=${T_BENCH_TEST_DIR}"]
    volumes:
      - ${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}
      - ${T_BENCH_TASK_AGENT_LOGS_PATH}:${T_BENCH_CONTAINER_AGENT_LOGS_PATH}
"""
_TASK_YAML = """instruction: Write the word done to /app/answer.
difficulty: easy
parser_name: pytest
max_agent_timeout_sec: 60
max_test_timeout_sec: 60
disable_asciinema: true
"""
_TASK_TOML = """version = "1.0"
[agent]
timeout_sec = 60.0
[verifier]
timeout_sec = 60.0
[environment]
cpus = 1
memory_mb = 512
"""
_TEST_SH = """#!/bin/bash
cd /app
if python3 -m pytest /tests/test_outputs.py -rA -p no:cacheprovider; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def write_answers(path: Path, count: int) -> None:
    """Write *count* tasks that are graded by their answer alone."""
    rows = [f'{{"id": "t{number}", "question": "say done", "answer": "done"}}\n' for number in range(count)]
    path.write_text("".join(rows), encoding="utf-8")


def write_commands(path: Path, count: int) -> None:
    """Write *count* tasks that are graded by one command."""
    rows = [
        f'{{"id": "t{number}", "question": "write it", "verify": "test -f answer", "solution": "echo done > answer"}}\n'
        for number in range(count)
    ]
    path.write_text("".join(rows), encoding="utf-8")


def write_tb1(folder: Path, image: str) -> None:
    """Write the container task in the format of Terminal-Bench 1."""
    _write(
        folder,
        {
            "task.yaml": _TASK_YAML,
            "Dockerfile": f"FROM {image}\nWORKDIR /app\n",
            "docker-compose.yaml": _COMPOSE,
            "solution.sh": _SOLUTION,
            "run-tests.sh": "#!/bin/bash\ncd /app\npython3 -m pytest $TEST_DIR/test_outputs.py -rA\n",
            "tests/test_outputs.py": _TEST,
        },
    )


def write_tb2(folder: Path, image: str) -> None:
    """Write the same container task in the format of Terminal-Bench 2 (Harbor)."""
    _write(
        folder,
        {
            "task.toml": _TASK_TOML,
            "instruction.md": "Write the word done to /app/answer.\n",
            "environment/Dockerfile": f"FROM {image}\nWORKDIR /app\n",
            "solution/solve.sh": _SOLUTION,
            "tests/test.sh": _TEST_SH,
            "tests/test_outputs.py": _TEST,
        },
    )
