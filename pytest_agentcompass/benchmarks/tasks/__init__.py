"""Benchmark `tasks`: a small declarative format for tasks of one's own (YAML) and questions (JSONL).

A YAML file holds a list under `tasks:`, a JSONL file one object per line; both know the same fields:

    id, instruction (or question)   what must be there, and one of verify and answer
    verify          a shell text or a list of arguments, run after the agent: status 0 is solved, 126 and 127
                    (and 5 of pytest) are errors because nothing was verified, any other status is failed
    answer (or expected)    the text, or a list of texts, that the final answer is compared with
    match           exact (default), normalized, numeric (with tolerance: a distance) or regex (the whole answer)
    answer_file     where the agent writes its answer; otherwise the harness tells what it answered
    files           path: text, or path: {content: text} or {source: local file or folder}, with executable: true
    verify_files    the same, copied in only when the agent has finished
    setup           shell commands that run once the files are there
    solution        the shell text (for a question: the answer) with which `harness=oracle` solves the task
    timeout, verify_timeout, estimated_seconds      seconds (1800 and 600 unless said)
    env, workdir, image, network, environment       hints for the sandbox, as in the request's environment section
    artifacts       paths to keep, or {source, destination, exclude}
    category, difficulty, tags, metadata
"""

from __future__ import annotations

from .benchmark import TasksBenchmark, TasksParams

__all__ = ["TasksBenchmark", "TasksParams"]
