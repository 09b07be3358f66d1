"""Address ranges whose pages come to the card when they are used, and go when room is needed: at a fault, never before."""

import weakref

import fakecard

from . import control

PAGE = 32 * 1024 * 1024


class ModelVBAR:
    """The addresses of one model's weights."""

    def __init__(self, size, device):
        self._device = control.get_devctx(device)
        self.max_size = size
        self.offset = 0
        self._pages = set()
        self._reference = weakref.ref(self, self._device.ranges.remove)
        self._device.ranges.append(self._reference)
        self._watermark = None  # pages from here on stay away until the next prioritize

    def alloc(self, num_bytes):
        """Addresses for so many bytes."""
        begin, self.offset = self.offset, self.offset + num_bytes
        if self.offset > self.max_size:
            raise MemoryError("no addresses left")
        return self, begin, num_bytes

    def prioritize(self):
        """Makes this the most important one."""
        self._device.ranges.remove(self._reference)
        self._device.ranges.insert(0, self._reference)
        self._watermark = None

    def loaded_size(self):
        """Bytes on the card."""
        return len(self._pages) * PAGE

    def fault(self, alloc, size):
        """Brings the pages of an address range; None where there is no room for them."""
        device = self._device
        for page in range(alloc // PAGE, (alloc + size - 1) // PAGE + 1):
            if page in self._pages:
                continue
            if self._watermark is not None and page >= self._watermark or not self._make_room():
                return None
            try:
                device.card.take(PAGE)
            except fakecard.OutOfMemoryError:
                return None
            self._pages.add(page)
        return size

    def _make_room(self):
        """Takes pages of less important models until one page more leaves both margins free."""
        device = self._device
        others = [vbar for vbar in reversed(device.vbars) if vbar is not self]
        while True:
            free, total = device.card.memory()
            own = control.lib.get_total_vram_usage(device)
            if own + PAGE <= total - control.lib.simple_vram_headroom - device.extra and free - PAGE >= control.FLOOR:
                return True
            victim = next((vbar for vbar in others if vbar._pages), None)
            if victim is None:
                return False
            victim.free_memory(PAGE)

    def free_memory(self, size_bytes):
        """Drops at least so many bytes, the last ones first; they stay away until the next prioritize."""
        freed = 0
        while self._pages and freed < size_bytes:
            self._watermark = max(self._pages)
            self._pages.remove(self._watermark)
            self._device.card.give_back(PAGE)
            freed += PAGE
        return freed

    def __del__(self):
        pages, self._pages = getattr(self, "_pages", ()), set()
        if pages:
            self._device.card.give_back(len(pages) * PAGE)


def vbar_fault(alloc):
    """Brings the pages of what `alloc` returned."""
    vbar, begin, size = alloc
    return vbar.fault(begin, size)


def vbars_reset_watermark_limits():
    """Lets pages come back."""
    for device in control.devctxs:
        for vbar in device.vbars:
            vbar._watermark = None


def vbars_analyze(device=None):
    """Bytes that could be dropped."""
    devices = control.devctxs if device is None else [control.get_devctx(device)]
    return sum(vbar.loaded_size() for each in devices for vbar in each.vbars)
