from typing import (
    Any,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)

AsyncIterator = AsyncGenerator = Collection = Container = Generator = Hashable = Any
MutableMapping = MutableSequence = MutableSet = Reversible = Sized = Any
