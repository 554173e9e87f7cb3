"""Says whether `varve inspect --trace` takes the same memory for a long trace as for a short one.

usage: peak_memory.py VARVE SHORT LONG
"""
import resource
import subprocess
import sys

ROOM_KIB = 8192  # of the allocator, and of the pages that a trace of any length holds at once


def peak_kib(trace):
    """Of the largest child so far: the short trace comes first."""
    subprocess.run([sys.argv[1], "inspect", "--trace", trace], stdout=subprocess.DEVNULL, check=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


short, long = peak_kib(sys.argv[2]), peak_kib(sys.argv[3])
print("bounded" if long - short < ROOM_KIB else f"{short} KiB, then {long} KiB")
