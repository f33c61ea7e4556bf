# MicroPython has no metaclasses, but calls the type of the first base to make a class. So an enumeration is an object,
# and its members are objects of another class: isinstance(Color.RED, Color) raises TypeError, Color.RED in Color works.
# The body of a class has no order: members are sorted by value if possible, else by name.
class auto:
    _count = 0

    def __init__(self):
        auto._count += 1
        self.place = auto._count


class _Member:
    def __init__(self, kind, name, value):
        self._kind, self.name, self.value = kind, name, value

    def __getattr__(self, name):
        found = self._kind._shared(name)
        return (lambda *arguments, **named: found(self, *arguments, **named)) if callable(found) else found

    def __repr__(self):
        return f"<{self._kind.__name__}.{self.name}: {self.value!r}>"

    def __str__(self):
        return self._kind.__name__ + "." + self.name

    def __eq__(self, other):
        return self is other

    def __hash__(self):
        return id(self)


def _plain(value):
    return value.value if isinstance(value, _IntMember) else value


class _IntMember(int):  # the interpreter unwraps the left operand alone
    __add__ = __radd__ = lambda self, other: self.value + _plain(other)
    __mul__ = __rmul__ = lambda self, other: self.value * _plain(other)
    __and__ = __rand__ = lambda self, other: self.value & _plain(other)
    __or__ = __ror__ = lambda self, other: self.value | _plain(other)
    __sub__ = lambda self, other: self.value - _plain(other)
    __rsub__ = lambda self, other: other - self.value
    __eq__ = lambda self, other: self.value == _plain(other)
    __lt__ = lambda self, other: self.value < _plain(other)
    __le__ = lambda self, other: self.value <= _plain(other)
    __gt__ = lambda self, other: self.value > _plain(other)
    __ge__ = lambda self, other: self.value >= _plain(other)
    __hash__ = lambda self: hash(self.value)
    __str__ = lambda self: str(self.value)


class _StrMember(str):
    pass


def _native(member):
    def make(kind, name, value):
        made = member(value)
        made._kind, made.name, made.value = kind, name, value
        return made

    return make


class _Enumeration:
    def __init__(self, name, bases, body):
        self.__name__ = name
        base = bases[0] if bases else None
        self._member = body.get("_member") or base._member
        self._base = base
        self._body = {key: value for key, value in body.items() if key[0] == "_" or _is_method(value)}
        self._by_name = {}
        given = [item for item in body.items() if item[0] not in self._body]
        autos = sorted((value.place, key) for key, value in given if isinstance(value, auto))
        text = self._member is _make_text
        values = {key: key.lower() if text else i + 1 for i, (_, key) in enumerate(autos)}
        values.update((key, value) for key, value in given if not isinstance(value, auto))
        known = {}
        for key in _sorted(values):
            value = values[key]
            if value not in known:
                known[value] = self._member(self, key, value)
            self._by_name[key] = known[value]
        self._members = [known[value] for value in known]
        self._members.sort(key=lambda member: list(_sorted(values)).index(member.name))
        self._by_value = known

    @property
    def __members__(self):
        return dict(self._by_name)

    def __getattr__(self, name):
        by_name = self.__dict__.get("_by_name", {})
        if name in by_name:
            return by_name[name]
        return self._shared(name)

    def _shared(self, name):
        kind = self
        while kind is not None:
            if name in kind._body:
                return kind._body[name]
            kind = kind._base
        raise AttributeError(f"{self.__name__} has no {name}")

    def __call__(self, value):
        if value not in self._by_value:
            raise ValueError(f"{value!r} is not a valid {self.__name__}")
        return self._by_value[value]

    def __getitem__(self, name):
        return self._by_name[name]

    def __iter__(self):
        return iter(self._members)

    def __len__(self):
        return len(self._members)

    def __contains__(self, member):
        return any(each is member or each.value == member for each in self._members)

    def __repr__(self):
        return f"<enum '{self.__name__}'>"


def _is_method(value):
    return isinstance(value, (type(_sorted), staticmethod, classmethod, property))


def _sorted(values):
    try:
        return sorted(values, key=lambda name: values[name])
    except TypeError:
        return sorted(values)


def unique(enumeration):
    if len(enumeration._by_name) > len(enumeration._members):
        raise ValueError(f"two members of {enumeration!r} have the same value")
    return enumeration


_make_text = _native(_StrMember)
Enum = _Enumeration("Enum", (), {"_member": _Member})
IntEnum = _Enumeration("IntEnum", (), {"_member": _native(_IntMember)})
StrEnum = _Enumeration("StrEnum", (), {"_member": _make_text})
