"""AICI REST's controllers: storing, naming and rights. The tests compile with the real compiler."""

import hashlib
import tomllib
from pathlib import Path
from typing import Any, Protocol

import pytest
from httpx2 import Response
from starlette.testclient import TestClient

from aici_controllers.catalog import SHIPPED
from aici_controllers.store import README_SECTION, Store, shipped
from aici_engine.server.api.app import create_app
from aici_engine.server.gateway.api_keys import Keys
from aici_engine.server.service.admission import Admission
from aici_engine.server.service.service import Service
from aici_runtime.modules.custom_sections import with_custom_section
from tests.engine.server.gateway.test_api_keys import key_file
from tests.runtime.support import wat
from tests.support import large_module
from tests.support.fake_engine import FakeEngine
from tests.support.fake_service import fake_service
from tests.support.model import default_model_dir

WASM = wat.plain()
HEX = hashlib.sha256(WASM).hexdigest()
REGEX = hashlib.sha256(shipped()["regex"].read_bytes()).hexdigest()
URL = "/v1/controllers"
KEYS = """
[keys.ann]
key = "ann"

[keys.bob]
key = "bob"

[keys.eve]
key = "eve"
upload = false
controllers = ["regex"]

[keys.root]
key = "root"
admin = true
"""


class Ask(Protocol):
    def __call__(self, method: str, path: str, *, key: str = "root", **given: Any) -> Response: ...


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    service, _ = fake_service()
    service.store = Store(tmp_path / "store")
    api = TestClient(create_app(service, keys=Keys(key_file(tmp_path, KEYS))), raise_server_exceptions=False)

    def ask(method: str, path: str, *, key: str = "root", **given: Any) -> Response:
        headers = {"api-key": key} | given.pop("headers", {})
        answer: Response = api.request(method, f"{URL}{path}", headers=headers, **given)
        return answer

    return ask


def tag(ask: Ask, *tags: str, key: str = "root", module_id: str = HEX) -> Response:
    return ask("POST", "/tags", key=key, json={"module_id": module_id, "tags": tags})


def listed(ask: Ask) -> dict[str, dict[str, Any]]:
    return {each["module_id"]: each for each in ask("GET", "").json()["controllers"]}


def tags(ask: Ask) -> dict[str, dict[str, Any]]:
    told = ask("GET", "/tags").json()["tags"]
    assert [tag["updated_at"] for tag in told] == sorted((tag["updated_at"] for tag in told), reverse=True)
    return {tag["tag"]: tag for tag in sorted(told, key=lambda tag: str(tag["tag"]))}


def test_from_upload_to_removal(ask: Ask) -> None:
    uploaded = ask("POST", "", content=WASM).json()
    assert set(uploaded) == {"module_id", "wasm_size", "compiled_size", "time"}
    assert (uploaded["module_id"], uploaded["wasm_size"]) == (HEX, len(WASM))
    [told] = tag(ask, "mine").json()["tags"]
    assert tags(ask)["mine"] == told
    assert (told["tag"], told["module_id"], told["updated_by"]) == ("mine", HEX, "root")
    assert (told["wasm_size"], told["compiled_size"]) == (len(WASM), uploaded["compiled_size"])
    module = listed(ask)[HEX]
    assert (module["tags"], module["created_by"], module["compiled_size"]) == (
        ["mine"],
        "root",
        uploaded["compiled_size"],
    )
    refused = ask("DELETE", f"/{HEX}")
    assert (refused.status_code, refused.json()["code"]) == (409, "in_use_error")
    assert "mine" in refused.json()["message"]
    assert ask("DELETE", f"/{HEX}?force=true").json() == {"module_id": HEX, "tags": ["mine"]}
    assert ask("DELETE", f"/{HEX}").status_code == 404
    assert HEX not in listed(ask)
    assert list(tags(ask)) == list(shipped())


