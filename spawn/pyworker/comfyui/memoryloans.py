"""What counting, capping and releasing memory touches of ComfyUI and its pager: a part of both loan books."""

from __future__ import annotations

from .loans import Loan

MEMORY = (
    Loan("comfy.model_management", "LoadedModel", "loads are not asked for", ("model",)),
    Loan("comfy.model_management", "LoadedModel.model_loaded_memory", "what models have on a card is not reported", ()),
    Loan("comfy.model_management", "LoadedModel.model_memory", "sizes of models are not reported", ()),
    Loan("comfy.model_management", "LoadedModel.model_offloaded_memory", "models are released in no particular order", ()),
    Loan("comfy.model_management", "MAX_PINNED_MEMORY", "pinned RAM is not capped"),
    Loan("comfy.model_management", "NUM_STREAMS", "cast buffers are not asked for"),
    Loan("comfy.model_management", "STREAM_AIMDO_CAST_BUFFERS", "the pager's cast buffers are not reported"),
    Loan("comfy.model_management", "STREAM_CAST_BUFFERS", "cast buffers are not reported, and stay after a prompt under the ledger"),
    Loan("comfy.model_management", "TOTAL_PINNED_MEMORY", "pinned RAM is not reported"),
    Loan("comfy.model_management", "WINDOWS", "a reading of one's own bytes is taken for the card's"),
    Loan("comfy.model_management", "current_loaded_models", "nothing is reported of models"),
    Loan("comfy.model_management", "ensure_pin_registerable", "a cap on pinned RAM does not bind everywhere", ("size",)),
    Loan("comfy.model_management", "free_memory", "parts of what is held can not be released", ("memory_required", "device", "keep_loaded")),
    Loan("comfy.model_management", "free_pins", "pins are not released on demand", ("size", "evict_active")),
    Loan("comfy.model_management", "free_registrations", "pins are released by whole buffers alone", ("shortfall", "evict_active")),
    Loan("comfy.model_management", "get_all_torch_devices", "one card alone is counted", ()),
    Loan("comfy.model_management", "get_free_memory", "cards are not read where torch does not", ("dev", "torch_free_too")),
    Loan("comfy.model_management", "get_torch_device", "cards are not counted", ()),
    Loan("comfy.model_management", "get_total_memory", "a cap on VRAM does not bind under the pager", ("dev",)),
    Loan("comfy.model_management", "pin_memory", "a cap on pinned RAM does not bind everywhere", ("tensor",)),
    Loan("comfy.model_management", "pytorch_attention_flash_attention", "which formula estimates activations is not reported", ()),
    Loan("comfy.model_management", "reset_cast_buffers", "cast buffers stay", ()),
    Loan("comfy.model_management", "soft_empty_cache", "the allocator's cache is not given back", ("force",)),
    Loan("comfy.model_management", "unload_all_models", "models are not released", ()),
    Loan("comfy.model_management", "xformers_enabled", "which formula estimates activations is not reported", ()),
    Loan("comfy.model_patcher", "ModelPatcher.is_dynamic", "nothing is reported of models", ()),
    Loan("comfy.model_patcher", "ModelPatcher.model_size", "the largest model is not known", ()),
    Loan("comfy.model_patcher", "ModelPatcher.partially_unload", "pages are not released on demand", ("device_to", "memory_to_free")),
    Loan("comfy.model_patcher", "ModelPatcher.unpin_all_weights", "pins of the ledger are not released on demand", ()),
    Loan("comfy.model_prefetch", "cleanup_prefetch_queues", "weights that were fetched ahead stay", ()),
    Loan("comfy_aimdo.control", "devctxs", "what the pager holds is not reported"),
    Loan("comfy_aimdo.control", "get_devctx", "what the pager holds is not reported of several cards", ("device_id",)),
    Loan("comfy_aimdo.control", "get_total_vram_usage", "what the pager holds is not reported", ()),
    Loan("comfy_aimdo.control", "lib", "the pager's headroom is not set"),
    Loan("comfy_aimdo.model_vbar", "vbars_reset_watermark_limits", "pages that were released may stay away", ()),
)
