"""Every class attribute that ComfyUI reads, and one that nobody knows."""


class ContractAttributes:
    """Doc strings are attributes too."""

    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {
                "text": ("STRING", {"default": "a", "multiline": True}),
                "number": ("INT", {"default": 3, "min": 0, "max": 2**64 - 1, "step": 1}),
                "choice": (["one", "two", "three"], {"default": "two"}),
            },
            "optional": {"fraction": ("FLOAT", {"default": 0.5, "min": -1.0, "max": 1.0, "round": 0.001})},
        }

    RETURN_TYPES = ("STRING", "INT")
    RETURN_NAMES = ("said", "counted")
    OUTPUT_TOOLTIPS = ("what was said", "what was counted")
    FUNCTION = "run"
    CATEGORY = "contract/attributes"
    DESCRIPTION = "Every attribute that ComfyUI reads."
    DEPRECATED = True
    EXPERIMENTAL = True
    DEV_ONLY = True
    API_NODE = False
    SEARCH_ALIASES = ["everything", "attributes"]
    NOT_IDEMPOTENT = True
    HAS_INTERMEDIATE_OUTPUT = True
    ESSENTIALS_CATEGORY = "Basic"
    NOBODY_KNOWS_THIS = {"answer": 42, "pair": (1, 2)}

    def run(self, text, number, choice, fraction=0.25):
        return (f"{text} {choice} {fraction}", number)


class _Meta(type):
    @property
    def RETURN_TYPES(cls):
        return ("STRING",)


class ContractMetaclass(metaclass=_Meta):
    """RETURN_TYPES is a property of the metaclass."""

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {}}

    FUNCTION = "run"
    CATEGORY = "contract/attributes"

    def run(self):
        return ("from a metaclass",)


NODES = {"ContractAttributes": ContractAttributes, "ContractMetaclass": ContractMetaclass}
NAMES = {"ContractAttributes": "Contract: attributes"}