def test_shipped_controllers_are_there_from_the_start(ask: Ask) -> None:
    modules = ask("GET", "").json()["controllers"]
    assert [module["tags"][0] for module in modules] == list(shipped()) == list(tags(ask))
    assert (tags(ask)["regex"]["updated_by"], tags(ask)["regex"]["module_id"]) == ("aici", REGEX)
    regex = listed(ask)[REGEX]
    assert (regex["compiled_size"], regex["created_by"]) == (None, "aici")
    assert ask("GET", "/regex").content == shipped()["regex"].read_bytes()
    assert tag(ask, "of-mine", module_id=REGEX).status_code == 200
    assert listed(ask)[REGEX]["tags"] == ["regex", "of-mine"]
    for path in (f"/{REGEX}", f"/{REGEX}?force=true", "/tags/regex"):
        refused = ask("DELETE", path)
        assert (refused.status_code, refused.json()["code"]) == (403, "permission_error")
    assert listed(ask)[REGEX]["tags"] == ["regex", "of-mine"]


def test_bytes_come_with_their_id(ask: Ask) -> None:
    ask("POST", "", content=WASM)
    tag(ask, "größe")
    for name in (HEX, "größe"):
        answer = ask("GET", f"/{name}")
        assert (answer.content, answer.headers["etag"]) == (WASM, f'"{HEX}"')
        assert answer.headers["content-type"] == "application/wasm"
        assert ask("GET", f"/{name}", headers={"If-None-Match": f'"{HEX}"'}).status_code == 304
        assert ask("GET", f"/{name}", headers={"If-None-Match": f'"{REGEX}"'}).content == WASM
    assert ask("DELETE", "/tags/größe").json() == {"tag": "größe"}
    missing = ask("GET", "/größe")
    assert (missing.status_code, missing.json()["message"]) == (404, "tag größe not found")
    assert ask("GET", "/regexx").json()["hint"] == "did you mean regex?"
    assert ask("GET", f"/{'0' * 64}").status_code == 404


def test_rights_of_keys(ask: Ask) -> None:
    assert ask("GET", "", key="nobody").status_code == 401
    assert ask("POST", "?share=true", key="ann", content=WASM).status_code == 200
    assert tag(ask, "mine", key="ann").json()["message"] == "permission denied for tag name"
    assert tag(ask, "ann.x", key="ann").status_code == tag(ask, "bob.x", key="bob").status_code == 200
    refusals = [
        lambda: ask("POST", "", key="eve", content=WASM),
        lambda: tag(ask, "eve.x", key="eve"),
        lambda: ask("DELETE", "/tags/ann.x", key="eve"),
        lambda: ask("DELETE", f"/{HEX}", key="eve"),
        lambda: ask("GET", "/ann.x", key="eve"),
        lambda: ask("GET", f"/{HEX}", key="eve"),
        lambda: ask("DELETE", "/tags/ann.x", key="bob"),
        lambda: ask("DELETE", f"/{HEX}?force=true", key="bob"),
        lambda: ask("DELETE", f"/{HEX}?force=true", key="ann"),  # a tag of bob names the module
    ]
    for number, refused in enumerate(refusals):
        assert refused().status_code == 403, number
    assert ask("GET", "/regex", key="eve").status_code == 200
    assert listed(ask)[HEX]["tags"] == ["ann.x", "bob.x"]
    assert ask("DELETE", "/tags/bob.x", key="bob").status_code == 200
    assert ask("DELETE", f"/{HEX}?force=true", key="ann").json()["tags"] == ["ann.x"]


