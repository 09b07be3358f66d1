"""Collects the nodes of the modules beside it."""

from . import (
    answers,
    attributes,
    behaviour,
    calls,
    changes,
    errors,
    expansion,
    hidden,
    imports,
    lazy,
    lists,
    models,
    progress,
    routes,
    state,
    v3nodes,
    validation,
    values,
)

NODE_CLASS_MAPPINGS = {}
NODE_DISPLAY_NAME_MAPPINGS = {}
for _module in (
    answers,
    attributes,
    behaviour,
    calls,
    changes,
    errors,
    expansion,
    hidden,
    imports,
    lazy,
    lists,
    models,
    progress,
    routes,
    state,
    v3nodes,
    validation,
    values,
):
    NODE_CLASS_MAPPINGS.update(_module.NODES)
    NODE_DISPLAY_NAME_MAPPINGS.update(getattr(_module, "NAMES", {}))
