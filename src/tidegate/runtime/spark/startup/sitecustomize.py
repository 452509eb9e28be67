"""Let the Python processes of Spark import the installed pyspark, whose modules are compiled.

Spark puts `pyspark.zip` and the zip of py4j in front of the path of each Python process, and Python finds no compiled
modules in a zip: each process compiles about a hundred of them, which takes longer than all else that the start of an
operator does (decision 0061). Python imports this module whenever it starts with this folder on its path.
"""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

ZIPS = Path("pyspark", "python", "lib")
"""The folder of an installed pyspark with zips of itself and of py4j."""


def installed_first(path: list[str]) -> list[str]:
    """`path` with the zips of Spark at its end, if the installation that a zip is part of is on `path` itself.

    The zips of another Spark, which SPARK_HOME may name, stay where they are.
    """
    folders = {Path(entry).resolve() for entry in path}
    copies = [entry for entry in path if entry.endswith(".zip") and _installation(Path(entry)) in folders]
    return [entry for entry in path if entry not in copies] + copies


def _installation(archive: Path) -> Path | None:
    """The folder with the installed pyspark that this zip is part of; None for another zip."""
    lib = archive.resolve().parent
    return lib.parents[2] if lib.match(str(ZIPS)) else None


def run_next() -> None:
    """Run the `sitecustomize` that Python would have imported without this one."""
    here = Path(__file__).resolve().parent
    spec = PathFinder.find_spec("sitecustomize", [entry for entry in sys.path if Path(entry).resolve() != here])
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module = module_from_spec(spec)
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    sys.path[:] = installed_first(sys.path)
    run_next()
