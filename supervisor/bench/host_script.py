"""A host that measures. It reads commands, one JSON object a line, and answers each with one."""

import json
import statistics
import sys
import time

import comfy_supervisor

comfyui, environment = sys.argv[1:]
session = comfy_supervisor.connect(start=False, comfyui=comfyui, name="comfy-supervisor bench")


def call(node, value):
    return session.call(environment, node, value=value)[0]


def timed(node, value):
    begin = time.perf_counter()
    call(node, value)
    return time.perf_counter() - begin


def median(rounds, node, value):
    timed(node, value)  # files for the next ones to fill again
    return statistics.median(timed(node, value) for _ in range(rounds))


def start():
    """Seconds of the first call of a fresh worker."""
    session.stop(environment)
    return {"seconds": timed("BenchNoop", 1)}


def latency(calls):
    for _ in range(min(calls, 200)):
        call("BenchNoop", 1)
    samples = sorted(timed("BenchNoop", 1) for _ in range(calls))
    at = lambda share: samples[min(len(samples) - 1, int(len(samples) * share))]
    return {"p50": at(0.5), "p99": at(0.99), "least": samples[0]}


def arrays(size, rounds):
    import numpy

    ours = numpy.ones(size, dtype=numpy.uint8)
    theirs = call("BenchMake", size)  # lies in a memory file
    return {
        "in": median(rounds, "BenchTake", ours),
        "out": median(rounds, "BenchMake", size),
        "both": median(rounds, "BenchAddOne", ours),
        "by_reference": median(rounds, "BenchPass", theirs),
    }


for line in sys.stdin:
    command = json.loads(line)
    answer = {"start": start, "latency": latency, "arrays": arrays}[command.pop("do")](**command)
    print(json.dumps(answer), flush=True)
session.close()
