"""Formats of the json_schema guest against independent readers.

Every reader accepts what the guest accepts. The guest accepts what all readers of a format accept, apart from texts
that the format leaves out on purpose. `schema_formats.toml` has clear cases. Mutants are these texts with small
changes; `AICI_TEST_SCALE` makes more of them.
"""

import base64
import datetime
import ipaddress
import json
import random
import re
import string
import struct
import tomllib
import urllib.parse
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import pydantic as pyd
import pytest
from pydantic_core import MultiHostUrl
from ulid import ULID

from tests.support import format_readers as read
from tests.support.fake_host import GuestModule
from tests.support.format_readers import Reader, matching, pydantic, validator, works
from tests.support.guests import shipped_guest
from tests.support.scale import scaled
from tests.support.schemas import ask_schema

_TABLE: dict[str, dict[str, list[str]]] = tomllib.loads(
    Path(__file__).with_name("schema_formats.toml").read_text(encoding="utf-8")
)
_UUIDS = {f"uuid{version}": read.uuid_of(version) for version in range(1, 9)}
_READERS: dict[str, tuple[Reader, ...]] = {
    "date": (validator("date"), pydantic(datetime.date)),
    "time": (validator("time"), pydantic(datetime.time)),
    "date-time": (validator("date-time"), read.date_time, pydantic(datetime.datetime)),
    "time-local": (pydantic(datetime.time), lambda text: validator("time")(text + "Z")),
    "date-time-local": (pydantic(datetime.datetime), lambda text: validator("date-time")(text + "Z")),
    "duration": (validator("duration"), pydantic(datetime.timedelta)),
    "hostname": (read.host,),
    "idn-hostname": (read.idn_host,),
    "email": (read.mail,),
    "idn-email": (validator("idn-email"),),
    "ipv4": (validator("ipv4"), works(ipaddress.IPv4Address)),
    "ipv6": (validator("ipv6"), works(ipaddress.IPv6Address)),
    "ip": (pydantic(pyd.IPvAnyAddress),),
    "ipvanyaddress": (pydantic(pyd.IPvAnyAddress),),
    "cidrv4": (read.network(ipaddress.IPv4Interface),),
    "cidrv6": (read.network(ipaddress.IPv6Interface),),
    "ipvanyinterface": (pydantic(pyd.IPvAnyInterface),),
    "ipv4network": (read.network(ipaddress.IPv4Network),),
    "ipv6network": (read.network(ipaddress.IPv6Network),),
    "ipvanynetwork": (pydantic(pyd.IPvAnyNetwork),),
    "mac": (matching(r"[0-9A-Fa-f]{2}([:-])([0-9A-Fa-f]{2}\1){4}[0-9A-Fa-f]{2}"),),
    "e164": (matching(r"\+[1-9][0-9]{6,14}"),),
    "uri": (validator("uri"), read.url),
    "uri-reference": (validator("uri-reference"),),
    "iri": (validator("iri"),),
    "iri-reference": (validator("iri-reference"),),
    "uri-template": (validator("uri-template"),),
    "multi-host-uri": (works(MultiHostUrl),),
    "json-pointer": (validator("json-pointer"),),
    "relative-json-pointer": (validator("relative-json-pointer"),),
    "uuid": (validator("uuid"),),
    **{name: (reader,) for name, reader in _UUIDS.items()},
    "ulid": (read.ulid,),
    "cuid2": (matching(r"[a-z][0-9a-z]{1,31}"),),
    "base64": (read.base64_text,),
    "base64url": (read.base64url_text,),
    "jwt": (read.jwt,),
    "regex": (works(re.compile), validator("regex")),
}


def _has_usual_host(url: str) -> bool:
    """Whether the host of a URL is a name, a number or in brackets. The web's schemes must have a host. The
    host of a file has no user and no port."""
    if re.match("file://[^/?#]*[@:]", url, re.IGNORECASE):
        return False
    found = re.match(r"[^:/?#]+://(?:[^/?#@]*@)?([^/?#]*?)(?::\d*)?(?=[/?#]|$)", url)
    if found and found[1]:
        name = re.fullmatch(r"\[.*\]|([\w-]+\.)*[a-z_][\w-]*\.?", found[1], re.IGNORECASE | re.ASCII)
        return name is not None or works(ipaddress.IPv4Address)(found[1])
    return not re.match("(https?|wss?|ftp):", url, re.IGNORECASE)


