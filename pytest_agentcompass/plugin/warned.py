"""Texts of warnings, as clean as those of reports."""

from __future__ import annotations

import warnings

import pytest

from ..redaction import clean_text

__all__: list[str] = []


@pytest.hookimpl(tryfirst=True)  # before a worker sends it
def pytest_warning_recorded(warning_message: warnings.WarningMessage) -> None:
    """Make the text valid and scrub it: a lone surrogate kills the worker, whose tests are lost."""
    text = str(warning_message.message)
    if (clean := clean_text(text)) != text:
        warning_message.message = clean
