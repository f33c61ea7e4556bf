"""Forms are read as a client writes them, and as another parser reads them."""

import contextlib
import io
from email.parser import BytesParser
from email.policy import HTTP

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aici_base.errors import TooLargeError, UsageError
from aici_engine.server.gateway.multipart import FormField, read_form

_KIND = "multipart/form-data; boundary=xyz"


def _form(*parts: bytes, end: bytes = b"--xyz--\r\n") -> bytes:
    return b"".join(b"--xyz\r\n" + part + b"\r\n" for part in parts) + end


def _part(name: str, content: bytes = b"1") -> bytes:
    return f'Content-Disposition: form-data; name="{name}"\r\n\r\n'.encode() + content


def content_of(field: FormField) -> bytes:
    pieces = list(field.pieces(3))
    assert all(len(piece) == 3 for piece in pieces[:-1])
    return b"".join(pieces)


@given(st.binary(max_size=200), st.sampled_from(["a.jsonl", "ä b.jsonl", 'q"uote.jsonl', "semi;colon"]), st.text())
def test_forms_of_a_client(content: bytes, filename: str, text: str) -> None:
    request = httpx2.Request("POST", "http://it/", data={"purpose": text}, files={"file": (filename, content)})
    form = read_form(request.headers["content-type"], io.BytesIO(request.read()))
    assert form["purpose"].text() == text
    assert content_of(form["file"]) == content
    assert form["file"].filename in (filename, filename.replace('"', "%22"))


@given(st.lists(st.sampled_from([b"--xyz", b"\r\n", b"\n", b"--", b"a", b"\0", b"xyz--", b": "]), max_size=12))
def test_content_as_the_standard_library_reads_it(pieces: list[bytes]) -> None:
    content = b"".join(pieces)
    if b"\r\n--xyz" in b"\r\n" + content:
        return  # the client must choose another boundary
    body = _form(_part("file", content))
    form = read_form(_KIND, io.BytesIO(body))
    assert list(form) == ["file"]
    assert content_of(form["file"]) == content
    if b"\r" not in content and b"\n" not in content:  # the standard library takes other ends of lines for its own
        head = f"Content-Type: {_KIND}\r\n\r\n".encode()
        [other] = BytesParser(policy=HTTP).parsebytes(head + body).iter_parts()
        assert other.get_payload(decode=True) == content


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("application/json", b"{}", "is not a form"),
        ("multipart/form-data", _form(), "is not a form"),
        ("multipart/mixed; boundary=xyz", _form(), "is not a form"),
        ('multipart/form-data; boundary="\u00e4"', _form(), "RFC 2046"),
        (_KIND, b"", "ends too early"),
        (_KIND, _form(_part("a"), end=b""), "ends too early"),
        (_KIND, _form(_part("a"), _part("a")), "twice"),
        (_KIND, _form(b"no head"), "no head"),
        (_KIND, _form(b"\r\n1"), "no name"),
        (_KIND, _form(b"Content-Disposition: form-data\r\n\r\n1"), "no name"),
        (_KIND, _form(b'Content-Disposition: attachment; name="a"\r\n\r\n1'), "no name"),
        (_KIND, _form(*(_part(str(number)) for number in range(33))), "more than 32"),
    ],
)
def test_other_bodies_are_refused(kind: str, body: bytes, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_form(kind, io.BytesIO(body))


@given(st.binary(max_size=300))
def test_no_body_is_more_than_refused(body: bytes) -> None:
    for each in (body, b"--xyz\r\n" + body, _form(body)):
        with contextlib.suppress(UsageError):
            read_form(_KIND, io.BytesIO(each))


@pytest.mark.parametrize("before", range(-20, 20))
def test_a_boundary_is_found_wherever_a_large_file_ends(before: int) -> None:
    """The body is searched in blocks of a mebibyte: the boundary may lie across two."""
    content = b"x" * ((1 << 20) - 60 + before) + b"\r\n--xy"
    form = read_form(_KIND, io.BytesIO(_form(_part("file", content), _part("purpose"))))
    assert form["file"].size_bytes == len(content)
    assert form["purpose"].text() == "1"


def test_a_text_is_short() -> None:
    form = read_form(_KIND, io.BytesIO(_form(_part("purpose", b"x" * (64 << 10)), _part("file", b"x" * (65 << 10)))))
    assert len(form["purpose"].text()) == 64 << 10
    with pytest.raises(TooLargeError, match="the field file has 66560 bytes: at most 65536 are read"):
        form["file"].text()