# Texts that a format leaves out although all its readers accept them.
_LEFT_OUT: dict[str, Reader] = {
    "date": matching("0000.*"),
    "time": matching(r"..:..:60.*|.*\.\d{10,}.*"),
    "date-time": matching(r"(?i)0000.*|.*T..:..:60.*|.*\.\d{10,}.*"),
    "duration": matching(r".*\d{7,}.*"),
    "email": lambda text: not re.search(r"\.([a-z]{2,}|xn--[a-z0-9-]*)$", text, re.IGNORECASE),
    "cidrv6": matching(".*%.*"),
    "ip": matching(".*%.*"),
    "ipvanyaddress": matching(".*%.*"),
    "uri": lambda text: not _has_usual_host(text) or re.match("[^:]*:([?#]|$)", text) is not None,
    "uri-template": matching(r".*\{[=,!@|].*"),
}
_ONE_WAY = [
    "idn-hostname",
    "idn-email",
    "uri-reference",
    "iri",
    "iri-reference",
    "ipv6network",
    "ipvanyinterface",
    "ipvanynetwork",
    "multi-host-uri",
    "regex",
    "ulid",
    "jwt",
]
"""Much of these is left out: mutants are compared in one direction, and only clear cases and writers in the other."""
_LEFT_OUT |= dict.fromkeys(_ONE_WAY, matching("(?s).*"))


@pytest.fixture(scope="module")
def guest() -> GuestModule:
    return shipped_guest("json_schema")


def _accepted(guest: GuestModule, name: str, texts: Sequence[str]) -> set[str]:
    schema = {"type": "string", "format": name}
    report = ask_schema(guest, schema, [json.dumps(text, ensure_ascii=False) for text in texts])
    assert report.problems == report.warnings == ()
    return {text for text, stopped in zip(texts, report.texts, strict=True) if stopped is None}


@pytest.mark.parametrize("name", _TABLE)
def test_clear_cases(guest: GuestModule, name: str) -> None:
    yes, no = _TABLE[name]["yes"], _TABLE[name]["no"]
    assert _accepted(guest, name, [*yes, *no]) == set(yes)
    for reader in _READERS.get(name, ()):
        assert [text for text in yes if not reader(text)] == []


def test_versions_of_uuids(guest: GuestModule) -> None:
    texts = [
        f"98d80576-482e-{version:x}27f-{variant}434-7f86890ab222" for version in range(16) for variant in "0789abABcf"
    ]
    for name, reader in _UUIDS.items():
        assert _accepted(guest, name, texts) == {text for text in texts if reader(text)} != set()


def test_lengths(guest: GuestModule) -> None:
    label = "a" * 63
    host = ".".join([label] * 3)
    longest = [f"{host}.{'b' * 61}", label]
    assert _accepted(guest, "hostname", [*longest, f"{host}.{'b' * 62}", f"{label}a"]) == set(longest)
    mailbox, domain = "a" * 64, f"{label}.{label}."
    valid = [f"{mailbox}@b.de", f"{mailbox}@{domain}{'c' * 61}", f"{'a.' * 31}bb@b.de"]
    assert _accepted(guest, "email", [*valid, f"{mailbox}a@b.de", f"{mailbox}@{domain}{'c' * 62}"]) == set(valid)


_INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "double-int": 54}
_NATURALS = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}


@pytest.mark.parametrize("kind", ["integer", "number"])
def test_integers(guest: GuestModule, kind: str) -> None:
    for name, bits in {**_INTEGERS, **_NATURALS}.items():
        most = 2 ** (bits if name in _NATURALS else bits - 1) - 1
        least = 0 if name in _NATURALS else -most if name == "double-int" else -most - 1
        texts = [str(least), str(most), "0", str(least - 1), str(most + 1), "1.5", f"{most}0", '"1"']
        report = ask_schema(guest, {"type": kind, "format": name}, texts)
        assert report.problems == report.warnings == ()
        assert [stopped is None for stopped in report.texts] == [True] * 3 + [False] * 5


def test_other_numbers(guest: GuestModule) -> None:
    largest = int(struct.unpack("<f", b"\xff\xff\x7f\x7f")[0])
    texts = [str(largest), str(-largest), "0.1", str(largest + 1), str(-largest - 1)]
    assert ask_schema(guest, {"type": "number", "format": "float"}, texts).texts[:3] == (None,) * 3
    assert None not in ask_schema(guest, {"type": "number", "format": "float"}, texts).texts[3:]
    for name in ("double", "decimal", "time-delta"):
        report = ask_schema(guest, {"type": "number", "format": name}, ["1.5", "-2e3", '"1"'])
        assert (report.warnings, [stopped is None for stopped in report.texts]) == ((), [True, True, False])


def test_a_format_holds_for_its_own_types(guest: GuestModule) -> None:
    report = ask_schema(guest, {"format": "int32"}, ["1", "3000000000", '"x"', "[]"])
    assert (report.warnings, [stopped is None for stopped in report.texts]) == ((), [True, False, True, True])
    report = ask_schema(guest, {"type": ["string", "null"], "format": "ipv4"}, ["null", '"1.2.3.4"', '"x"'])
    assert (report.warnings, [stopped is None for stopped in report.texts]) == ((), [True, True, False])


