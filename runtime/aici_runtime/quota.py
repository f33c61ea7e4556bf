"""How much users may have, each and all together."""

from dataclasses import dataclass

from aici_base.errors import QuotaError


@dataclass(frozen=True, slots=True)
class Quota:
    """`flag`: the one that sets `total`; with `-per-user` behind it, the one that sets `per_user`."""

    what: str
    flag: str
    total: int
    per_user: int

    def check(self, total: int, of_user: int, *, hint: str) -> None:
        """With what is to be added. Raises QuotaError."""
        if of_user > self.per_user:
            raise QuotaError(f"too many {self.what} of one user ({self.flag}-per-user: {self.per_user})", hint=hint)
        if total > self.total:
            raise QuotaError(f"too many {self.what} ({self.flag}: {self.total})", hint=hint)
