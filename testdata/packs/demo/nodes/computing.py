"""Long work that the user can stop."""

from __future__ import annotations

import comfy.model_management
import comfy.utils
import numpy


class DemoEstimatePi:
    """Throws darts at a quarter of a circle, a million in each round."""

    CATEGORY = "demo"
    FUNCTION = "estimate"
    RETURN_TYPES = ("FLOAT", "INT")
    RETURN_NAMES = ("pi", "darts")

    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {
                "rounds": ("INT", {"default": 30, "min": 1, "max": 1_000_000}),
                "seed": ("INT", {"default": 0, "min": 0, "max": 2**63}),
            }
        }

    def estimate(self, rounds, seed):
        generator = numpy.random.default_rng(seed)
        bar = comfy.utils.ProgressBar(rounds)
        darts, inside = 1_000_000, 0
        for _ in range(rounds):
            comfy.model_management.throw_exception_if_processing_interrupted()
            x, y = generator.random((2, darts), dtype=numpy.float32)
            inside += int(numpy.count_nonzero(x * x + y * y <= 1))
            bar.update(1)
        return (4 * inside / (rounds * darts), rounds * darts)
