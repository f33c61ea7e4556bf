"""The page *Controllers*: a module is dropped, tagged, read about and removed; keys see what is theirs."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from aici_controllers.store import README_SECTION
from aici_runtime.modules.custom_sections import with_custom_section
from tests.engine.server.gateway.test_api_keys import key_file
from tests.runtime.support import wat
from tests.support.console import OpenPage, screenshot, serious_findings, sign_in
from tests.support.server import Server, serving

pytestmark = pytest.mark.e2e
expect.set_options(timeout=30_000)

KEYS = """
[keys.ann]
key = "sk-ann"

[keys.bob]
key = "sk-bob"

[keys.eve]
key = "sk-eve"
upload = false
"""
README = "# Counts\n\nSee <script>document.title = 'run'</script> [a link](javascript:alert(1)).\n"
WASM = with_custom_section(wat.plain(), README_SECTION, README.encode())


@pytest.fixture(scope="module")
def with_keys(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    keys = key_file(tmp_path_factory.mktemp("keys"), KEYS)
    with serving("--api-key-file", str(keys)) as server:
        yield server


def controllers(open_page: OpenPage, server: Server, key: str) -> Page:
    page = open_page(f"{server.url}/console/controllers", allowed="401|404")
    sign_in(page, key)
    expect(page.get_by_role("button", name="regex", exact=True)).to_be_visible()
    return page


def rows(page: Page) -> Locator:
    return page.get_by_role("region", name="Controllers of this server").get_by_role("row")


def drop(page: Page, name: str, content: bytes) -> None:
    files = page.evaluate_handle(
        """([name, content]) => {
            const files = new DataTransfer();
            files.items.add(new File([new Uint8Array(content)], name));
            return files;
        }""",
        [name, list(content)],
    )
    page.get_by_role("group", name="Upload controllers").dispatch_event("drop", {"dataTransfer": files})


def test_a_module_is_dropped_tagged_read_about_and_removed(with_keys: Server, open_page: OpenPage) -> None:
    page = controllers(open_page, with_keys, "sk-ann")
    drop(page, "no module.wasm", b"text")
    expect(page.get_by_role("alert")).to_have_text("no module.wasm: This is not a WebAssembly module.")
    drop(page, "my counts.wasm", WASM)
    tag = page.get_by_role("textbox")
    expect(tag).to_have_value("ann.my-counts")
    tag.fill("ann.counts")
    tag.press("Enter")
    row = rows(page).filter(has_text="ann.counts")
    expect(row).to_contain_text("ann")
    page.reload()
    expect(row).to_have_count(1)
    screenshot(page, "controllers-uploaded")
    assert serious_findings(page) == []
    row.get_by_role("rowheader").get_by_role("button").click()
    about = page.get_by_role("dialog")
    expect(about.get_by_role("heading", name="Counts", exact=True)).to_be_visible()
    expect(about).to_contain_text("<script>")
    assert about.locator("a[href^='javascript']").count() == 0
    about.get_by_role("button", name="Close").click()
    row.get_by_role("button", name="Remove the tag ann.counts").click()
    expect(row).to_have_count(0)
    # Servers of other tests use the same store, so that the rows of others come and go.
    mine = rows(page).filter(has=page.get_by_role("button", name="Remove"))
    expect(mine).to_have_count(1)
    mine.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(mine).to_have_count(0)


def test_a_key_sees_its_own_controllers_and_what_it_may_do(with_keys: Server, open_page: OpenPage) -> None:
    ann, bob = controllers(open_page, with_keys, "sk-ann"), controllers(open_page, with_keys, "sk-bob")
    drop(ann, "anns.wasm", WASM)
    expect(rows(ann).filter(has_text="ann")).to_have_count(1)
    bob.reload()
    expect(rows(bob).filter(has_text="regular expression")).to_have_count(1)
    assert rows(bob).count() == rows(ann).count() - 1
    eve = controllers(open_page, with_keys, "sk-eve")
    assert eve.get_by_role("group", name="Upload controllers").count() == 0
    assert eve.get_by_role("button", name="Tag").count() == 0
    rows(ann).filter(has_text="ann").get_by_role("button", name="Remove").click()
    ann.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(rows(ann)).to_have_count(rows(bob).count())


def test_the_readme_of_a_shipped_controller(with_keys: Server, open_page: OpenPage) -> None:
    page = controllers(open_page, with_keys, "sk-eve")
    page.get_by_role("button", name="regex", exact=True).press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("as a whole")
    screenshot(page, "controllers-readme")
    assert serious_findings(page) == []
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
