"""numpy arrays and torch tensors as addresses, shapes and strides, without importing either.

An array is described once, in a dictionary that crosses as it is: k(ind), d(type), s(hape), t
(strides in bytes), x (index of its storage), o(ffset in it, bytes), and what else its kind needs.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from .errors import CannotCross

_PLAIN_KINDS = frozenset("biufcmMSUV")
_DTYPE_NAME = re.compile(r"[<>|=]?[biufcmMSUV][0-9]{0,9}(\[[0-9]{0,9}[a-zA-Z]{1,7}\])?")


class Source:
    """An array to send: where its bytes lie, and the dictionary that describes it."""

    __slots__ = ("tree", "array", "low", "high", "item_bytes", "used_bytes")

    def __init__(self, tree: dict[str, Any], array: Any, low: int, item_bytes: int) -> None:
        """`low` is the address of the first element as indexed by zeros; it moves down for negative
        strides.
        """
        self.tree = tree
        self.array = array
        self.item_bytes = item_bytes
        used = item_bytes
        high = low + item_bytes
        for size, stride in zip(tree["s"], tree["t"]):
            if not size:
                low = high = used = 0
                break
            reach = (size - 1) * stride
            if stride < 0:
                low += reach
            else:
                high += reach
            if stride:
                used *= size
        self.low = low
        self.high = high
        self.used_bytes = used  # bytes of distinct elements, at most

    @property
    def span(self) -> int:
        """Bytes from the lowest to past the highest element."""
        return self.high - self.low

    @property
    def first(self) -> int:
        """The address of the element whose indices are all zero."""
        down = sum(
            (size - 1) * stride
            for size, stride in zip(self.tree["s"], self.tree["t"])
            if stride < 0
        )
        return self.low - down


def numpy_source(array: Any) -> Source:
    """Describes a numpy.ndarray. Raises CannotCross for dtypes that are not plain numbers, text or
    bytes.
    """
    dtype = array.dtype
    if dtype.hasobject or dtype.names is not None or dtype.subdtype is not None:
        kind = "structured" if dtype.names is not None else "object"
        raise CannotCross(
            f"a numpy array of {kind} dtype {dtype} can not cross: send plain arrays, one per field"
        )
    name = dtype.str
    if dtype.kind not in _PLAIN_KINDS or (dtype.kind == "V" and dtype.type.__module__ != "numpy"):
        raise CannotCross(
            f"a numpy array of dtype {dtype} can not cross: it is not one of numpy's plain dtypes"
        )
    address = array.__array_interface__["data"][0]
    tree: dict[str, Any] = {
        "k": "numpy",
        "d": name,
        "s": list(array.shape),
        "t": list(array.strides),
    }
    if not array.flags.writeable:
        tree["ro"] = 1
    return Source(tree, array, address, dtype.itemsize)


def torch_source(tensor: Any) -> Source:
    """Describes a torch.Tensor or Parameter. Raises CannotCross where there is no plain memory."""
    torch = sys.modules["torch"]
    tree: dict[str, Any] = {"k": "torch"}
    if tensor.is_nested:
        raise CannotCross("a nested tensor can not cross: send its parts, which .unbind() returns")
    if tensor.layout is not torch.strided:
        raise CannotCross(
            f"a tensor of layout {tensor.layout} can not cross: send its parts, or .to_dense()"
        )
    if tensor.is_quantized:
        raise CannotCross(
            f"a quantised tensor ({tensor.dtype}) can not cross: send .int_repr() and its scales"
        )
    device = tensor.device
    if device.type == "meta":
        raise CannotCross("a meta tensor can not cross: it has no data")
    if tensor.requires_grad:
        tree["g"] = 1
    if type(tensor) is torch.nn.Parameter:
        tree["p"] = 1
    plain = tensor.detach()
    if plain.is_conj():
        plain = plain.resolve_conj()
    if plain.is_neg():
        plain = plain.resolve_neg()
    if device.type != "cpu":
        tree["v"] = str(device)
        plain = plain.to("cpu")
    item = plain.element_size()
    tree["d"] = str(plain.dtype)[6:]
    tree["s"] = list(plain.shape)
    tree["t"] = [stride * item for stride in plain.stride()]
    return Source(tree, plain, plain.data_ptr(), item)


class _Memory:
    """Makes numpy look at an address."""

    __slots__ = ("__array_interface__",)

    def __init__(self, address: int, size: int) -> None:
        self.__array_interface__ = {
            "data": (address, True),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }


def copy_span(source: Source, low: int, high: int, target: memoryview) -> None:
    """Copies the bytes at the addresses [low, high), which belong to the allocation `source` lies
    in.
    """
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "ndarray"):
        numpy.frombuffer(target, numpy.uint8)[:] = numpy.asarray(_Memory(low, high - low))
        return
    torch = sys.modules["torch"]
    storage = source.array.untyped_storage()
    offset = low - storage.data_ptr()
    with torch.no_grad():
        raw = torch.empty(0, dtype=torch.uint8).set_(storage, offset, (high - low,), (1,))
        torch.frombuffer(target, dtype=torch.uint8).copy_(raw)


def copy_packed(source: Source, target: memoryview) -> None:
    """Copies the elements alone, in C order, and describes them so."""
    tree, item = source.tree, source.item_bytes
    if tree["k"] == "numpy":
        numpy = sys.modules["numpy"]
        packed = numpy.ndarray(source.array.shape, source.array.dtype, buffer=target)
        packed[...] = source.array
    else:
        torch = sys.modules["torch"]
        with torch.no_grad():
            packed = torch.frombuffer(target, dtype=source.array.dtype).view(source.array.shape)
            packed.copy_(source.array)
    strides, step = [], item
    for size in reversed(tree["s"]):
        strides.append(step)
        step *= size
    tree["t"] = strides[::-1]


class Storage:
    """The bytes that some arrays of one message share, on the side that received them."""

    __slots__ = ("buffer", "offset", "length", "_locate", "_torch")

    def __init__(self, buffer: Any, offset: int, length: int, locate: Any = None) -> None:
        """`buffer` is a bytearray or mapping; `locate` is told the address at which it begins."""
        self.buffer = buffer
        self.offset = offset
        self.length = length
        self._locate = locate
        self._torch: Any = None

    def numpy_array(self, tree: dict[str, Any]) -> Any:
        """Builds the numpy array that `tree` describes. Raises CannotCross if numpy is missing or
        `tree` wrong.
        """
        numpy = _module("numpy")
        try:
            dtype = plain_dtype(numpy, tree["d"])
            shape, strides = _dimensions(tree, dtype.itemsize, self.length)
            if 0 in shape or not dtype.itemsize:
                array = numpy.empty(shape, dtype)
            else:
                array = numpy.ndarray(shape, dtype, self.buffer, self.offset + tree["o"], strides)
                if self._locate is not None:
                    address = array.__array_interface__["data"][0]
                    self._locate(address - self.offset - tree["o"])
                    self._locate = None
        except (TypeError, ValueError, KeyError, OverflowError) as error:
            raise CannotCross(f"a numpy array that can not be rebuilt: {error}") from error
        if tree.get("ro"):
            array.flags.writeable = False
        return array

    def torch_tensor(self, tree: dict[str, Any], devices: bool) -> Any:
        """Builds the tensor that `tree` describes, outside inference mode; on its own device if
        `devices` says so.
        """
        torch = _module("torch")
        with torch.inference_mode(False), torch.no_grad():
            try:
                dtype = getattr(torch, str(tree["d"]), None)
                if not isinstance(dtype, torch.dtype):
                    raise ValueError(f"this torch {torch.__version__} has no dtype {tree['d']!r}")
                item = torch.empty(0, dtype=dtype).element_size()
                shape, strides = _dimensions(tree, item, self.length)
                if 0 in shape:
                    tensor = torch.empty(shape, dtype=dtype)
                else:
                    if self._torch is None:
                        raw = torch.frombuffer(
                            self.buffer, dtype=torch.uint8, count=self.length, offset=self.offset
                        )
                        self._torch = raw.untyped_storage()
                        if self._locate is not None:
                            self._locate(raw.data_ptr() - self.offset)
                            self._locate = None
                    if tree["o"] % item or any(stride % item for stride in strides):
                        raise ValueError(
                            "offset or strides are not multiples of the element's size"
                        )
                    steps = [stride // item for stride in strides]
                    tensor = torch.empty(0, dtype=dtype).set_(
                        self._torch, tree["o"] // item, shape, steps
                    )
                if devices and tree.get("v"):
                    tensor = tensor.to(tree["v"])
                if tree.get("p"):
                    tensor = torch.nn.Parameter(tensor, requires_grad=bool(tree.get("g")))
                elif tree.get("g"):
                    tensor.requires_grad_(True)
            except (TypeError, ValueError, KeyError, OverflowError, RuntimeError) as error:
                raise CannotCross(f"a tensor that can not be rebuilt: {error}") from error
        return tensor


def plain_dtype(numpy: Any, name: Any) -> Any:
    """The dtype of a name such as <f4. Raises ValueError for anything but numpy's plain dtypes."""
    if type(name) is not str or _DTYPE_NAME.fullmatch(name) is None:
        raise ValueError(f"{str(name)[:40]!r} is not the name of a plain dtype")
    return numpy.dtype(name)


def _dimensions(tree: dict[str, Any], item: int, length: int) -> tuple[list[int], list[int]]:
    """Shape and strides, checked to stay within a storage of `length` bytes."""
    shape, strides, offset = tree["s"], tree["t"], tree["o"]
    numbers = [*shape, *strides, offset]
    if (
        len(shape) != len(strides)
        or len(shape) > 64
        or any(type(number) is not int for number in numbers)
    ):
        raise ValueError("shape and strides are not lists of integers of one length")
    if any(size < 0 for size in shape):
        raise ValueError("a negative size")
    if 0 not in shape:
        low = offset + sum(
            (size - 1) * stride for size, stride in zip(shape, strides) if stride < 0
        )
        high = (
            offset
            + sum((size - 1) * stride for size, stride in zip(shape, strides) if stride > 0)
            + item
        )
        if low < 0 or high > length:
            raise ValueError("elements lie outside the bytes that were sent")
    return shape, strides


def _module(name: str) -> Any:
    module = sys.modules.get(name)
    if module is None:
        try:
            module = __import__(name)
        except ImportError as error:
            what = "an array" if name == "numpy" else "a tensor"
            raise CannotCross(
                f"{what} has arrived, and {name} can not be imported here: {error}"
            ) from error
    return module
