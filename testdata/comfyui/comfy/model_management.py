"""Interruption, and the process-wide figures of memory, of a ComfyUI on the processor."""

import enum
import threading

from comfy.cli_args import args


class VRAMState(enum.Enum):
    """How much of the models may lie on the card."""

    DISABLED = 0
    NO_VRAM = 1
    LOW_VRAM = 2
    NORMAL_VRAM = 3
    HIGH_VRAM = 4
    SHARED = 5


class CPUState(enum.Enum):
    """What computes."""

    GPU = 0
    CPU = 1
    MPS = 2


cpu_state = CPUState.CPU
vram_state = VRAMState.DISABLED

EXTRA_RESERVED_VRAM = 400 * 1024 * 1024
if args.reserve_vram is not None:
    EXTRA_RESERVED_VRAM = args.reserve_vram * 1024 * 1024 * 1024

MAX_PINNED_MEMORY = -1


def extra_reserved_memory():
    """Bytes of the card that are left alone."""
    return EXTRA_RESERVED_VRAM


def minimum_inference_memory():
    """Bytes that computing needs besides weights."""
    return (1024 * 1024 * 1024) * 0.8 + extra_reserved_memory()


class InterruptProcessingException(BaseException):
    """Ends a node when the user cancels; no ``except Exception`` of a node stops it."""


interrupt_processing_mutex = threading.RLock()
interrupt_processing = False


def interrupt_current_processing(value=True):
    """Ask whatever computes to stop, or take that back."""
    global interrupt_processing
    with interrupt_processing_mutex:
        interrupt_processing = value


def processing_interrupted():
    """Whether stopping was asked for; changes nothing."""
    with interrupt_processing_mutex:
        return interrupt_processing


def throw_exception_if_processing_interrupted():
    """Raise when stopping was asked for, and forget that it was."""
    global interrupt_processing
    with interrupt_processing_mutex:
        if interrupt_processing:
            interrupt_processing = False
            raise InterruptProcessingException()
