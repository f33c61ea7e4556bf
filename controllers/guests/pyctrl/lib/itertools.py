def count(start=0, step=1):
    while True:
        yield start
        start += step


def cycle(items):
    items = list(items)
    while items:
        yield from items


def repeat(item, times=None):
    while times is None or times > 0:
        yield item
        if times is not None:
            times -= 1


class chain:
    def __init__(self, *many):
        self._items = chain.from_iterable(many)

    def __iter__(self):
        return self._items

    def __next__(self):
        return next(self._items)

    @staticmethod
    def from_iterable(many):
        for items in many:
            yield from items


def islice(items, *bounds):
    start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (bounds + (1,))[:3]
    wanted, step = start or 0, step or 1
    for i, item in enumerate(items):
        if stop is not None and i >= stop:
            return
        if i == wanted:
            yield item
            wanted += step
            if stop is not None and wanted >= stop:
                return


def takewhile(test, items):
    for item in items:
        if not test(item):
            return
        yield item


def dropwhile(test, items):
    items = iter(items)
    for item in items:
        if not test(item):
            yield item
            break
    yield from items


def filterfalse(test, items):
    for item in items:
        if not (test(item) if test else item):
            yield item


def compress(items, selectors):
    for item, selected in zip(items, selectors):
        if selected:
            yield item


def starmap(function, items):
    for arguments in items:
        yield function(*arguments)


def accumulate(items, function=None, *, initial=None):
    items = iter(items)
    if initial is None:
        try:
            initial = next(items)
        except StopIteration:
            return
    yield initial
    for item in items:
        initial = initial + item if function is None else function(initial, item)
        yield initial


def pairwise(items):
    items = iter(items)
    for before in items:
        for after in items:
            yield before, after
            before = after


def batched(items, n):
    items = iter(items)
    while True:
        batch = tuple(islice(items, n))
        if not batch:
            return
        yield batch


def zip_longest(*many, fillvalue=None):
    many = [iter(items) for items in many]
    living = len(many)
    while True:
        found = []
        for i, items in enumerate(many):
            try:
                if items is None:
                    raise StopIteration
                found.append(next(items))
            except StopIteration:
                living -= items is not None
                many[i] = None
                found.append(fillvalue)
        if living <= 0:
            return
        yield tuple(found)


def groupby(items, key=None):
    group, last = [], None
    for item in items:
        value = item if key is None else key(item)
        if group and value != last:
            yield last, iter(group)
            group = []
        last = value
        group.append(item)
    if group:
        yield last, iter(group)


def tee(items, n=2):
    items = list(items)
    return tuple(iter(items) for _ in range(n))


def product(*many, repeat=1):
    many = [list(items) for items in many] * repeat
    found = [()]
    for items in many:
        found = [before + (item,) for before in found for item in items]
    yield from found


def permutations(items, r=None):
    items = list(items)

    def choose(places, r):
        if r == 0:
            yield ()
            return
        for i in places:
            for rest in choose([place for place in places if place != i], r - 1):
                yield (items[i],) + rest

    return choose(range(len(items)), len(items) if r is None else r)


def combinations(items, r):
    items = list(items)

    def choose(first, r):
        if r == 0:
            yield ()
            return
        for i in range(first, len(items) - r + 1):
            for rest in choose(i + 1, r - 1):
                yield (items[i],) + rest

    return choose(0, r)


def combinations_with_replacement(items, r):
    items = list(items)

    def choose(first, r):
        if r == 0:
            yield ()
            return
        for i in range(first, len(items)):
            for rest in choose(i, r - 1):
                yield (items[i],) + rest

    return choose(0, r)
