import os
import sys

print("exiting at import", file=sys.stderr, flush=True)
os._exit(7)