@pytest.mark.parametrize(
    ("schema", "text", "says"),
    [
        ({"type": "string", "format": "zip"}, '"x"', "the format zip is not known"),
        ({"type": "string", "format": "int32"}, '"x"', "the format int32 speaks of numbers, which `type` excludes"),
        ({"type": "integer", "format": "date"}, "1", "the format date speaks of strings, which `type` excludes"),
        (
            {"type": "string", "format": "date", "pattern": "x"},
            '"x"',
            "the format date is beside a pattern, which counts alone",
        ),
        ({"type": "string", "format": "password", "pattern": "x"}, '"x"', None),
        ({"type": ["integer", "string"], "format": "int32", "pattern": "x"}, '"x"', None),
    ],
)
def test_formats_that_are_not_enforced(
    guest: GuestModule, schema: dict[str, object], text: str, says: str | None
) -> None:
    report = ask_schema(guest, schema, [text])
    assert report.texts == (None,)
    assert [(warning.pointer, warning.message) for warning in report.warnings] == ([("/format", says)] if says else [])


def _moment(chance: random.Random) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(chance.uniform(-6e10, 2e11), datetime.UTC)


# Texts of independent writers.
_WRITERS: dict[str, Callable[[random.Random], str]] = {
    "date": lambda chance: _moment(chance).date().isoformat(),
    "time": lambda chance: _moment(chance).timetz().isoformat(),
    "date-time": lambda chance: _moment(chance).isoformat(),
    "ipv4": lambda chance: str(ipaddress.IPv4Address(chance.getrandbits(32))),
    "ipv6": lambda chance: str(ipaddress.IPv6Address(chance.getrandbits(128) & -(1 << chance.randrange(128)))),
    "ipv4network": lambda chance: str(ipaddress.IPv4Network((chance.getrandbits(32), chance.randrange(33)), False)),
    "uuid4": lambda chance: str(uuid.UUID(int=chance.getrandbits(128), version=4)),
    "ulid": lambda chance: str(ULID(chance.randbytes(16))),
    "base64": lambda chance: base64.b64encode(chance.randbytes(chance.randrange(9))).decode(),
    "base64url": lambda chance: base64.urlsafe_b64encode(chance.randbytes(chance.randrange(9))).decode(),
    "uri": lambda chance: urllib.parse.urlunsplit(
        ("https", "a.de", "/" + urllib.parse.quote(_noise(chance)), urllib.parse.quote(_noise(chance)), "")
    ),
    "regex": lambda chance: re.escape(_noise(chance)).replace("\\ ", " "),
}


def _noise(chance: random.Random) -> str:
    return "".join(chance.choices("abc é字()[]{}^$.*+?|\\/", k=chance.randrange(9)))


@pytest.mark.parametrize("name", _WRITERS)
def test_writers(guest: GuestModule, name: str) -> None:
    chance = random.Random(name)
    texts = [_WRITERS[name](chance) for _ in range(scaled(200))]
    assert sorted(set(texts) - _accepted(guest, name, texts)) == []


@pytest.mark.parametrize("name", _READERS)
def test_mutants(guest: GuestModule, name: str) -> None:
    chance = random.Random(name)
    texts = _mutants(_seeds(name), scaled(600), chance)
    accepted = _accepted(guest, name, texts)
    texts += _mutants(sorted(accepted), scaled(600), chance)  # a second change
    accepted = _accepted(guest, name, texts)
    readers = _READERS[name]
    assert [text for text in accepted if not all(reader(text) for reader in readers)] == []
    refused = [text for text in texts if text not in accepted and all(reader(text) for reader in readers)]
    left_out = _LEFT_OUT.get(name, lambda text: False)
    assert [text for text in refused if not left_out(text)] == []


def _seeds(name: str) -> list[str]:
    if name in _UUIDS:
        return [f"98d80576-482e-{name[-1]}27f-8434-7f86890ab222"]
    return [*_TABLE[name]["yes"], *_TABLE[name]["no"]]


def _mutants(texts: Sequence[str], count: int, chance: random.Random) -> list[str]:
    found = dict.fromkeys(texts)
    letters = sorted({*"".join(texts), *string.ascii_letters, *string.digits, *".-_:/@+=~%# éª字\u0301"})
    for _ in range(count):
        text, other = chance.choice(texts), chance.choice(texts)
        at, end = sorted((chance.randint(0, len(text)), chance.randint(0, len(text))))
        match chance.randrange(5):
            case 0:
                text = text[:at] + chance.choice(letters) + text[at + 1 :]
            case 1:
                text = text[:at] + chance.choice(letters) + text[at:]
            case 2:
                text = text[:at] + text[at + 1 :]
            case 3:
                text = text[:end] + text[at:]
            case 4:
                text = text[:at] + other[chance.randint(0, len(other)) :]
        found[text] = None
    return list(found)
