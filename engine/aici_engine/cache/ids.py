"""Ids that mean something only inside the cache."""

from typing import NewType

PageId = NewType("PageId", int)
