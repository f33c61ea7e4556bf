"""The prompts of `aici bench speculate`: 15 of each kind, in the form of texts that a base model goes on with.

Extraction, edits and quotes repeat much of their prompts. Free texts do not: drafts must cost nothing there.
"""

from typing import Final

_PEOPLE: Final = (
    ("Amara Okonkwo", "Lagos", "marine biologist", "amara.okonkwo@example.org", 2014),
    ("Jonas Lindqvist", "Uppsala", "bridge engineer", "j.lindqvist@example.net", 2009),
    ("Priya Raghunathan", "Chennai", "violin maker", "priya.r@example.com", 2017),
    ("Tomasz Wierzbicki", "Gdansk", "harbour pilot", "t.wierzbicki@example.org", 2003),
    ("Lucia Benvenuti", "Trieste", "coffee roaster", "lucia@example.com", 2019),
    ("Daniel Achterberg", "Utrecht", "bicycle designer", "daniel.achterberg@example.net", 2011),
    ("Mei-Ling Zhou", "Hangzhou", "tea merchant", "meiling.zhou@example.org", 2006),
    ("Samuel Oyelaran", "Ibadan", "school principal", "samuel.oyelaran@example.com", 1998),
)
_PLACES: Final = (
    ("the lighthouse of Cape Vermeer", "1874", "forty-one metres", "The lamp was turned by hand until 1932"),
    ("the old observatory above Lindental", "1911", "nine rooms", "Nobody had asked the astronomers to leave"),
    ("the covered market of Port Auber", "1889", "two hundred stalls", "Fish was sold here before sunrise"),
    ("the iron bridge at Hallowmere", "1856", "three arches", "Carts paid a penny and walkers paid nothing"),
    ("the botanical garden in Santa Ruda", "1798", "six thousand plants", "The palms survived two winters of snow"),
)
_PROGRAMS: Final = (
    """def total_price(items, tax_rate):
    subtotal = 0
    for item in items:
        if item.quantity > 0:
            subtotal += item.price * item.quantity
    tax = subtotal * tax_rate
    return subtotal + tax
""",
    """class Stack:
    def __init__(self):
        self.values = []

    def push(self, value):
        self.values.append(value)

    def pop(self):
        if not self.values:
            raise IndexError("the stack is empty")
        return self.values.pop()
""",
    """def read_settings(path):
    settings = {}
    with open(path) as file:
        for line in file:
            line = line.strip()
            if line and not line.startswith("#"):
                name, value = line.split("=", 1)
                settings[name.strip()] = value.strip()
    return settings
""",
    """def longest_word(text):
    longest = ""
    for word in text.split():
        word = word.strip(".,;:!?")
        if len(word) > len(longest):
            longest = word
    return longest
""",
    """def moving_average(values, size):
    averages = []
    for start in range(len(values) - size + 1):
        window = values[start : start + size]
        averages.append(sum(window) / size)
    return averages
""",
)
_EDITS: Final = (
    "Add a docstring to the first function and change nothing else.",
    "Add type annotations and keep the rest as it is.",
    "Print a line before the last return statement and keep the rest.",
)
_OPENINGS: Final = (
    "The train left the station an hour late, and",
    "My grandmother's recipe for winter soup begins with",
    "Three reasons why cities plant trees along their streets are",
    "The detective looked at the empty aquarium and",
    "Dear neighbour, I am writing to you because",
    "In the year 2140, nobody remembered how to",
    "The main difference between a violin and a viola is",
    "When it rains for a week in our village,",
    "A short history of the pencil:",
    "The best advice that I was ever given is",
    "Nobody believed the boy who said that the moon",
    "To learn a new language as an adult,",
    "The old sailor told a story about",
    "If I could change a single thing about school,",
    "On the first morning of the expedition,",
)


def _extraction(first: int) -> str:
    others = (0, 1, 3) if first < len(_PEOPLE) else (0, 2, 5)
    people = [_PEOPLE[(first + at) % len(_PEOPLE)] for at in others]
    sentences = " ".join(
        f"{name} of {city} has worked as a {work} since {since} and answers letters at {mail}."
        for name, city, work, mail, since in people
    )
    name, city, *_ = people[0]
    return (
        f"Text: {sentences}\n\nThe people of the text as JSON, with name, city, work, since and mail:\n"
        f'[\n  {{"name": "{name}", "city": "{city}", "work": "'
    )


def _edit(number: int) -> str:
    program = _PROGRAMS[number % len(_PROGRAMS)]
    begin = program.split("\n", 1)[0]
    return (
        f"Program:\n```python\n{program}```\n\n{_EDITS[number // len(_PROGRAMS)]}\n\n"
        f"The edited program:\n```python\n{begin}\n"
    )


def _quotes(number: int) -> str:
    place, year, size, saying = _PLACES[number % len(_PLACES)]
    name, city, work, _, since = _PEOPLE[number % len(_PEOPLE)]
    passage = (
        f"In {year} the council opened {place}, which counted {size} and cost more than anybody had promised. {name}, a"
        f" {work} from {city}, has kept its records since {since}. {saying}, as a note in the first book says, and the"
        f" second book begins with a list of repairs. Visitors now come on Sundays, when the doors stand open and a"
        f" volunteer reads from the records."
    )
    task = "A summary of the passage that quotes its sentences word for word"
    return f'{passage}\n\n{task}:\n\nThe passage says: "In {year}'


KINDS: Final = {
    "extraction": tuple(_extraction(number) for number in range(15)),
    "edits": tuple(_edit(number) for number in range(15)),
    "quotes": tuple(_quotes(number) for number in range(15)),
    "free": _OPENINGS,
}
"""The prompts by kind."""
