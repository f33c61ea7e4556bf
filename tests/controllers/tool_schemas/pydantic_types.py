"""Types of fields that people write in pydantic models, each with JSON that fits and JSON that does not."""

import dataclasses
import enum
import re
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Network
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    NotRequired,  # pydantic wants this TypedDict before Python 3.12
    TypeVar,
)
from uuid import UUID

import pydantic
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    DARK_RED = "dark red"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 10


class Unit(enum.StrEnum):
    METRE = "m"
    FOOT = "ft"


class Point(BaseModel):
    x: int
    y: float = 0.0


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = Field(min_length=1, description="who it is", examples=["Ada"])


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str


class Typed(BaseModel):
    __pydantic_extra__: dict[str, int] = Field(init=False)
    model_config = ConfigDict(extra="allow")
    name: str


class Renamed(BaseModel):
    first_name: str = Field(alias="firstName")
    kind: Literal["person"] = "person"


class Tree(BaseModel):
    value: int
    children: list["Tree"] = []


class Chain(BaseModel):
    next: "Chain | None" = None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=0, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str] = []


class Box(BaseModel, Generic[T]):
    content: T


class Numbers(pydantic.RootModel[list[int]]):
    pass


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Pair(NamedTuple):
    left: int
    right: str


@dataclasses.dataclass
class Order:
    sku: str
    amount: int = 1


Animal = Annotated[Cat | Dog, Field(discriminator="kind")]