@pytest.mark.parametrize(
    ("path", "given", "status", "said"),
    [
        ("", {"content": b"#!/bin/sh"}, 400, "not a WebAssembly module"),
        ("", {"content": b"\0asm\1\0\0\0junk"}, 400, "cannot compile the module"),
        ("", {"content": b"\0asm\1\0\0\0"}, 400, "the module is not a controller; does not export its memory"),
        ("/tags", {"json": {"module_id": HEX, "tags": ["regex"]}}, 400, "regex is a name of aici's own"),
        ("/tags", {"json": {"module_id": HEX, "tags": ["ok", "none"]}}, 400, "none is a name of aici's own"),
        ("/tags", {"json": {"module_id": HEX, "tags": ["tags"]}}, 400, "tags is a name of aici's own"),
        ("/tags", {"json": {"module_id": "regex", "tags": ["x"]}}, 400, "invalid module_id"),
        ("/tags", {"json": {"module_id": "0" * 64, "tags": ["x"]}}, 404, "not found"),
        ("/tags", {"json": {"module_id": HEX, "tags": ["ok", "1"]}}, 400, "tag name not identifier"),
        ("/tags", {"json": {"module_id": HEX, "tags": []}}, 400, "at least one"),
        ("/tags", {"json": {"module_id": HEX}}, 400, "tags is missing"),
        ("/tags", {"content": b"{", "headers": {"Content-Type": "application/json"}}, 400, "not valid JSON"),
        ("/tags", {"json": []}, 422, "not a JSON object"),
    ],
)
def test_a_refused_request_changes_nothing(ask: Ask, path: str, given: dict[str, Any], status: int, said: str) -> None:
    before = listed(ask)
    answer = ask("POST", path, **given)
    assert answer.status_code == status, answer.text
    assert said in answer.json()["message"]
    assert listed(ask) == before
    assert list(tags(ask)) == list(shipped())


def test_a_fixed_name_wins_over_a_tag(tmp_path: Path) -> None:
    """A tag of the shared registry, possibly set by another server, does not replace a fixed name."""
    mine = tmp_path / "mine.wasm"
    mine.write_bytes(WASM)
    engine = FakeEngine()
    service = Service(
        engine.client,
        model_dir=default_model_dir(),
        name="it",
        admission=Admission(8),
        store=Store(tmp_path / "store", fixed={"mine": mine}),
    )
    api = TestClient(create_app(service))
    assert api.post("/v1/run", json={"controller": "mine", "controller_arg": ""}).status_code == 200
    assert engine.submitted[0].controller == HEX
    assert [module["tags"] for module in api.get(URL).json()["controllers"]] == [["mine"]]


