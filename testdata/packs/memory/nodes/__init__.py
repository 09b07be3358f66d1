"""Nodes that load models of a given size, compute until an event, hold bytes and let go of them; for tests."""

from .holding import MemoryHold, MemoryReport
from .loading import MemoryCompute, MemoryForget, MemoryLoad, MemoryWork, MemoryWorkBeside

NODE_CLASS_MAPPINGS = {
    node.__name__: node
    for node in (MemoryLoad, MemoryCompute, MemoryWork, MemoryWorkBeside, MemoryForget, MemoryHold, MemoryReport)
}
