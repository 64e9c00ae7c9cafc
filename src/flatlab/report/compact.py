"""Pictures small enough for the repository: fewer pixels, and a palette of colours."""

from __future__ import annotations

import io

from PIL import Image

LIMIT = 100_000  # bytes
WIDTH = 1000  # pixels; text of 9 points at 150 dots an inch stays legible
COLOURS = (128, 64, 32)  # sizes of the palettes to try


def compact(png: bytes, limit: int = LIMIT, width: int = WIDTH) -> bytes:
    """Return a picture as a PNG with a palette, if possible smaller than a limit in bytes.

    The largest palette that fits is used. If none fits, the picture is made narrower, down to half
    the width.
    """
    with Image.open(io.BytesIO(png)) as opened:
        whole = opened.convert("RGB")
    made = b""
    for share in (1.0, 0.8, 0.65, 0.5):
        columns = min(whole.width, round(width * share))
        size = (columns, max(1, round(whole.height * columns / whole.width)))
        small = whole.resize(size, Image.Resampling.LANCZOS)
        for colours in COLOURS:
            # Without dithering flat areas stay flat, and compress well.
            palette = small.quantize(colours, dither=Image.Dither.NONE)
            buffer = io.BytesIO()
            palette.save(buffer, format="PNG", optimize=True)
            made = buffer.getvalue()
            if len(made) <= limit:
                return made
    return made
