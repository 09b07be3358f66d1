"""Whether ``comfy.cli_args`` reads the command line; only a program that starts ComfyUI says so."""

args_parsing = False


def enable_args_parsing(enable=True):
    """Let the next import of ``comfy.cli_args`` parse ``sys.argv``."""
    global args_parsing
    args_parsing = enable
