"""Finds the first of several strings in text that comes in pieces."""

from collections.abc import Sequence


class StopMatcher:
    """An automaton of Knuth, Morris and Pratt for each stop: its state is how much of the stop the text ends with.

    `stops`: none empty. After a match there is nothing more to feed.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [(stop, _borders(stop)) for stop in stops]
        self._states = [0] * len(stops)
        self._longest = max(map(len, stops))

    @property
    def held(self) -> int:
        """So many characters at the end of the text may be the beginning of a stop."""
        return max(self._states)

    def feed(self, text: str) -> tuple[str, int] | None:
        """The stop that is complete first, of several the longest, and its end in `text`."""
        for end, char in enumerate(text, 1):
            found = ""
            for i, (stop, borders) in enumerate(self._stops):
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
        """The text is another one now, in which there is no stop."""
        self._states = [0] * len(self._stops)
        self.feed(text[-self._longest :])


def _borders(stop: str) -> list[int]:
    """`[n]`: the length of the longest string, shorter than n, that the first n characters begin and end with."""
    borders = [0, 0]
    for char in stop[1:]:
        border = borders[-1]
        while border and stop[border] != char:
            border = borders[border]
        borders.append(border + (stop[border] == char))
    return borders
