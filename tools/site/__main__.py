"""Build the site into build/site: `python -m tools.site` (`make site`). It needs the dependency group `site`."""

from __future__ import annotations

import shutil
import subprocess
import sys

from tools.site import check, staging


def main() -> int:
    staging.stage()
    shutil.rmtree(staging.SITE, ignore_errors=True)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "--config-file", "zensical.toml"]
    if subprocess.run(command, cwd=staging.BUILD, check=False).returncode:
        return 1
    faults = [*staging.problems(), *check.problems(staging.SITE)]
    for fault in faults:
        print(fault)
    if faults:
        print(f"{len(faults)} faults: the site is not good.")
        return 1
    pages = sum(1 for _ in staging.SITE.rglob("index.html"))
    print(f"{pages} pages in {staging.SITE.relative_to(staging.ROOT)}: every link leads somewhere, nothing is fetched.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
