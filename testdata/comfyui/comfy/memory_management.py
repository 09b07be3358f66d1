"""Which of the two memory managers runs; a program that starts ComfyUI decides it."""

aimdo_enabled = False
