"""Quotas: how much one user, and all users together, may have."""

from dataclasses import dataclass

from aici_base.errors import QuotaError


@dataclass(frozen=True, slots=True)
class Quota:
    """`flag` sets `total`; the flag with `-per-user` appended sets `per_user`. `flag` is empty in a server, whose key
    file sets the limits of its users."""

    what: str
    flag: str
    total: int
    per_user: int

    def check(self, total: int, of_user: int, *, hint: str, cli_hint: str = "") -> None:
        """Raise QuotaError if an amount, including the addition, exceeds the quota."""
        if of_user > self.per_user:
            shown = f"{self.flag}-per-user: {self.per_user}" if self.flag else f"at most {self.per_user}"
            raise QuotaError(f"too many {self.what} for one user ({shown})", hint=hint, cli_hint=cli_hint)
        if total > self.total:
            shown = f"{self.flag}: {self.total}" if self.flag else f"at most {self.total}"
            raise QuotaError(f"too many {self.what} ({shown})", hint=hint, cli_hint=cli_hint)
