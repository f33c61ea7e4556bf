"""The chat page: answers under constraints, stop, branches, conversations that are kept, and hostile texts."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support.cli import AICI
from tests.support.console import OpenPage, screenshot, serious_findings
from tests.support.processes import wait_until
from tests.support.server import Server

pytestmark = pytest.mark.e2e
expect.set_options(timeout=30_000)


@pytest.fixture
def chat(server: Server, open_page: OpenPage) -> Page:
    return opened(open_page, server)


def opened(open_page: OpenPage, server: Server, **settings: object) -> Page:
    page = open_page(f"{server.url}/console/chat", **settings)
    page.get_by_label("Temperature").fill("0")
    return page


def ask(page: Page, text: str) -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def answered(page: Page, number: int = 1) -> None:
    """Wait for the end of the answer with this number on the page."""
    answer = page.locator("article.assistant").nth(number - 1)
    expect(answer.get_by_role("button", name="Regenerate")).to_be_enabled()


def constrain(page: Page, kind: str, text: str) -> None:
    page.get_by_label("Constraint").select_option(label=kind)
    page.get_by_label(kind, exact=True).fill(text)
    page.get_by_text("The server takes this constraint.").wait_for()


def is_free(server: Server) -> Callable[[], bool]:
    def free() -> bool:
        stats = server.stats()
        return {stats[name] for name in ("active_requests", "waiting_requests", "cache_usage")} == {0}

    return free


def test_stopping_an_answer_frees_its_sequence(chat: Page, server: Server) -> None:
    constrain(chat, "Regular expression", "[a-z ]{3000}")
    ask(chat, "Write letters.")
    chat.locator("article.assistant .markdown").wait_for()
    assert wait_until(lambda: server.stats()["active_requests"] == 1, 30)
    assert server.stats()["cache_usage"] > 0
    expect(chat.locator(".figures")).to_contain_text("tokens/s")
    chat.keyboard.press("Escape")
    expect(chat.locator("article.assistant")).to_contain_text("stopped")
    assert wait_until(is_free(server), 30)
    text = chat.locator("article.assistant .markdown").inner_text()
    assert re.fullmatch(r"[a-z ]{1,2999}", text)
    expect(chat.get_by_label("Message", exact=True)).to_be_focused()


def test_branches_continue_and_reload(chat: Page) -> None:
    chat.get_by_label("Max tokens").fill("5")
    ask(chat, "Count to twenty.")
    answered(chat)
    first = chat.locator("article.assistant .markdown").inner_text()
    expect(chat.locator("article.assistant")).to_contain_text("cut at the limit of tokens")
    chat.get_by_role("button", name="Continue").click()
    expect(chat.locator("article.assistant .markdown")).not_to_have_text(first)
    answered(chat)
    longer = chat.locator("article.assistant .markdown").inner_text()
    assert longer.startswith(first)
    chat.get_by_role("button", name="Regenerate").click()
    expect(chat.locator("article.assistant .branches")).to_contain_text("2/2")
    # The button is enabled for a moment before the answer begins.
    expect(chat.locator("article.assistant .markdown")).to_have_text(first)
    answered(chat)
    chat.get_by_label("Message", exact=True).focus()
    chat.keyboard.press("ArrowUp")
    chat.get_by_label("Edited message").fill("Name a colour.")
    chat.keyboard.press("Control+Enter")
    expect(chat.locator("article.user .branches")).to_contain_text("2/2")
    answered(chat)
    chat.locator("article.user").get_by_role("button", name="Previous branch").click()
    expect(chat.locator("article.user")).to_contain_text("Count to twenty.")
    expect(chat.locator("article.assistant .branches")).to_contain_text("2/2")
    previous = chat.locator("article.assistant").get_by_role("button", name="Previous branch")
    previous.focus()
    chat.keyboard.press("Enter")
    expect(chat.locator("article.assistant .markdown")).to_have_text(longer)
    expect(previous).to_be_focused()
    screenshot(chat, "chat-branches")
    chat.wait_for_timeout(700)  # the conversation is kept half a second after a change
    chat.reload()
    chat.get_by_role("button", name="Count to twenty.", exact=True).click()
    expect(chat.locator("article.assistant .markdown")).to_have_text(longer)
    expect(chat.get_by_label("Max tokens")).to_have_value("5")
    chat.keyboard.press("Alt+n")
    expect(chat.locator("article")).to_have_count(0)


@pytest.mark.parametrize(
    ("kind", "text", "pattern"),
    [
        ("Choices", "tea\ncoffee", "tea|coffee"),
        (
            "JSON Schema",
            '{"type": "object", "properties": {"hot": {"type": "boolean"}}, "required": ["hot"]}',
            r'\{"hot": (true|false)\}',
        ),
        ("Grammar", 'root ::= "<b>" [0-9] "</b>"', "<b>[0-9]</b>"),
    ],
)
def test_an_answer_keeps_to_its_constraint(chat: Page, kind: str, text: str, pattern: str) -> None:
    constrain(chat, kind, text)
    ask(chat, "Is tea hot?")
    answered(chat)
    answer = chat.locator("article.assistant .markdown").inner_text()
    assert re.fullmatch(pattern, answer)
    expect(chat.locator("h1 + [role=status]")).to_have_text(f"Answer: {answer}")


def test_shipped_grammars_controllers_and_errors(server: Server, open_page: OpenPage) -> None:
    page = opened(open_page, server, allowed="400")
    page.get_by_label("Constraint").select_option(label="Grammar")
    page.get_by_label("Shipped grammars").select_option("csv")
    expect(page.get_by_label("Grammar", exact=True)).to_have_value(re.compile("RFC 4180"))
    page.get_by_label("Constraint").select_option(label="Controller")
    page.get_by_label("Controller", exact=True).fill("choices")
    page.get_by_label("Argument of the controller").fill('["one", "two"]')
    page.get_by_text("The server takes this constraint.").wait_for()
    assert page.locator("datalist option[value=jsctrl]").count() == 1
    page.get_by_label("Constraint").select_option(label="Regular expression")
    page.get_by_label("Regular expression").fill("(a")
    page.get_by_role("alert").wait_for()
    ask(page, "Is tea hot?")
    page.locator("article.assistant [role=alert]").wait_for()
    expect(page.locator("article.assistant")).to_contain_text("failed")


def test_copied_requests_give_the_same_answer(chat: Page, server: Server) -> None:
    constrain(chat, "Regular expression", "(It's|I'm) [a-z ]{4,9}\\.")
    chat.get_by_label("Seed").fill("7")
    question = 'What\'s "hot"? $HOME `x`'
    ask(chat, question)
    answered(chat)
    answer = chat.locator("article.assistant .markdown").inner_text()
    chat.get_by_role("button", name="Copy as").click()
    commands = {}
    for name in ("curl", "Python", "aici run"):
        chat.get_by_role("button", name=name, exact=True).click()
        commands[name] = chat.locator("dialog pre").inner_text()
    assert run([sys.executable, "-c", commands["Python"]]) == answer
    assert (
        run(["bash", "-c", commands["aici run"].replace("aici run", " ".join(map(str, [*AICI, "run"])), 1)]) == answer
    )
    body = json.loads(commands["curl"].partition("-d '")[2].rpartition("'")[0].replace("'\\''", "'"))
    assert body["messages"] == [{"role": "user", "content": question}]
    assert body["guided_regex"] == "(It's|I'm) [a-z ]{4,9}\\."
    assert (body["temperature"], body["seed"]) == (0, 7)
    screenshot(chat, "chat-copy")
    assert serious_findings(chat) == []
    chat.get_by_role("button", name="Close").click()
    expect(chat.locator("dialog")).to_have_count(0)


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.removesuffix("\n")


HOSTILE = "\n\n".join(
    [
        "<script>window.hacked = 1</script>",
        "<img src=x onerror='window.hacked = 1'> and ![picture](http://example.com/picture.png)",
        "[press](javascript:window.hacked=1) [safe](https://example.com/a) <a href='javascript:window.hacked=1'>b</a>",
        "a \u202eright to left\u202c b \x1b[31mred\x1b[0m \x00",
        "# Heading\n\n| a | b |\n|---|--:|\n| 1 | 2 |",
        "```html\n<script>window.hacked = 1</script>\n```",
        "<svg><style>*{display:none}</style></svg><iframe src='javascript:window.hacked=1'></iframe>",
        "x" * (1 << 20),
        "The end.",
    ]
)


def conversation_file(folder: Path, *texts: str) -> Path:
    turns = [
        {"id": str(at), "parent": str(at - 1) if at else None, "role": "assistant" if at % 2 else "user", "text": text}
        for at, text in enumerate(texts)
    ]
    path = folder / "conversations.json"
    conversation = {"title": "Imported", "settings": {}, "turns": turns}
    path.write_text(json.dumps({"format": "aici-conversations", "version": 1, "conversations": [conversation]}))
    return path


def test_hostile_texts_are_shown_as_text(chat: Page, tmp_path: Path) -> None:
    chat.get_by_label("A file of conversations").set_input_files(conversation_file(tmp_path, HOSTILE, HOSTILE))
    answer = chat.locator("article.assistant .markdown")
    expect(answer).to_contain_text("The end.")
    shown = answer.evaluate("element => element.textContent")
    for text in ("<script>window.hacked = 1</script>", "onerror=", "[press](javascript:window.hacked=1)", "<iframe"):
        assert text in shown
    assert "[U+202E]" in shown
    assert "␛[31m" in shown
    assert "x" * (1 << 20) in shown
    assert not re.search("[\u202a-\u202e\x00\x1b]", shown)
    assert answer.locator("script, img, svg, style, iframe").count() == 0
    links = answer.locator("a").evaluate_all("all => all.map(a => [a.href, a.rel, a.target])")
    rel = "noopener noreferrer nofollow"
    assert answer.locator("td").last.get_attribute("align") == "right"
    assert answer.locator(".code .bar").text_content() == "htmlCopy"
    code = answer.locator(".code code")
    expect(code.locator(".hljs-tag").first).to_be_attached()  # coloured, and still the same text
    assert code.text_content() == "<script>window.hacked = 1</script>\n"
    assert links == [
        ["http://example.com/picture.png", rel, "_blank"],
        ["https://example.com/a", rel, "_blank"],
    ]
    assert chat.evaluate("() => window.hacked") is None
    expect(answer.locator(".block").last).to_be_in_viewport()
    assert chat.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    assert serious_findings(chat) == []
    screenshot(chat, "chat-hostile")


def test_export_is_a_file_that_import_reads(chat: Page, tmp_path: Path) -> None:
    chat.get_by_label("A file of conversations").set_input_files(conversation_file(tmp_path, "One?", "*One*."))
    chat.locator("article.assistant em").wait_for()
    with chat.expect_download() as download:
        chat.get_by_role("button", name="Export").click()
    saved = tmp_path / "saved.json"
    download.value.save_as(saved)
    chat.get_by_role("button", name="Remove Imported").click()
    expect(chat.locator("article")).to_have_count(0)
    chat.get_by_label("A file of conversations").set_input_files(saved)
    chat.locator("article.assistant em").wait_for()
    saved.write_text('{"format": "aici-conversations", "version": 1, "conversations": [{"turns": [{}]}]}')
    chat.get_by_label("A file of conversations").set_input_files(saved)
    expect(chat.get_by_role("alert")).to_contain_text("conversations[0].turns[0].role")


def test_a_removed_conversation_does_not_come_back(chat: Page, server: Server) -> None:
    """The answer that runs is stopped, and ends after the conversation."""
    constrain(chat, "Regular expression", "[a-z ]{3000}")
    ask(chat, "Write letters.")
    chat.locator("article.assistant .markdown").wait_for()
    chat.get_by_label("Message", exact=True).fill("A draft")
    chat.get_by_role("link", name="Metrics").click()  # the answer goes on while another page is open
    chat.get_by_role("link", name="Chat").click()
    expect(chat.get_by_label("Message", exact=True)).to_have_value("A draft")
    chat.get_by_role("button", name="Stop").wait_for()
    chat.get_by_role("button", name="Remove Write letters.").click()
    assert wait_until(is_free(server), 30)
    expect(chat.locator("article")).to_have_count(0)
    chat.reload()
    chat.get_by_text("No conversations yet").wait_for()


def test_finished_blocks_stay_while_text_arrives(chat: Page) -> None:
    """The elements of a finished block are not made again, so the cost of a token does not grow with the answer."""
    constrain(chat, "Regular expression", "(First\\.\n\n)([a-z]{1,8}\\.\n\n){400}")
    ask(chat, "Write.")
    blocks = chat.locator("article.assistant .block")
    blocks.nth(4).wait_for(state="attached")
    first = blocks.locator("p").first
    first.evaluate("element => { element.marked = true }")
    blocks.nth(blocks.count() + 8).wait_for(state="attached")
    chat.keyboard.press("Escape")
    answered(chat)
    assert first.evaluate("element => element.marked")


def test_on_a_phone(server: Server, open_page: OpenPage) -> None:
    page = open_page(f"{server.url}/console/chat", viewport={"width": 360, "height": 720}, has_touch=True)
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("Max tokens").fill("8")
    screenshot(page, "chat-phone-settings")
    page.get_by_role("button", name="Settings").click()
    ask(page, "Hello")
    answered(page)
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    screenshot(page, "chat-phone")
    page.get_by_role("button", name="Conversations").click()
    page.get_by_role("button", name="Hello", exact=True).wait_for()
    assert serious_findings(page) == []
