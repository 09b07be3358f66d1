"""Nodes that show what a worker does: pictures, progress, errors, side by side, long work."""

from .computing import DemoEstimatePi
from .drawing import DemoPicture
from .reporting import DemoProgress, DemoReadFile, DemoReport
from .waiting import DemoWait

NODE_CLASS_MAPPINGS = {
    node.__name__: node
    for node in (DemoReport, DemoPicture, DemoProgress, DemoReadFile, DemoWait, DemoEstimatePi)
}

NODE_DISPLAY_NAME_MAPPINGS = {
    "DemoReport": "Where am I?",
    "DemoPicture": "Paint a landscape",
    "DemoProgress": "Count",
    "DemoReadFile": "Read a text file",
    "DemoWait": "Wait beside others",
    "DemoEstimatePi": "Estimate pi",
}
