def copy(value):
    if isinstance(value, (list, dict, set, bytearray)):
        return type(value)(value)
    if _is_plain(value):
        return value
    other = object.__new__(type(value))
    for name in value.__dict__:
        setattr(other, name, value.__dict__[name])
    return other


def deepcopy(value, known=None):
    known = {} if known is None else known
    if _is_plain(value) and not isinstance(value, tuple):
        return value
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, tuple):
        other = tuple(deepcopy(item, known) for item in value)
    elif isinstance(value, list):
        other = known[id(value)] = []
        other.extend(deepcopy(item, known) for item in value)
    elif isinstance(value, dict):
        other = known[id(value)] = type(value)()
        for key in value:
            other[deepcopy(key, known)] = deepcopy(value[key], known)
    elif isinstance(value, (set, bytearray)):
        other = type(value)(value)
    else:
        other = known[id(value)] = object.__new__(type(value))
        for name in value.__dict__:
            setattr(other, name, deepcopy(value.__dict__[name], known))
    known[id(value)] = other
    return other


def _is_plain(value):
    return value is None or isinstance(value, (bool, int, float, str, bytes, tuple, type)) or callable(value)