TYPES: Final[dict[str, tuple[Any, list[Any], list[Any]]]] = {
    "str": (str, ["", "é\n"], [1, None]),
    "int": (int, [0, -12], [1.5, "one", True]),
    "float": (float, [1.5, -2, 0], ["x", None]),
    "bool": (bool, [True, False], [2, "maybe"]),
    "None": (None, [None], [0, "", False]),
    "Any": (Any, [None, [1, {"a": []}]], []),
    "bytes": (bytes, ["abc"], [1, None]),
    "Decimal": (Decimal, ["1.50", "-3", 2.5], [True, None]),
    "condecimal": (pydantic.condecimal(max_digits=5, decimal_places=2, ge=0), ["12.50", 3], [-1]),
    "date": (date, ["2024-02-29"], ["2023-02-29", "today", 1.5]),
    "time": (time, ["23:59:59Z"], ["24:00:00Z", "noon"]),
    "datetime": (datetime, ["2024-01-31T10:00:00Z"], ["2024-01-32T10:00:00Z", "now"]),
    "AwareDatetime": (pydantic.AwareDatetime, ["2024-01-31T10:00:00+02:00"], ["soon"]),
    "PastDate": (pydantic.PastDate, ["1999-12-31"], ["1999-13-31"]),
    "timedelta": (timedelta, ["P1DT2H", "PT5M"], ["an hour", "P"]),
    "UUID": (UUID, ["123e4567-e89b-42d3-a456-426614174000"], ["123e4567", "x" * 36]),
    "UUID1": (pydantic.UUID1, ["123e4567-e89b-12d3-a456-426614174000"], ["123e4567-e89b-42d3-a456-426614174000"]),
    "UUID4": (pydantic.UUID4, ["123e4567-e89b-42d3-a456-426614174000"], ["123e4567-e89b-12d3-a456-426614174000"]),
    "UUID5": (pydantic.UUID5, ["123e4567-e89b-52d3-a456-426614174000"], ["123e4567-e89b-42d3-a456-426614174000"]),
    "UUID7": (pydantic.UUID7, ["123e4567-e89b-72d3-a456-426614174000"], ["123e4567-e89b-42d3-a456-426614174000"]),
    "Path": (Path, ["/etc/hosts", "a b"], [1]),
    "DirectoryPath": (pydantic.DirectoryPath, ["/"], [1]),
    "AnyUrl": (pydantic.AnyUrl, ["https://example.com/a?b=c"], ["no url", ""]),
    "HttpUrl": (pydantic.HttpUrl, ["https://example.com/"], ["example", 1]),
    "PostgresDsn": (pydantic.PostgresDsn, ["postgres://user@localhost:5432/db"], [1]),
    "RedisDsn": (pydantic.RedisDsn, ["redis://localhost:6379/0"], [1, "nothing"]),
    "IPv4Address": (IPv4Address, ["127.0.0.1"], ["256.0.0.1", "localhost"]),
    "IPv6Address": (IPv6Address, ["::1"], ["::g", "1"]),
    "IPvAnyAddress": (pydantic.IPvAnyAddress, ["127.0.0.1", "::1"], [None]),
    "IPv4Network": (IPv4Network, ["10.0.0.0/8"], [None]),
    "IPv4Interface": (IPv4Interface, ["10.0.0.1/8"], [None]),
    "IPv6Network": (IPv6Network, ["2001:db8::/32"], [None]),
    "SecretStr": (pydantic.SecretStr, ["hunter2"], [1]),
    "SecretBytes": (pydantic.SecretBytes, ["hunter2"], [1]),
    "Base64Bytes": (pydantic.Base64Bytes, ["aGVsbG8="], [1]),
    "Base64Str": (pydantic.Base64Str, ["aGVsbG8="], [1]),
    "Base64UrlStr": (pydantic.Base64UrlStr, ["aGVsbG8="], [1]),
    "Json": (pydantic.Json[list[int]], ["[1]"], [1]),
    "Pattern": (re.Pattern[str], ["^a+$"], [1]),
    "ByteSize": (pydantic.ByteSize, ["10KB", 1024], [-1.5, "many"]),
    "PositiveInt": (pydantic.PositiveInt, [1], [0, -1]),
    "NonNegativeFloat": (pydantic.NonNegativeFloat, [0, 2.5], [-0.5]),
    "FiniteFloat": (pydantic.FiniteFloat, [2.5], ["NaN"]),
    "conint": (pydantic.conint(ge=0, lt=100, multiple_of=5), [0, 95], [100, 7, -5]),
    "confloat 0.5": (pydantic.confloat(multiple_of=0.5), [1.5, -2], [0.3]),
    "confloat 0.3": (pydantic.confloat(multiple_of=0.3), [0, 0.3, -3], [0.4, 1]),
    "int64": (Annotated[int, Field(ge=-(2**63), le=2**63 - 1)], [2**63 - 1], [2**63, -(2**63) - 1]),
    "constr": (pydantic.constr(pattern=r"^[A-Z]{2}-\d+$", max_length=8), ["AB-12"], ["AB-", "ab-1", "AB-123456"]),
    "word boundary": (pydantic.constr(pattern=r"\bcat\b"), ["a cat", "cat"], ["cats", "concat"]),
    "strip": (pydantic.constr(strip_whitespace=True, min_length=1), ["a"], [""]),
    "list": (list[int], [[], [1, 2]], [["a"], {}]),
    "conlist": (pydantic.conlist(str, min_length=1, max_length=2), [["a"], ["a", "b"]], [[], ["a", "b", "c"]]),
    "set": (set[int], [[], [1, 2]], [[1, "a"], {}]),
    "set of literals": (set[Literal["a", "b"]], [["b", "a"]], [["a", "a"], ["c"]]),
    "frozenset": (frozenset[str], [["a", "b"]], [["a", 1]]),
    "deque": (deque[int], [[1]], [["a"]]),
    "Sequence": (Sequence[int], [[1]], ["1"]),
    "Iterable": (Iterable[int], [[1, 2]], [1]),
    "tuple": (tuple[int, str], [[1, "a"]], [[1], ["a", 1], [1, "a", 2]]),
    "tuple of any length": (tuple[int, ...], [[], [1, 2, 3]], [["a"]]),
    "dict": (dict[str, int], [{}, {"a": 1, "b c": 2}], [{"a": "x"}, []]),
    "dict of ints": (dict[int, str], [{"1": "a"}], [{"1": 2}]),
    "dict of enums": (dict[Unit, int], [{"m": 1}], [{"m": "a"}, {"km": 1}]),
    "dict of patterns": (dict[Annotated[str, Field(pattern="^[a-z]+$")], int], [{"ab": 1}], [{"ab": "x"}]),
    "Mapping": (Mapping[str, list[int]], [{"a": [1]}], [{"a": 1}]),
    "OrderedDict": (OrderedDict[str, bool], [{"a": True}], [{"a": 1.5}]),
    "Literal": (Literal["a", 1, None, True], ["a", 1, None, True], ["b", 2]),
    "Enum": (Color, ["red", "dark red"], ["blue"]),
    "IntEnum": (Level, [1, 10], [2]),
    "StrEnum": (Unit, ["m"], ["km"]),
    "Optional": (int | None, [None, 1], ["a"]),
    "union": (int | str | None, [1, "a", None], [[], 1.5]),
    "model": (Point, [{"x": 1, "y": 2.5}, {"x": 1}], [{}, {"y": 1}, {"x": "a"}]),
    "closed model": (Closed, [{"name": "Ada"}], [{"name": ""}, {"name": "Ada", "age": 1}]),
    "open model": (Open, [{"name": "Ada", "age": [1]}], [{"age": 1}]),
    "typed extras": (Typed, [{"name": "Ada", "age": 1}], [{"name": "Ada", "age": "x"}]),
    "alias": (Renamed, [{"firstName": "Ada", "kind": "person"}], [{"firstName": "Ada", "kind": "dog"}, {}]),
    "recursive model": (
        Tree,
        [{"value": 1, "children": [{"value": 2, "children": []}]}],
        [{"value": 1, "children": [1]}],
    ),
    "chain": (Chain, [{"next": {"next": None}}, {}], [{"next": 1}]),
    "discriminated union": (Animal, [{"kind": "cat", "lives": 9}, {"kind": "dog"}], [{"kind": "cow"}, {"kind": "cat"}]),
    "generic model": (Box[list[int]], [{"content": [1]}], [{"content": ["a"]}]),
    "root model": (Numbers, [[1, 2]], [["a"], {}]),
    "TypedDict": (Movie, [{"title": "M", "year": 1931}, {"title": "M"}], [{"year": 1931}]),
    "NamedTuple": (Pair, [[1, "a"]], [[1], ["a", "b"]]),
    "dataclass": (Order, [{"sku": "a", "amount": 2}, {"sku": "a"}], [{"amount": 2}]),
    "extra: nullable": (Annotated[str, Field(json_schema_extra={"nullable": True})], ["a"], [1]),
    "extra: int32": (Annotated[int, Field(json_schema_extra={"format": "int32"})], [1], ["a"]),
    "extra: double": (Annotated[float, Field(json_schema_extra={"format": "double"})], [1.5], ["a"]),
    "extra: own keyword": (Annotated[int, Field(json_schema_extra={"ui:widget": "slider"})], [1], ["a"]),
    "deprecated": (Annotated[int, Field(deprecated=True, title="T", description="D", examples=[3])], [1], ["a"]),
}
"""Name -> type, JSON that fits, JSON that does not fit."""
