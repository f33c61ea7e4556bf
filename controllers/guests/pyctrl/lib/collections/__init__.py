from ucollections import OrderedDict, deque, namedtuple


class defaultdict(dict):
    def __init__(self, default_factory=None, *arguments, **named):
        super().__init__(*arguments, **named)
        self.default_factory = default_factory

    def __getitem__(self, key):
        if key not in self:
            if self.default_factory is None:
                raise KeyError(key)
            self[key] = self.default_factory()
        return super().__getitem__(key)


class Counter(dict):
    def __init__(self, items=(), **named):
        super().__init__()
        self.update(items, **named)

    def __getitem__(self, key):
        return super().__getitem__(key) if key in self else 0

    def update(self, items=(), **named):
        self._add(items, 1)
        self._add(named, 1)

    def subtract(self, items=(), **named):
        self._add(items, -1)
        self._add(named, -1)

    def _add(self, items, sign):
        for key in items:
            self[key] = self[key] + sign * (items[key] if isinstance(items, dict) else 1)

    def most_common(self, n=None):
        found = sorted(self.items(), key=lambda item: -item[1])
        return found if n is None else found[:n]

    def elements(self):
        for key in self:
            for _ in range(self[key]):
                yield key

    def total(self):
        return sum(self.values())

    def __add__(self, other):
        return self._join(other, lambda a, b: a + b)

    def __sub__(self, other):
        return self._join(other, lambda a, b: a - b)

    def __and__(self, other):
        return self._join(other, min)

    def __or__(self, other):
        return self._join(other, max)

    def _join(self, other, function):
        found = Counter()
        for key in list(self) + [key for key in other if key not in self]:
            number = function(self[key], other[key])
            if number > 0:
                found[key] = number
        return found
