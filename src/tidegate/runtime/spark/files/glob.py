r"""Glob patterns of file names by the rules of Hadoop, which Spark's `pathGlobFilter` follows.

*       any characters, or none
?       one character
[a-c]   one of these characters
[^a-c]  one other character; also [!a-c]
{a,b}   one of these patterns
\*      the character *
"""

from __future__ import annotations

import re
from functools import cache

from tidegate.errors import DefinitionError


@cache
def names_like(pattern: str) -> re.Pattern[str]:
    """The regular expression of the names that match `pattern` whole. Raises DefinitionError for a broken pattern."""
    made, depth, at = "", 0, 0
    while at < len(pattern):
        one = pattern[at]
        if one == "\\":
            at += 1
            if at == len(pattern):
                raise _broken(pattern, "a backslash at its end, with no character behind it")
            made += re.escape(pattern[at])
        elif one == "[":
            end = _end_of_set(pattern, at)
            made += _set(pattern[at + 1 : end])
            at = end
        elif one == "{":
            depth, made = depth + 1, f"{made}(?:"
        elif one == "}" and depth:
            depth, made = depth - 1, f"{made})"
        elif one == "," and depth:
            made += "|"
        else:
            made += {"*": ".*", "?": "."}.get(one) or re.escape(one)
        at += 1
    if depth:
        raise _broken(pattern, "a { without its }")
    try:
        return re.compile(made, re.DOTALL)
    except re.error as error:
        raise _broken(pattern, f"a set that is none ({error})") from error


def _end_of_set(pattern: str, start: int) -> int:
    at = start + 1
    while at < len(pattern) and pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    if at >= len(pattern):
        raise _broken(pattern, "a [ without its ]")
    return at


def _set(inside: str) -> str:
    """The set with these characters; a character of a regular expression has no other meaning in it."""
    other = inside[:1] in ("^", "!")
    kept = re.sub(r"\\(.)|[\[&~|^]", lambda found: re.escape(found[1] or found[0]), inside[other:], flags=re.DOTALL)
    return f"[{'^' if other else ''}{kept}]"


def _broken(pattern: str, has: str) -> DefinitionError:
    return DefinitionError(f'pathGlobFilter is {pattern!r}, which has {has}. Write a pattern such as "*.json".')
