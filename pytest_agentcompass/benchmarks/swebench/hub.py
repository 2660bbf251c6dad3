"""The hub datasets of SWE-bench and their short names."""

from __future__ import annotations

from pathlib import Path

from ...components import hub as _hub
from ...components.hub import Hub, cached_parquet

__all__ = ["ALIASES", "cache_dir", "cached_dataset", "cached_parquet", "is_hub_name"]

ALIASES = {
    "verified": "SWE-bench/SWE-bench_Verified",
    "lite": "SWE-bench/SWE-bench_Lite",
    "full": "SWE-bench/SWE-bench",
    "multilingual": "SWE-bench/SWE-bench_Multilingual",
    "multimodal": "SWE-bench/SWE-bench_Multimodal",
}


def is_hub_name(dataset: str) -> bool:
    """Whether *dataset* names a dataset of the hub (an alias or `owner/name`), not a local path."""
    return dataset.lower() in ALIASES or _hub.is_hub_name(dataset)


def cache_dir() -> Path:
    """Return the folder of converted datasets, below the user's cache folder."""
    return _hub.cache_dir("swebench")


def cached_dataset(
    dataset: str, split: str, revision: str, cache: Path, *, refresh: bool = False, hub: Hub | None = None
) -> Path:
    """Return the JSON lines of a dataset's *split*, an alias or a hub name; see `components.hub.cached_dataset`."""
    name = ALIASES.get(dataset.lower(), dataset)
    return _hub.cached_dataset(name, split, revision, cache, refresh=refresh, hub=hub)
