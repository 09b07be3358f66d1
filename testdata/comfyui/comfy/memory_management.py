"""Which of the two memory managers runs (a program that starts ComfyUI decides it), and the cache of outputs in RAM."""

aimdo_enabled = False

extra_ram_release_callback = None
RAM_CACHE_HEADROOM = 0  # bytes of RAM that are to stay free


def set_ram_cache_release_state(callback, headroom):
    """Sets who frees cached outputs, and how much RAM is to stay free."""
    global extra_ram_release_callback, RAM_CACHE_HEADROOM
    extra_ram_release_callback = callback
    RAM_CACHE_HEADROOM = max(0, int(headroom))


def extra_ram_release(target, free_active=False):
    """Frees cached outputs until so many bytes of RAM are free; returns how many it freed."""
    if extra_ram_release_callback is None:
        return 0
    return extra_ram_release_callback(target, free_active=free_active)