class TestVisibility:
    """A key sees the controllers that it has uploaded, those of the server, and shared ones."""

    def sees(self, ask: Ask, key: str) -> bool:
        """Whether the key sees the module of these tests; every way must say the same."""
        answers = {
            HEX in {module["module_id"] for module in ask("GET", "", key=key).json()["controllers"]},
            "ann.x" in {tag["tag"] for tag in ask("GET", "/tags", key=key).json()["tags"]},
            ask("GET", f"/{HEX}", key=key).status_code == 200,
            ask("GET", "/ann.x", key=key).status_code == 200,
        }
        assert len(answers) == 1
        return answers.pop()

    def test_of_an_upload(self, ask: Ask) -> None:
        ask("POST", "", key="ann", content=WASM)
        assert tag(ask, "ann.x", key="ann").status_code == 200
        assert [self.sees(ask, key) for key in ("ann", "bob", "root")] == [True, False, True]
        missing = "0" * 64
        for method, path, given in (
            ("GET", "/{}", {}),
            ("DELETE", "/{}", {}),
            ("DELETE", "/{}?force=true", {}),
        ):
            hidden, absent = (ask(method, path.format(each), key="bob", **given) for each in (HEX, missing))
            assert hidden.status_code == absent.status_code == 404
            assert hidden.text.replace(HEX, missing) == absent.text
        for share in (False, True):
            hidden, absent = (
                ask("POST", "/tags", key="bob", json={"module_id": each, "tags": ["bob.x"], "share": share})
                for each in (HEX, missing)
            )
            assert hidden.status_code == 404
            assert hidden.text.replace(HEX, missing) == absent.text
        assert ask("GET", "/regex", key="bob").status_code == 200

    @pytest.mark.parametrize("by_tag", [True, False])
    def test_sharing(self, ask: Ask, by_tag: bool) -> None:
        ask("POST", "" if by_tag else "?share=true", key="ann", content=WASM)
        shared = {"module_id": HEX, "tags": ["ann.x"], "share": by_tag}
        assert ask("POST", "/tags", key="ann", json=shared).status_code == 200
        assert [self.sees(ask, key) for key in ("ann", "bob", "root")] == [True, True, True]
        [module] = [each for each in ask("GET", "", key="bob").json()["controllers"] if each["module_id"] == HEX]
        assert (module["shared"], module["created_by"]) == (True, "ann")
        assert ask("DELETE", f"/{HEX}?force=true", key="bob").status_code == 403
        assert tag(ask, "bob.x", key="bob").status_code == 200

    def test_the_same_bytes_of_two_keys(self, ask: Ask) -> None:
        ask("POST", "", key="ann", content=WASM)
        tag(ask, "ann.x", key="ann")
        assert ask("POST", "", key="bob", content=WASM).json()["module_id"] == HEX
        tag(ask, "bob.x", key="bob")
        for key in ("ann", "bob"):
            [module] = [each for each in ask("GET", "", key=key).json()["controllers"] if each["module_id"] == HEX]
            assert (module["shared"], module["created_by"]) == (False, key)
        assert ask("DELETE", f"/{HEX}", key="ann").status_code == 409
        assert ask("DELETE", f"/{HEX}?force=true", key="ann").json()["tags"] == ["ann.x"]
        assert ask("GET", f"/{HEX}", key="ann").status_code == 404
        assert ask("GET", "/bob.x", key="bob").content == WASM
        assert ask("DELETE", f"/{HEX}?force=true", key="bob").json()["tags"] == ["bob.x"]
        assert ask("GET", f"/{HEX}", key="root").status_code == 404

    def test_runs(self, tmp_path: Path) -> None:
        engine = FakeEngine()
        service = Service(
            engine.client, model_dir=default_model_dir(), name="it", admission=Admission(8), store=Store(tmp_path / "s")
        )
        api = TestClient(create_app(service, keys=Keys(key_file(tmp_path, KEYS))))

        def run(key: str, controller: str) -> Response:
            body = {"controller": controller, "controller_arg": ""}
            answer: Response = api.post("/v1/run", json=body, headers={"api-key": key})
            return answer

        api.post(URL, content=WASM, headers={"api-key": "ann"})
        api.post(f"{URL}/tags", json={"module_id": HEX, "tags": ["ann.x"]}, headers={"api-key": "ann"})
        for name in (HEX, "ann.x"):
            assert [run(key, name).status_code for key in ("ann", "bob", "root")] == [200, 404, 200]
        assert run("bob", HEX).text.replace(HEX, "0" * 64) == run("bob", "0" * 64).text
        assert {call.controller for call in engine.submitted} == {HEX, "ann.x"}

    def test_without_keys_all_is_seen(self, tmp_path: Path) -> None:
        service, _ = fake_service()
        service.store = Store(tmp_path / "store")
        api = TestClient(create_app(service))
        assert api.post(URL, content=WASM).status_code == 200
        [module] = [each for each in api.get(URL).json()["controllers"] if each["module_id"] == HEX]
        assert (module["shared"], module["created_by"]) == (True, "localhost")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "application/wasm"}, 200),
        ({"content-type": "Application/Wasm; v=1"}, 200),
        ({"content-type": "application/octet-stream"}, 200),
        ({}, 200),  # upstream AICI's client names no type
        ({"origin": "http://testserver"}, 415),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "text/plain;charset=UTF-8"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": "multipart/form-data; boundary=x"}, 415),
        ({"content-type": ""}, 415),
    ],
)
def test_media_types_of_uploads(ask: Ask, headers: dict[str, str], status: int) -> None:
    answer = ask("POST", "", content=WASM, headers=headers)
    assert answer.status_code == status
    if status == 415:
        assert answer.json()["hint"] == "send the header Content-Type: application/wasm"
        assert HEX not in listed(ask)


