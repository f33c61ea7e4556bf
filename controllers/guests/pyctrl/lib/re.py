# Python's re over MicroPython's engine (the module ure), which matches and searches from the start of a text.
import ure

_SPECIAL = "()[]{}?*+-|^$\\.&~# \t\n\r\v\f"
_known = {}

error = ValueError


class Match:
    def __init__(self, pattern, string, found, offset):
        self.re = pattern
        self.string = string
        self._groups = (found.group(0),) + found.groups()
        self._spans = [
            (-1, -1) if text is None else tuple(place + offset for place in found.span(i))
            for i, text in enumerate(self._groups)
        ]

    def group(self, *numbers):
        if len(numbers) > 1:
            return tuple(self._groups[number] for number in numbers)
        return self._groups[numbers[0] if numbers else 0]

    def groups(self, default=None):
        return tuple(default if text is None else text for text in self._groups[1:])

    def span(self, number=0):
        return self._spans[number]

    def start(self, number=0):
        return self._spans[number][0]

    def end(self, number=0):
        return self._spans[number][1]

    def expand(self, template):
        return _expand(template, self)

    def __getitem__(self, number):
        return self._groups[number]


class Pattern:
    def __init__(self, pattern):
        self.pattern = pattern
        self._engine = ure.compile(pattern)
        self._whole = None
        self._num_starts = _count_starts(pattern)

    def match(self, string):
        return self._found(string, self._engine.match(string), 0)

    def search(self, string):
        return self._found(string, self._engine.search(string), 0)

    def fullmatch(self, string):
        if self._whole is None:
            self._whole = ure.compile("(?:" + self.pattern + ")$")
        return self._found(string, self._whole.match(string), 0)

    def finditer(self, string):
        position = 0
        while position <= len(string):
            found = self._search_from(string, position)
            if found is None:
                return
            yield found
            position = found.end() + (found.end() == found.start())

    def findall(self, string):
        found = []
        for match in self.finditer(string):
            groups = match.groups("")
            found.append(match.group() if not groups else groups[0] if len(groups) == 1 else groups)
        return found

    def split(self, string, maxsplit=0):
        parts, last = [], 0
        for number, match in enumerate(self.finditer(string)):
            if maxsplit and number == maxsplit:
                break
            parts.append(string[last : match.start()])
            parts.extend(match.groups())
            last = match.end()
        parts.append(string[last:])
        return parts

    def sub(self, replacement, string, count=0):
        return self.subn(replacement, string, count)[0]

    def subn(self, replacement, string, count=0):
        parts, last, number = [], 0, 0
        for match in self.finditer(string):
            if count and number == count:
                break
            parts.append(string[last : match.start()])
            parts.append(replacement(match) if callable(replacement) else _expand(replacement, match))
            last = match.end()
            number += 1
        parts.append(string[last:])
        return string[:0].join(parts), number

    def _search_from(self, string, position):
        if position == 0 or not self._num_starts:
            return self._found(string, self._engine.search(string[position:]), position)
        if self._num_starts == 1 and self.pattern[:1] == "^" and "|" not in self.pattern:
            return None  # the start of the text is behind
        raise NotImplementedError("after the first match, ^ is supported at the start of a pattern without | only")

    def _found(self, string, found, offset):
        return None if found is None else Match(self, string, found, offset)


def _count_starts(pattern):
    """Return how often the pattern asks for the start of the text."""
    count, i, in_class = 0, 0, False
    while i < len(pattern):
        char = pattern[i : i + 1]
        if char in ("\\", b"\\"):
            i += 1
        elif char in ("[", b"["):
            in_class = True
            i += pattern[i + 1 : i + 2] in ("^", b"^")
        elif char in ("]", b"]"):
            in_class = False
        elif char in ("^", b"^") and not in_class:
            count += 1
        i += 1
    return count


def _expand(template, match):
    if "\\" not in template:
        return template
    parts, i = [], 0
    while i < len(template):
        if template[i] != "\\":
            parts.append(template[i])
            i += 1
            continue
        char = template[i + 1 : i + 2]
        i += 2
        if char == "g" and template[i : i + 1] == "<":
            end = template.index(">", i)
            parts.append(match.group(int(template[i + 1 : end])) or "")
            i = end + 1
        elif char.isdigit():
            while template[i : i + 1].isdigit() and len(char) < 2:
                char += template[i]
                i += 1
            parts.append(match.group(int(char)) or "")
        else:
            parts.append({"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}.get(char, "\\" + char))
    return "".join(parts)


def compile(pattern, flags=0):
    if flags:
        raise NotImplementedError("flags are not supported: write [Aa] for a and A, and [^\\n] or [\\s\\S] for a dot")
    if isinstance(pattern, Pattern):
        return pattern
    if pattern not in _known:
        _known[pattern] = Pattern(pattern)
    return _known[pattern]


def match(pattern, string, flags=0):
    return compile(pattern, flags).match(string)


def search(pattern, string, flags=0):
    return compile(pattern, flags).search(string)


def fullmatch(pattern, string, flags=0):
    return compile(pattern, flags).fullmatch(string)


def finditer(pattern, string, flags=0):
    return compile(pattern, flags).finditer(string)


def findall(pattern, string, flags=0):
    return compile(pattern, flags).findall(string)


def split(pattern, string, maxsplit=0, flags=0):
    return compile(pattern, flags).split(string, maxsplit)


def sub(pattern, replacement, string, count=0, flags=0):
    return compile(pattern, flags).sub(replacement, string, count)


def subn(pattern, replacement, string, count=0, flags=0):
    return compile(pattern, flags).subn(replacement, string, count)


def escape(text):
    return "".join("\\" + char if char in _SPECIAL else char for char in text)


def purge():
    _known.clear()


A = ASCII = 256
I = IGNORECASE = 2
M = MULTILINE = 8
S = DOTALL = 16
X = VERBOSE = 64
