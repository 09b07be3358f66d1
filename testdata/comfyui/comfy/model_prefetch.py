"""Weights that are fetched ahead of their use; nothing here does."""

PREFETCH_QUEUES = []


def cleanup_prefetch_queues():
    """Forgets what was fetched ahead."""
    PREFETCH_QUEUES.clear()
