"""Processor seconds of a command and of all processes that it starts, also JVMs and workers that outlive it shortly.

`python -m tools.processor_time make test`. The shell's `time` leaves out processes whose parent did not wait for them,
which take most of the time of a test on Spark. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36


def main(command: list[str]) -> int:
    """Run `command`, wait for all its descendants, and print their times; returns the exit status of `command`."""
    # A process that loses its parent becomes a child of this one.
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this system gives orphans to nobody but init")
    began = time.monotonic()
    code = subprocess.run(command, check=False).returncode
    took = time.monotonic() - began
    try:
        while True:
            os.wait()
    except ChildProcessError:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = used.ru_utime + used.ru_stime
    print(f"{took:.0f} s, and {total:.0f} processor seconds, {used.ru_stime:.0f} of them in the kernel")
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
