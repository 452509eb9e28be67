"""Classes and static methods of the JVM that PySpark looks up once, and not at each use.

For example, PySpark asks the JVM for a class by its name in each call of a column function, and the JVM looks for
each part of the name (`org`, `org.apache`, ...) in every jar. This takes ten times as long as the call itself.
"""

from __future__ import annotations

from typing import Any

import pytest
from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView


def remember(patch: pytest.MonkeyPatch) -> None:
    """Cache look-ups until `patch` is undone. Classes in the JVM do not change while it runs, except by imports."""
    for kind in (JVMView, JavaPackage, JavaClass):
        patch.setattr(kind, "__getattr__", _once(kind.__getattr__))


def _once(look_up: Any) -> Any:
    found: dict[tuple[Any, str, str], Any] = {}

    def looked_up(owner: Any, name: str) -> Any:
        # Existing attributes do not come here: they are the same for every owner.
        where = (owner._gateway_client, owner._id if isinstance(owner, JVMView) else owner._fqn, name)
        if where not in found:
            value = look_up(owner, name)
            if not _stays(value):
                return value
            found[where] = value
        return found[where]

    return looked_up


def _stays(value: Any) -> bool:
    """Static fields may change, and a name that is no class yet (capital letters) may be imported as one."""
    return isinstance(value, JavaClass | JavaMember) or (isinstance(value, JavaPackage) and value._fqn.islower())
