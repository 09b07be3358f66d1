"""What a worker's Python and a host's Python share: frames, messages, values and memory files.

The Go twin of the first two is the package spawn/wire. Standard library only; numpy and torch are
looked up in sys.modules and imported only for a value that needs them. Nothing here has state
outside the objects it makes.
"""

PROTOCOL = 1  # the version of frames, methods and values; both sides state it in their hello
