def partial(function, *arguments, **named):
    def call(*more, **more_named):
        all_named = dict(named)
        all_named.update(more_named)
        return function(*(arguments + more), **all_named)

    return call


def reduce(function, items, *initial):
    items = iter(items)
    value = initial[0] if initial else next(items)
    for item in items:
        value = function(value, item)
    return value


def wraps(wrapped):
    return lambda wrapper: wrapper


def lru_cache(maxsize=128):
    def decorate(function):
        known = {}

        def call(*arguments):
            if arguments not in known:
                known[arguments] = function(*arguments)
            return known[arguments]

        return call

    return decorate(maxsize) if callable(maxsize) else decorate


cache = lru_cache(None)


def cmp_to_key(compare):
    class Key:
        def __init__(self, value):
            self.value = value

        def __lt__(self, other):
            return compare(self.value, other.value) < 0

        def __eq__(self, other):
            return compare(self.value, other.value) == 0

    return Key
