"""Who brought a module, and who may see it: the content of `{sha256}-sys.json`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import orjson

from aici_runtime.channels.envelope import Auth


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """`first`: the first uploader. `owners`: uploader → Unix seconds of the upload. A module that is not shared is seen
    by its owners and by admins only.
    """

    first: Auth | None = None
    owners: Mapping[str, int] = field(default_factory=dict)
    is_shared: bool = True

    @classmethod
    def read(cls, document: bytes | None) -> Self:
        """Read a record. Without a record, or in a record without owners, the module is shared."""
        if document is None:
            return cls()
        record = orjson.loads(document)
        first, created = Auth(**record["auth"]), record["created"]
        return cls(
            first=first,
            owners=record.get("owners", {first.user: created}),
            is_shared=record.get("shared", True),
        )

    def document(self) -> bytes:
        """Return the record. `created` and `auth` are the fields of upstream AICI."""
        assert self.first is not None, "a module that is stored has an uploader"
        record: dict[str, Any] = {
            "created": self.owners.get(self.first.user, 0),
            "auth": {"user": self.first.user, "is_admin": self.first.is_admin},
            "owners": dict(self.owners),
            "shared": self.is_shared,
        }
        return orjson.dumps(record)

    def with_owner(self, auth: Auth, now: int, *, shared: bool) -> Self:
        """Return the ownership after an upload by `auth`. The first upload of a user counts."""
        owners = dict(self.owners)
        owners.setdefault(auth.user, now)
        return replace(self, first=self.first or auth, owners=owners, is_shared=self.is_shared or shared)

    def without_owner(self, user: str) -> Self:
        """Return the ownership without `user`. If the first uploader leaves, the next owner takes the place."""
        owners = {owner: since for owner, since in self.owners.items() if owner != user}
        first = self.first
        if first is not None and first.user == user:
            first = Auth(min(owners, key=owners.__getitem__))
        return replace(self, first=first, owners=owners)

    def is_owned_by(self, auth: Auth) -> bool:
        return auth.user in self.owners

    def is_visible_to(self, auth: Auth) -> bool:
        return self.is_shared or auth.is_admin or self.is_owned_by(auth)
