"""Hidden inputs, and what nodes write into the live ones."""

import json

from .behaviour import ANY


class ContractHidden:
    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {"value": (ANY, {})},
            "hidden": {
                "prompt": "PROMPT",
                "info": "EXTRA_PNGINFO",
                "me": "UNIQUE_ID",
                "token": "AUTH_TOKEN_COMFY_ORG",
                "key": "API_KEY_COMFY_ORG",
                "source": "COMFY_USAGE_SOURCE",
            },
        }

    RETURN_TYPES = ("STRING",)
    FUNCTION = "run"
    CATEGORY = "contract/hidden"

    def run(self, value, prompt, info, me, token, key, source):
        report = {
            "nodes": sorted(f"{name} {node['class_type']}" for name, node in prompt.items()),
            "info": info,
            "me": me,
            "token": token,
            "key": key,
            "source": source,
        }
        return (json.dumps(report, sort_keys=True, default=str),)


class ContractWrites:
    """Writes into PROMPT and EXTRA_PNGINFO, as samplers that choose their own seed do."""

    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {"seed": ("INT", {"default": 1})},
            "hidden": {"prompt": "PROMPT", "info": "EXTRA_PNGINFO", "me": "UNIQUE_ID"},
        }

    RETURN_TYPES = ("INT",)
    FUNCTION = "run"
    CATEGORY = "contract/hidden"

    def run(self, seed, prompt, info, me):
        prompt[me]["inputs"]["seed"] = seed + 1000
        if info is not None:
            info.setdefault("notes", []).append(f"seed of {me}")
            info.pop("remove me", None)
        return (seed + 1000,)


NODES = {"ContractHidden": ContractHidden, "ContractWrites": ContractWrites}