class TestQuotas:
    @pytest.fixture
    def ask(self, tmp_path: Path) -> Ask:
        keys = (
            KEYS
            + """
[keys.two]
key = "two"
max_modules = 2

[keys.small]
key = "small"
max_stored_mib = 1

[keys.rare]
key = "rare"
uploads_per_hour = 2
"""
        )
        service, _ = fake_service()
        service.store = Store(tmp_path / "store", is_bounded=True)
        api = TestClient(create_app(service, keys=Keys(key_file(tmp_path, keys))), raise_server_exceptions=False)

        def ask(method: str, path: str, *, key: str = "root", **given: Any) -> Response:
            answer: Response = api.request(method, f"{URL}{path}", headers={"api-key": key}, **given)
            return answer

        return ask

    def upload(self, ask: Ask, number: int, key: str) -> Response:
        return ask("POST", "", key=key, content=wat.Module().build(create=f"(i32.const {number})"))

    def test_of_modules(self, ask: Ask) -> None:
        one, two = (self.upload(ask, number, "two").json()["module_id"] for number in range(2))
        for number, module_id in enumerate((one, two)):
            assert tag(ask, f"two.{'xy'[number]}", key="two", module_id=module_id).status_code == 200
        full = self.upload(ask, 3, "two")
        assert full.status_code == 507
        assert full.json() == {
            "message": "too many modules for one user (at most 2)",
            "hint": "remove controllers no longer needed",
            "code": "quota_error",
        }
        assert self.upload(ask, 3, "ann").status_code == 200
        ask("DELETE", "/tags/two.x", key="two")
        three = self.upload(ask, 3, "two").json()["module_id"]
        assert [ask("GET", f"/{each}", key="two").status_code for each in (one, two, three)] == [404, 200, 200]

    def test_of_bytes(self, ask: Ask) -> None:
        padded = [large_module.padded(wat.plain() + bytes([0, 2, 1, number]), 300_000) for number in range(4)]
        for wasm in padded[:3]:
            assert ask("POST", "", key="small", content=wasm).status_code == 200
        stored = ask("GET", "", key="small").json()["controllers"]
        assert sum(module["created_by"] == "small" for module in stored) == 3
        assert ask("POST", "", key="small", content=padded[3]).status_code == 200
        stored = ask("GET", "", key="small").json()["controllers"]
        assert sum(module["created_by"] == "small" for module in stored) == 3  # the first made room

    def test_of_uploads_an_hour(self, ask: Ask) -> None:
        assert [self.upload(ask, 1, "rare").status_code for _ in range(3)] == [200, 200, 429]
        refused = self.upload(ask, 1, "rare")
        assert refused.json()["message"] == "the key rare may upload 2 controllers an hour"
        assert 1_700 < int(refused.headers["retry-after"]) <= 1_800


def test_readmes_of_shipped_and_of_uploaded_modules(ask: Ask) -> None:
    shipped_one = ask("GET", "/regex/readme", key="eve")
    assert shipped_one.headers["content-type"].startswith("text/markdown")
    assert shipped_one.text == Path("controllers/guests/regex/README.md").read_text()
    assert ask("GET", "/grammar/readme", key="eve").status_code == 403
    documented = with_custom_section(WASM, README_SECTION, "# Mine ü".encode() + b"\xff")
    module_id = ask("POST", "", content=documented, key="ann").json()["module_id"]
    assert ask("GET", f"/{module_id}/readme", key="ann").text == "# Mine ü\ufffd"
    assert ask("GET", f"/{module_id}/readme", key="bob").status_code == 404
    ask("POST", "", content=WASM, key="ann")
    missing = ask("GET", f"/{HEX}/readme", key="ann")
    assert (missing.status_code, "aici.readme" in missing.json()["hint"]) == (404, True)


def test_the_package_has_the_readme_of_every_shipped_controller() -> None:
    included = tomllib.loads(Path("pyproject.toml").read_text())
    readmes = included["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert {path: to for path, to in readmes.items() if to.startswith("aici_controllers/readmes/")} == {
        f"controllers/guests/{name}/README.md": f"aici_controllers/readmes/{name}.md" for name in SHIPPED
    }
