"""Finds the first of several stop strings in text that arrives in pieces."""

from collections.abc import Sequence
from copy import copy


class StopMatcher:
    """A Knuth-Morris-Pratt automaton a stop string; the state is the length of the stop's prefix at the text's end.

    No string of `stops` may be empty. After a match, do not call `feed` again. Copies share the automata.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._automata = [(stop, _borders(stop)) for stop in stops]
        self._states = [0] * len(stops)
        self._longest = max(map(len, stops))

    @property
    def held(self) -> int:
        """The number of characters at the end of the text that may begin a stop string."""
        return max(self._states)

    def copied(self) -> "StopMatcher":
        """Return a matcher in the same state, which goes on by itself."""
        other = copy(self)
        other._states = list(self._states)
        return other

    def feed(self, text: str) -> tuple[str, int] | None:
        """Return the first complete stop string and its end in `text`, or `None`. Of stops with the same end, the
        longest."""
        for end, char in enumerate(text, 1):
            found = ""
            for i, (stop, borders) in enumerate(self._automata):
                state = self._states[i]
                while state and stop[state] != char:
                    state = borders[state]
                state += stop[state] == char
                self._states[i] = state
                if state == len(stop) > len(found):
                    found = stop
            if found:
                return found, end
        return None

    def restart(self, text: str) -> None:
        """Go on after `text`, which contains no stop string, in place of the text so far."""
        self._states = [0] * len(self._automata)
        self.feed(text[-self._longest :])


def _borders(stop: str) -> list[int]:
    """Return for every n the length of the longest string, shorter than n, at both ends of the first n characters."""
    borders = [0, 0]
    for char in stop[1:]:
        border = borders[-1]
        while border and stop[border] != char:
            border = borders[border]
        borders.append(border + (stop[border] == char))
    return borders
