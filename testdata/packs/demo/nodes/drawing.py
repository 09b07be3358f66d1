"""A picture made with numpy and Pillow."""

from __future__ import annotations

import numpy
from PIL import Image, ImageDraw, ImageFilter


class DemoPicture:
    """Paints hills before a setting sun, the same for the same seed.

    Returns pixels as height, width and red, green, blue, each a byte.
    """

    CATEGORY = "demo"
    FUNCTION = "paint"
    RETURN_TYPES = ("PIXELS",)

    @classmethod
    def INPUT_TYPES(cls):
        return {
            "required": {
                "width": ("INT", {"default": 960, "min": 16, "max": 4096}),
                "height": ("INT", {"default": 540, "min": 16, "max": 4096}),
                "seed": ("INT", {"default": 7, "min": 0, "max": 2**32}),
            }
        }

    def paint(self, width, height, seed):
        generator = numpy.random.default_rng(seed)
        picture = Image.fromarray(sky(width, height, generator))
        sun(picture, generator)
        for depth in range(5):
            hills(picture, depth / 4, generator)
        return (numpy.asarray(picture),)


def sky(width: int, height: int, generator: numpy.random.Generator) -> numpy.ndarray:
    """A gradient from night to dusk, with stars near the top."""
    down = numpy.linspace(0, 1, height)[:, None, None]
    colours = (1 - down) * (18, 24, 66) + down * (255, 148, 92)
    pixels = numpy.broadcast_to(colours, (height, width, 3)).copy()
    stars = generator.random((height, width)) < 0.0015 * (1 - down[:, :, 0]) ** 3
    pixels[stars] = 235
    return pixels.astype(numpy.uint8)


def sun(picture: Image.Image, generator: numpy.random.Generator) -> None:
    """A disc with a glow around it, low above the horizon."""
    width, height = picture.size
    x, y, radius = generator.uniform(0.25, 0.75) * width, 0.55 * height, 0.09 * height
    light = Image.new("L", picture.size)
    draw = ImageDraw.Draw(light)
    draw.ellipse((x - 2 * radius, y - 2 * radius, x + 2 * radius, y + 2 * radius), fill=110)
    light = light.filter(ImageFilter.GaussianBlur(radius))
    ImageDraw.Draw(light).ellipse((x - radius, y - radius, x + radius, y + radius), fill=255)
    picture.paste((255, 236, 190), mask=light)


def hills(picture: Image.Image, nearness: float, generator: numpy.random.Generator) -> None:
    """One range of hills: the nearer, the lower, the darker and the rougher."""
    width, height = picture.size
    along = numpy.arange(width + 1) / width
    outline = numpy.zeros(width + 1)
    for octave in range(1, 6):
        phase, frequency = generator.uniform(0, 2 * numpy.pi), 2**octave * generator.uniform(0.7, 1)
        outline += numpy.sin(frequency * along * 3 + phase) / 2**octave
    top = height * (0.62 + 0.27 * nearness + 0.05 * outline)
    shade = tuple(int(value * (1 - 0.8 * nearness)) for value in (96, 70, 118))
    points = [(0, height), *zip(range(width + 1), top.tolist()), (width, height)]
    ImageDraw.Draw(picture).polygon(points, fill=shade)
