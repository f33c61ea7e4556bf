"""API keys: valid and invalid files, the ways to send a key, and the rights of a key."""

import base64
import hashlib
import logging
from pathlib import Path

import pytest
from starlette.requests import HTTPConnection

from aici_base.errors import ForbiddenError, RateLimitError, UnauthorizedError, UnavailableError, UsageError
from aici_engine.request import Share
from aici_engine.server.gateway.api_keys import Keys
from aici_engine.server.service.admission import Admission, Principal
from tests.support.admission import pass_through
from tests.support.lmtp import run

ALICE = "sk-alice"
FILE = f"""
[keys.alice]
key = "{ALICE}"
admin = true

[keys.bob]
sha256 = "{hashlib.sha256(b"sk-bob").hexdigest()}"
upload = false
controllers = ["regex", "my-.*"]
requests_per_minute = 2
max_concurrency = 3
"""


def key_file(folder: Path, text: str = FILE) -> Path:
    path = folder / "keys.toml"
    path.write_text(text)
    path.chmod(0o600)
    return path


def connection(headers: dict[str, str] | None = None, *, query: str = "", kind: str = "http") -> HTTPConnection:
    raw = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    return HTTPConnection({"type": kind, "headers": raw, "query_string": query.encode(), "path": "/"})


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


@pytest.mark.parametrize(
    "shown",
    [
        connection({"authorization": f"Bearer {ALICE}"}),
        connection({"authorization": f"bearer  {ALICE} "}),
        connection({"authorization": basic(f"anybody:{ALICE}")}),
        connection({"x-api-key": ALICE}),
        connection({"api-key": ALICE}),
        connection(query=f"api_key={ALICE}", kind="websocket"),
    ],
)
def test_a_key_is_taken_as_each_protocol_sends_it(tmp_path: Path, shown: HTTPConnection) -> None:
    assert Keys(key_file(tmp_path)).principal_of(shown).name == "alice"


@pytest.mark.parametrize(
    "shown",
    [
        connection(),
        connection({"authorization": ""}),
        connection({"authorization": ALICE}),
        connection({"authorization": "Bearer sk-alic"}),
        connection({"authorization": f"Bearer {ALICE}x"}),
        connection({"authorization": "Bearer wrong", "x-api-key": ALICE}),
        connection({"authorization": f"Bearer {hashlib.sha256(b'sk-bob').hexdigest()}"}),
        connection({"authorization": "Basic %%%"}),
        connection({"authorization": basic(ALICE)}),
        connection({"x-api-key": "\xff"}),
        connection(query=f"api_key={ALICE}"),
    ],
)
def test_a_missing_or_wrong_key_is_refused(tmp_path: Path, shown: HTTPConnection) -> None:
    with pytest.raises(UnauthorizedError):
        Keys(key_file(tmp_path)).principal_of(shown)


def test_without_a_file_everybody_may_do_all() -> None:
    assert Keys().principal_of(connection({"authorization": "Bearer whatever"})) == Principal()


def test_the_rights_of_a_key(tmp_path: Path) -> None:
    bob = Keys(key_file(tmp_path)).principal_of(connection({"api-key": "sk-bob"}))
    assert not bob.is_admin
    bob.check_controller("regex")
    bob.check_controller("my-own")
    for forbidden in ("grammar", "xregex", "regex2", ""):
        with pytest.raises(ForbiddenError, match="bob"):
            bob.check_controller(forbidden)
    with pytest.raises(ForbiddenError, match="bob"):
        bob.check_upload()
    Principal().check_upload()
    Principal().check_controller("anything")


