"""Coverage-guided fuzzing: libFuzzer (by atheris) changes frames to reach new lines of the decoder.

`python -m fuzz.guided --runs N [--seed S]`, in `make test-fuzz` after the others. Failing inputs are kept in
output/fuzz. It starts from the frames of `fuzz.frames_of`. libFuzzer needs a process of its own: it ends its process,
and it sees only modules that it instrumented at their import.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

KINDS = 3
KEPT = Path("output/fuzz")
LONGEST_BYTES, MOST_MIB, MOST_SECONDS = 1 << 16, 2_048, 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz.guided", description=__doc__)
    parser.add_argument("--runs", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=None, help="repeats an earlier run")
    given = parser.parse_args()
    try:
        import atheris  # noqa: F401
    except ImportError:
        print("guided: not run, there is no atheris for this Python or system")
        return 0
    KEPT.mkdir(parents=True, exist_ok=True)
    seed = (given.seed if given.seed is not None else secrets.randbelow(1 << 32)) or 1  # 0 is libFuzzer's own choice
    with tempfile.TemporaryDirectory(prefix="tidegate-fuzz-") as folder:
        frames = seeds(Path(folder))
        limits = [f"-max_len={LONGEST_BYTES}", f"-rss_limit_mb={MOST_MIB}", f"-timeout={MOST_SECONDS}"]
        told = [f"-artifact_prefix={KEPT}/", f"-runs={given.runs}", f"-seed={seed}", "-print_final_stats=1"]
        command = [sys.executable, "-c", "from fuzz.guided import guide; guide()", *limits, *told, folder]
        done = subprocess.run(command, env=os.environ, stderr=subprocess.PIPE, text=True, check=False)
    print(f"guided: {given.runs:,} runs from {frames} frames, seed {seed}: {_reached(done.stderr)}")
    if done.returncode:
        print(done.stderr[-4_000:], file=sys.stderr)
    return done.returncode


def seeds(folder: Path) -> int:
    """Write the frames of pipelines, each behind its kind; returns their number."""
    from fuzz.frames_of import written

    for number, one in enumerate(written()):
        (folder / f"{number:04}").write_bytes(bytes([one.kind - 1]) + one.frame)
    return len(written())


def guide() -> None:
    """Run libFuzzer in this process, which it ends."""
    import atheris

    decoders = ("state.frames", "state.delta", "state.without_repeats", "columns.words")
    with atheris.instrument_imports(include=[f"tidegate.kernel.{name}" for name in decoders]):
        from tidegate.kernel.state import frames

    import pyarrow as pa

    from fuzz.damage import sealed
    from tidegate.errors import CheckpointError

    def decode(data: bytes) -> None:
        """A frame with a right checksum is refused, or decodes into an object and tables."""
        if not data:
            return
        try:
            meta, tables = frames.decode(1 + data[0] % KINDS, sealed(data[1:]))
        except CheckpointError:
            return
        assert isinstance(meta, dict)
        assert all(isinstance(table, pa.Table) for table in tables)

    atheris.Setup(sys.argv, decode)
    atheris.Fuzz()


def _reached(log: str) -> str:
    """libFuzzer's last line about coverage."""
    lines = [line.strip() for line in log.splitlines() if "cov:" in line]
    return lines[-1] if lines else "nothing was covered"


if __name__ == "__main__":
    raise SystemExit(main())
