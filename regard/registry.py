"""Names for things of one sort, to which a user can add: position schemes, scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from regard.errors import UsageError, unknown_name


class Registry(Mapping[str, Any]):
    """The things of one sort by name: those of regard, and those that a user has registered.

    `what` is a word for one of them, and `function` is the public function that registers one.
    """

    def __init__(
        self, what: str, function: str, built_in: Mapping[str, Any], registered: dict[str, Any] | None = None
    ) -> None:
        self.what, self.function, self.built_in = what, function, built_in
        self.registered: dict[str, Any] = {} if registered is None else registered

    def register(self, name: str, entry: Any) -> None:
        """Add an entry, or replace the one that was registered under this name before."""
        if not isinstance(name, str) or not name.isprintable() or not 1 <= len(name) <= 64:
            raise UsageError(f"the name of a {self.what} must be a text of 1 to 64 characters, got {name!r}")
        if name in self.built_in:
            raise UsageError(f"{name!r} is a {self.what} of regard itself: give yours another name")
        self.registered[name] = entry

    def unregister(self, name: str) -> None:
        """Remove an entry that was registered."""
        if name not in self.registered:
            raise UsageError(f"no {self.what} was registered as {name!r}")
        del self.registered[name]

    def why_unknown(self, name: object) -> str:
        """Return the message for a name that is not here."""
        if not isinstance(name, str):
            return (
                f"{self.what} must be a name, got {name!r}: to use your own, call {self.function}('a-name', …) "
                f"and give that name"
            )
        advice = f"; to use your own, call {self.function}({name!r}, …) first"
        return unknown_name(self.what, name, tuple(self)) + advice

    def __getitem__(self, name: str) -> Any:
        entry = self.registered.get(name) or self.built_in.get(name)
        if entry is None:
            raise UsageError(self.why_unknown(name))
        return entry

    def __contains__(self, name: Any) -> bool:
        return isinstance(name, str) and (name in self.built_in or name in self.registered)

    def __repr__(self) -> str:
        return f"Registry({self.what}: {', '.join(self)})"

    def __iter__(self) -> Iterator[str]:
        yield from self.built_in
        yield from self.registered

    def __len__(self) -> int:
        return len(self.built_in) + len(self.registered)