def test_the_share_and_the_priorities_of_a_key(tmp_path: Path) -> None:
    text = "[keys.a]\nkey = 'a'\nweight = 3\nmax_concurrency = 4\n[keys.b]\nkey = 'b'\nmin_priority = -2\n"
    keys = Keys(key_file(tmp_path, text + "[keys.c]\nkey = 'c'\nadmin = true"))
    plain, urgent, admin = (keys.principal_of(connection({"api-key": key})) for key in "abc")
    assert plain.share == Share(owner="a", weight=3, most=4)
    assert urgent.share == Share(owner="b")
    plain.check_priority(0)
    plain.check_priority(7)
    urgent.check_priority(-2)
    admin.check_priority(-1000)
    Principal().check_priority(-1000)
    for principal, priority, least in ((plain, -1, 0), (urgent, -3, -2)):
        with pytest.raises(ForbiddenError, match=f"may not ask for priority {priority}") as error:
            principal.check_priority(priority)
        assert f"ask for {least} or more" in (error.value.hint or "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a file of API keys"),
        ("[keys]", "is not a file of API keys"),
        ("[users.a]\nkey = 'k'", "is not a file of API keys"),
        ("[keys.a", "cannot read"),
        ("[keys]\na = 'k'", "keys.a is not a table"),
        ("[keys.a]", "needs either key or sha256"),
        ("[keys.a]\nkey = 'k'\nsha256 = 'k'", "needs either key or sha256"),
        ("[keys.a]\nkey = ''", "is empty"),
        ("[keys.a]\nsha256 = 'abc'", "64 hexadecimal digits"),
        ("[keys.a]\nkey = 'k'\nmax_concurency = 1", "did you mean max_concurrency"),
        ("[keys.a]\nkey = 'k'\nupload = 0", "must be of type bool, not int"),
        ("[keys.a]\nkey = 'k'\nmax_concurrency = 0", "must be 1 or more"),
        ("[keys.a]\nkey = 'k'\nweight = 0", "must be 1 or more"),
        ("[keys.a]\nkey = 'k'\nrequests_per_minute = true", "must be of type int, not bool"),
        ("[keys.a]\nkey = 'k'\ncontrollers = ['(']", "is not a valid regex"),
        ("[keys.a]\nkey = 'k'\ncontrollers = [1]", "must be a list of strings"),
        ("[keys.a]\nkey = 'k'\n[keys.b]\nkey = 'k'", "are the same key"),
        (f"[keys.a]\nkey = 'k'\n[keys.b]\nsha256 = '{hashlib.sha256(b'k').hexdigest()}'", "are the same key"),
    ],
)
def test_an_invalid_file_is_refused_and_the_message_names_the_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        Keys(key_file(tmp_path, text))
    assert said in f"{error.value} {error.value.hint}"


def test_a_missing_or_world_writable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file of API keys"):
        Keys(tmp_path / "none.toml")
    path = key_file(tmp_path)
    path.chmod(0o602)
    with pytest.raises(UsageError, match="every user of this machine can write"):
        Keys(path)


def test_a_world_readable_file_of_keys_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = key_file(tmp_path)
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        Keys(path)
    assert "chmod 600" in caplog.text


def test_keys_are_read_again_unless_they_are_wrong(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = key_file(tmp_path)
    keys = Keys(path)
    path.write_text("[keys.carol]\nkey = 'sk-carol'")
    keys.reload()
    assert keys.principal_of(connection({"api-key": "sk-carol"})).name == "carol"
    with pytest.raises(UnauthorizedError):
        keys.principal_of(connection({"api-key": ALICE}))
    path.write_text("[keys.carol")
    keys.reload()
    assert keys.principal_of(connection({"api-key": "sk-carol"})).name == "carol"
    assert "stay as they were" in caplog.text
    assert "sk-carol" not in caplog.text


@run
async def test_requests_a_minute_come_back_with_time() -> None:
    now = 0.0
    admission = Admission(8, clock=lambda: now)
    principal = Principal(name="bob", requests_per_minute=2)
    await admission.count(principal)
    await admission.count(principal)
    with pytest.raises(RateLimitError) as error:
        await admission.count(principal)
    assert error.value.retry_after_s == 30
    await admission.count(Principal(name="alice", requests_per_minute=1))
    now = 29.9
    with pytest.raises(RateLimitError):
        await admission.count(principal)
    now = 30.0
    await admission.count(principal)
    now = 1000.0
    await admission.count(principal)
    await admission.count(principal)
    with pytest.raises(RateLimitError):
        await admission.count(principal)


@run
async def test_a_full_queue_has_room_for_administrators() -> None:
    admission = Admission(32)
    plain = Principal(name="bob", is_admin=False)
    async with admission.admit(plain, 30):
        with pytest.raises(RateLimitError, match="full"):
            await pass_through(admission, plain, 1)
        async with admission.admit(Principal(name="root"), 2):
            assert admission.num_admitted == 32
    with pytest.raises(UsageError, match="takes 30"):
        await pass_through(admission, plain, 31)


@run
async def test_sequences_at_a_time() -> None:
    admission = Admission(4)
    principal = Principal(name="bob", max_concurrency=2)
    async with admission.admit(principal, 2):
        with pytest.raises(RateLimitError, match="bob may have 2"):
            await pass_through(admission, principal, 1)
        async with admission.admit(Principal(), 2):
            with pytest.raises(RateLimitError, match="full"):
                await pass_through(admission, principal, 1)
    await pass_through(admission, principal, 1)
    assert admission.num_admitted == 0
    with pytest.raises(UsageError, match="needs 3 sequences: the key bob may have 2"):
        await pass_through(admission, principal, 3)
    with pytest.raises(UsageError, match="takes 4"):
        await pass_through(admission, Principal(), 5)
    admission.drain_begun.set()
    with pytest.raises(UnavailableError, match="stopping"):
        await pass_through(admission, principal, 1)
