"""Names of instance images, as the official harness expects them."""

from __future__ import annotations

__all__ = ["DEFAULT_NAMESPACE", "image_name"]

DEFAULT_NAMESPACE = "swebench"


def image_name(instance_id: str, row_image: str = "", namespace: str | None = None, arch: str = "x86_64") -> str:
    """Return the image of an instance: the row's own, unless *namespace* says otherwise.

    Registries do not take two underscores in a row, so names with a namespace write them `_1776_`; images
    that were built locally (an empty namespace) keep them. Names are lower case.
    """
    if row_image and namespace is None:
        return row_image
    key = f"sweb.eval.{arch}.{instance_id.lower()}:latest"
    space = DEFAULT_NAMESPACE if namespace is None else namespace.strip("/")
    return f"{space}/{key.replace('__', '_1776_')}" if space else key
