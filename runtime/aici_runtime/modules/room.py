"""Room for modules: the quotas of a registry, and which modules make room for a new one."""

import sys
from bisect import bisect_left
from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import dataclass, replace

from aici_base.errors import QuotaError
from aici_runtime.channels.envelope import Auth
from aici_runtime.channels.mailbox import MIB
from aici_runtime.modules.module_files import ModuleFiles
from aici_runtime.modules.owners import Ownership
from aici_runtime.quota import Quota

NO_QUOTA = Quota("modules", "", sys.maxsize, sys.maxsize)
_HINT = "remove controllers no longer needed"
_CLI_HINT = f"{_HINT}: aici ctrl rm"


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageLimits:
    """The limits of one user, in place of the registry's `per_user`. None: no limit but the total."""

    modules: int | None = None
    stored_mib: int | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """Whose quota an upload takes. `limits`: of the user; None: the registry's own."""

    auth: Auth
    limits: StorageLimits | None = None

    def modules(self, quota: Quota) -> Quota:
        return quota if self.limits is None else _with_limit(quota, self.limits.modules)

    def stored_mib(self, quota: Quota) -> Quota:
        return quota if self.limits is None else _with_limit(quota, self.limits.stored_mib)


class Room:
    """Checks both quotas for everything that is stored. Methods but `check` are called inside `ModuleFiles.changing`.

    `evict`: at a quota, the user's own modules without tags make room, the least recently used first; without `evict`,
    nothing does. `ownership` returns who owns a module, `tagged` the ids of the modules with tags.
    """

    def __init__(
        self,
        files: ModuleFiles,
        *,
        modules: Quota,
        stored_mib: Quota,
        evict: bool,
        ownership: Callable[[str], Ownership],
        tagged: Callable[[], Collection[str]],
    ) -> None:
        self._files = files
        self._modules = modules
        self._stored_mib = stored_mib
        self._evict = evict
        self._ownership = ownership
        self._tagged = tagged

    def check(self, size_bytes: int, claim: Claim) -> None:
        """Raise QuotaError if another module of `size_bytes` would not fit without all modules that may make room."""
        self._check(size_bytes, claim, without=set(self._idle(claim.auth)))

    def make(self, size_bytes: int, claim: Claim) -> None:
        """Check the quotas for another module of `size_bytes`. Remove the user's least recently used modules without
        tags as far as needed; if all of them would not be enough, remove none and raise QuotaError."""
        if self._fits(size_bytes, claim, without=()):
            return
        idle = sorted(self._idle(claim.auth), key=self._files.last_use)
        count = bisect_left(range(len(idle)), True, key=lambda n: self._fits(size_bytes, claim, without=set(idle[:n])))
        self._check(size_bytes, claim, without=set(idle[:count]))
        for module_id in idle[:count]:
            self._files.remove(module_id)

    def check_addition(self, size_bytes: int, module_id: str) -> None:
        """Raise QuotaError if `size_bytes` more of a stored module exceed the quota of the module's first owner."""
        modules, first = self._files.module_ids(), self._ownership(module_id).first
        own = [each for each in modules if first and self._ownership(each).is_owned_by(first)]
        self._check_stored(size_bytes, modules, own, self._stored_mib)

    def _idle(self, auth: Auth) -> list[str]:
        """Return the modules that may make room: of this user alone, without tags."""
        if not self._evict:
            return []
        tagged = self._tagged()
        modules = [module_id for module_id in self._files.module_ids() if module_id not in tagged]
        return [module_id for module_id in modules if set(self._ownership(module_id).owners) == {auth.user}]

    def _fits(self, size_bytes: int, claim: Claim, *, without: Container[str]) -> bool:
        try:
            self._check(size_bytes, claim, without=without)
        except QuotaError:
            return False
        return True

    def _check(self, size_bytes: int, claim: Claim, *, without: Container[str]) -> None:
        """Raise QuotaError if another module of `size_bytes` exceeds a quota, were the modules `without` gone."""
        modules = [module_id for module_id in self._files.module_ids() if module_id not in without]
        own = [module_id for module_id in modules if self._ownership(module_id).is_owned_by(claim.auth)]
        quota = claim.modules(self._modules)
        quota.check(len(modules) + 1, len(own) + 1, hint=_HINT, cli_hint=_CLI_HINT)
        self._check_stored(size_bytes, modules, own, claim.stored_mib(self._stored_mib))

    def _check_stored(self, size_bytes: int, modules: Sequence[str], own: Sequence[str], quota: Quota) -> None:
        stored = self._files.stored_sizes()
        total, of_user = (size_bytes + sum(stored.get(module_id, 0) for module_id in ids) for ids in (modules, own))
        quota.check(-(-total // MIB), -(-of_user // MIB), hint=_HINT, cli_hint=_CLI_HINT)


def _with_limit(quota: Quota, own: int | None) -> Quota:
    return replace(quota, per_user=sys.maxsize if own is None else own)
