"""Values of many kinds, made and looked into."""

import io
import json
from fractions import Fraction

from .behaviour import ANY

KINDS = [
    "image",
    "mask",
    "latent",
    "audio",
    "noise mask latent",
    "video components",
    "video file",
    "mesh",
    "voxel",
    "splat",
    "file3d",
    "nested",
    "curve",
    "int",
    "huge int",
    "nan",
    "text",
    "surrogate",
    "bytes",
    "dict",
    "tuple",
    "none",
    "bfloat16",
    "numpy",
    "picture",
    "shape",
    "views",
]


class ContractShape:
    """The pack's own type; serialization.py says how it crosses."""

    def __init__(self, name, points):
        self.name = name
        self.points = points


def make(kind):
    import numpy
    import torch

    if kind == "image":
        return torch.linspace(0, 1, 2 * 8 * 8 * 3).reshape(2, 8, 8, 3)
    if kind == "mask":
        return torch.zeros(1, 8, 8)
    if kind == "latent":
        return {"samples": torch.zeros(1, 4, 2, 2)}
    if kind == "noise mask latent":
        return {"samples": torch.zeros(1, 4, 2, 2), "noise_mask": torch.ones(1, 8, 8), "batch_index": [0]}
    if kind == "audio":
        return {"waveform": torch.zeros(1, 2, 100), "sample_rate": 44100}
    if kind == "video components":
        from comfy_api.latest import InputImpl, Types

        frames = torch.linspace(0, 1, 4 * 32 * 32 * 3).reshape(4, 32, 32, 3)
        return InputImpl.VideoFromComponents(Types.VideoComponents(images=frames, audio=None, frame_rate=Fraction(24)))
    if kind == "video file":
        from comfy_api.latest import InputImpl

        buffer = io.BytesIO()
        make("video components").save_to(buffer)
        buffer.seek(0)
        return InputImpl.VideoFromFile(buffer)
    if kind == "mesh":
        from comfy_api.latest import Types

        return Types.MESH(torch.zeros(1, 4, 3), torch.tensor([[[0, 1, 2], [0, 2, 3]]]))
    if kind == "voxel":
        from comfy_api.latest import Types

        return Types.VOXEL(torch.ones(1, 2, 2, 2))
    if kind == "splat":
        from comfy_api.latest import Types

        sizes = {"positions": 3, "scales": 3, "rotations": 4, "opacities": 1}
        return Types.SPLAT(**{name: torch.ones(1, 2, size) for name, size in sizes.items()}, sh=torch.ones(1, 2, 1, 3))
    if kind == "file3d":
        from comfy_api.latest import Types

        return Types.File3D(io.BytesIO(b"solid"), "stl")
    if kind == "nested":
        from comfy.nested_tensor import NestedTensor

        return NestedTensor([torch.ones(2), torch.zeros(3)])
    if kind == "curve":
        from comfy_api.latest._input import curve_types

        return curve_types.CurveInput.from_raw([(0.0, 0.0), (0.5, 0.25), (1.0, 1.0)])
    if kind == "int":
        return -7
    if kind == "huge int":
        return 10**40
    if kind == "nan":
        return float("nan")
    if kind == "text":
        return "text \N{SNOWMAN}"
    if kind == "surrogate":
        return "lone \ud800 half"
    if kind == "bytes":
        return b"\x00\x01\xff"
    if kind == "dict":
        return {"a": 1, 2: "b", (3, 4): [5]}
    if kind == "tuple":
        return (1, (2, [3]))
    if kind == "none":
        return None
    if kind == "bfloat16":
        return torch.ones(3, dtype=torch.bfloat16)
    if kind == "numpy":
        return numpy.asfortranarray(numpy.arange(6, dtype=numpy.int16).reshape(2, 3))
    if kind == "picture":
        from PIL import Image

        return Image.new("RGBA", (3, 2), (1, 2, 3, 4))
    if kind == "shape":
        return ContractShape("triangle", torch.ones(3, 2))
    if kind == "views":
        base = torch.arange(6.0)
        return [base, base[2:4], base]
    raise ValueError(kind)


def look(value, depth=0):
    """What a value is and holds, as JSON."""
    kind = type(value).__name__
    if value is None or isinstance(value, (bool, str)):
        return {kind: ascii(value)}
    if isinstance(value, (int, float, bytes)):
        return {kind: repr(value)}
    if isinstance(value, dict):
        return {kind: [[repr(key), look(item, depth + 1)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        return {kind: [look(item, depth + 1) for item in value]}
    if kind == "NestedTensor":
        return {kind: [look(item) for item in value.tensors]}
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        total = float(value.astype("float64").sum()) if kind == "ndarray" else float(value.double().sum())
        strides = list(value.strides) if kind == "ndarray" else list(value.stride())
        return {kind: [str(value.dtype), list(value.shape), strides, total]}
    if kind == "VideoFromComponents":
        return {kind: [look(value.get_components().images), str(value.get_frame_rate())]}
    if kind == "VideoFromFile":
        return {kind: [value.get_dimensions(), value.get_frame_count()]}
    if kind == "MESH":
        return {kind: [look(value.vertices), look(value.faces), value.unlit]}
    if kind == "VOXEL":
        return {kind: look(value.data)}
    if kind == "SPLAT":
        return {kind: [look(value.positions), look(value.rotations), look(value.sh), value.counts]}
    if kind == "File3D":
        return {kind: [value.format, repr(value.get_bytes())]}
    if kind == "Image":
        return {kind: [value.mode, list(value.size), value.tobytes().hex()]}
    if kind == "ContractShape":
        return {kind: [value.name, look(value.points)]}
    if hasattr(value, "interp"):
        return {kind: [round(value.interp(0.3), 6)]}
    return {kind: None}


class ContractMakes:
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"kind": (KINDS, {})}}

    RETURN_TYPES = (ANY,)
    FUNCTION = "run"
    CATEGORY = "contract/values"

    def run(self, kind):
        return (make(kind),)


class ContractLooks:
    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"value": (ANY, {})}}

    RETURN_TYPES = ("STRING",)
    FUNCTION = "run"
    CATEGORY = "contract/values"

    def run(self, value):
        return (json.dumps(look(value)),)


NODES = {"ContractMakes": ContractMakes, "ContractLooks": ContractLooks}
