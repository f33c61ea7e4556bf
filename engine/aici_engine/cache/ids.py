"""Ids of the cache."""

from typing import NewType

PageId = NewType("PageId", int)
