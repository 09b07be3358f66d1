"""Starting the pager, and the margin that it keeps.

As in the package of ComfyUI 0.30 the margin is set through the native library alone.
"""

import fakecard

lib = None
devctxs = []

FLOOR = 256 * 1024 * 1024  # stays free for others, whatever the margin


class _Library:
    """What the native library exports."""

    def __init__(self):
        self.simple_vram_headroom = FLOOR

    def set_simple_vram_headroom(self, headroom):
        self.simple_vram_headroom = headroom

    def set_nvml_pressure(self, wanted):
        pass

    def get_total_vram_usage(self, device):
        return sum(vbar.loaded_size() for vbar in device.vbars)


class _Device:
    """One card and its address ranges, the most important first."""

    def __init__(self, index, extra):
        self.index = index
        self.card = fakecard.visible()[index]
        self.extra = extra
        self.ranges = []  # weak references

    @property
    def vbars(self):
        return [vbar for vbar in (reference() for reference in self.ranges) if vbar is not None]


def init(implementation=None, simple_vram_headroom=None, nvml_pressure=False):
    """Loads the library."""
    global lib
    lib = lib or _Library()
    if simple_vram_headroom is not None:
        lib.set_simple_vram_headroom(int(simple_vram_headroom))
    return True


def init_devices(device_ids):
    """Starts on cards: numbers, or pairs with a margin for each. False without a card."""
    global devctxs
    pairs = [each if isinstance(each, tuple) else (each, 0) for each in device_ids]
    if lib is None or not pairs or max(index for index, _ in pairs) >= len(fakecard.visible()):
        return False
    devctxs = [_Device(index, extra) for index, extra in pairs]
    return True


def init_device(device_id, extra_vram_headroom=0):
    """Starts on one card."""
    return init_devices([(device_id, extra_vram_headroom)])


def get_devctx(device_id):
    """The handle of a card. Raises RuntimeError where none was started."""
    for device in devctxs:
        if device.index == device_id:
            return device
    raise RuntimeError(f"device {device_id} is not initialized")


def get_total_vram_usage():
    """Bytes of pages on all cards."""
    return sum(lib.get_total_vram_usage(device) for device in devctxs)


def hooked_take(device_id, size):
    """What torch's own allocations come to: pages make way for them, the least important first, and nothing refuses them
    but the card."""
    device = get_devctx(device_id)
    while device.card.memory()[0] < size:
        victim = next((vbar for vbar in reversed(device.vbars) if vbar.loaded_size()), None)
        if victim is None:
            break
        victim.free_memory(size - device.card.memory()[0])
    device.card.take(size)
