"""The ComfyUI release whose shape this tree has."""

__version__ = "0.30.0"
