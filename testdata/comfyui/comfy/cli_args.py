"""ComfyUI's flags, as far as anything reads them away from its server: names, types and defaults."""

import argparse
import enum

import comfy.options

LOG_LEVELS = ("DEBUG", "DETAIL", "INFO", "WARNING", "ERROR", "CRITICAL")


class LatentPreviewMethod(enum.Enum):
    """How samplers draw previews."""

    NoPreviews = "none"
    Auto = "auto"
    Latent2RGB = "latent2rgb"
    TAESD = "taesd"

    @classmethod
    def from_string(cls, value):
        """The member of that value, or None."""
        return next((member for member in cls if member.value == value), None)


class PerformanceFeature(enum.Enum):
    """What ``--fast`` can turn on one by one."""

    Fp16Accumulation = "fp16_accumulation"
    Fp8MatrixMultiplication = "fp8_matrix_mult"
    CublasOps = "cublas_ops"
    AutoTune = "autotune"


class VerboseAction(argparse.Action):
    """Collects ``--verbose [LEVEL [FILE]]``, which may be repeated, as (level, file or None)."""

    def __call__(self, parser, namespace, values, option_string=None):
        if not values:
            output = ("DEBUG", None)
        elif values[0] in LOG_LEVELS and len(values) <= 2:
            output = (values[0], values[1] if len(values) == 2 else None)
        else:
            parser.error(f"{option_string} takes nothing, a LEVEL, or a LEVEL and a FILE")
        setattr(namespace, self.dest, [*getattr(namespace, self.dest, []), output])


def get_console_log_level(outputs):
    """The most talkative level among the outputs that have no file."""
    levels = [level for level, path in outputs if path is None]
    return min(levels, key=LOG_LEVELS.index, default="INFO")


def get_file_log_outputs(outputs):
    """The outputs that have a file."""
    return [(level, path) for level, path in outputs if path is not None]


_SWITCHES = """
    --cuda-malloc --disable-cuda-malloc --force-fp32 --force-fp16 --fp32-unet --fp64-unet --bf16-unet --fp16-unet
    --fp8_e4m3fn-unet --fp8_e5m2-unet --fp8_e8m0fnu-unet --fp16-vae --fp32-vae --bf16-vae --cpu-vae
    --fp8_e4m3fn-text-enc --fp8_e5m2-text-enc --fp16-text-enc --fp32-text-enc --bf16-text-enc --fp16-intermediates
    --force-channels-last --supports-fp8-compute --enable-triton-backend --disable-triton-backend --cache-classic
    --cache-none --high-ram --use-split-cross-attention --use-quad-cross-attention --use-pytorch-cross-attention
    --use-sage-attention --use-flash-attention --disable-xformers --force-upcast-attention --dont-upcast-attention
    --gpu-only --highvram --lowvram --novram --cpu --disable-nvml-pressure --disable-async-offload
    --disable-dynamic-vram --enable-dynamic-vram --fast-disk --force-non-blocking --disable-smart-memory
    --deterministic --disable-pinned-memory --mmap-torch-files --disable-mmap --disable-metadata
    --disable-all-custom-nodes --disable-api-nodes --log-stdout
"""

parser = argparse.ArgumentParser()
for _switch in _SWITCHES.split():
    parser.add_argument(_switch, action="store_true")
for _folder in ("base", "output", "temp", "input", "user", "models"):
    parser.add_argument(f"--{_folder}-directory", type=str, default=None)
parser.add_argument(
    "--extra-model-paths-config", type=str, nargs="+", action="append", default=None
)
parser.add_argument("--listen", type=str, nargs="?", const="0.0.0.0,::", default="127.0.0.1")
parser.add_argument("--port", type=int, default=8188)
parser.add_argument("--cuda-device", type=str, default=None)
parser.add_argument("--default-device", type=int, default=None)
parser.add_argument("--directml", type=int, nargs="?", const=-1)
parser.add_argument("--oneapi-device-selector", type=str, default=None)
parser.add_argument(
    "--preview-method", type=LatentPreviewMethod, default=LatentPreviewMethod.NoPreviews
)
parser.add_argument("--preview-size", type=int, default=512)
parser.add_argument("--cache-ram", type=float, nargs="*", default=[])
parser.add_argument("--cache-lru", type=int, default=0)
parser.add_argument("--reserve-vram", type=float, default=None)
parser.add_argument("--vram-headroom", type=float, default=0)
parser.add_argument("--async-offload", type=int, nargs="?", const=2, default=None)
parser.add_argument(
    "--default-hashing-function", choices=["md5", "sha1", "sha256", "sha512"], default="sha256"
)
parser.add_argument("--fast", type=PerformanceFeature, nargs="*")
parser.add_argument("--whitelist-custom-nodes", type=str, nargs="+", default=[])
parser.add_argument("--verbose", action=VerboseAction, nargs="*", default=[])
parser.add_argument("--comfy-api-base", type=str, default="https://api.comfy.org")

args = parser.parse_args(None if comfy.options.args_parsing else [])
if args.high_ram:
    args.cache_classic = True
if args.force_fp16:
    args.fp16_unet = True
args.fast = set(PerformanceFeature) if args.fast == [] else set(args.fast or ())


def enables_dynamic_vram():
    """Whether the flags leave the pager on."""
    if args.enable_dynamic_vram:
        return True
    return not (
        args.disable_dynamic_vram or args.highvram or args.gpu_only or args.novram or args.cpu
    )
