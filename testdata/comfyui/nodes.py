"""The core nodes' module, without the core nodes."""

import comfy.model_management

MAX_RESOLUTION = 16384

NODE_CLASS_MAPPINGS = {}
NODE_DISPLAY_NAME_MAPPINGS = {}


def before_node_execution():
    """Called by the executor before each node."""
    comfy.model_management.throw_exception_if_processing_interrupted()


def interrupt_processing(value=True):
    """Ask whatever computes to stop, or take that back."""
    comfy.model_management.interrupt_current_processing(value)
