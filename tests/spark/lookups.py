"""Classes and static methods of the JVM that PySpark looks up once, and not at each use.

PySpark asks the JVM for a class by its name in each call of a function of columns, say, and the JVM looks for each part
of the name (`org`, `org.apache`, ...) in every jar. That takes ten times as long as the call itself.
"""

from __future__ import annotations

from typing import Any

import pytest
from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView


def remember(patch: pytest.MonkeyPatch) -> None:
    """Until `patch` is undone. What is there in the JVM does not change while it runs, but for imports."""
    for kind in (JVMView, JavaPackage, JavaClass):
        patch.setattr(kind, "__getattr__", _once(kind.__getattr__))


def _once(look_up: Any) -> Any:
    found: dict[tuple[Any, str, str], Any] = {}

    def looked_up(owner: Any, name: str) -> Any:
        # Attributes that are there do not come here: these are of every owner.
        where = (owner._gateway_client, owner._id if isinstance(owner, JVMView) else owner._fqn, name)
        if where not in found:
            value = look_up(owner, name)
            if not _stays(value):
                return value
            found[where] = value
        return found[where]

    return looked_up


def _stays(value: Any) -> bool:
    """A static field may change, and what is no class yet may be imported as one; those have capital letters."""
    return isinstance(value, JavaClass | JavaMember) or (isinstance(value, JavaPackage) and value._fqn.islower())
