# Names for annotations, which MicroPython reads and forgets.
TYPE_CHECKING = False


class _Any:
    def __getitem__(self, arguments):
        return self

    def __call__(self, *arguments, **named):
        return self

    def __or__(self, other):
        return self


Any = Awaitable = Callable = ClassVar = Coroutine = Dict = Final = Generic = Iterable = Iterator = List = Literal = (
    _Any()
)
Mapping = NoReturn = Optional = Sequence = Set = Tuple = Type = Union = Any


def TypeVar(name, *bounds, **named):
    return Any


def NewType(name, of):
    return of


def cast(to, value):
    return value


def overload(function):
    return function
