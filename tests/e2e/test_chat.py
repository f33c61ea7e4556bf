"""`aici chat` with the default model: at a terminal and over a pipe, in this process and on a server."""

import json
import re
from pathlib import Path

import pytest

from tests.support.cli import AICI, aici
from tests.support.processes import wait_until
from tests.support.server import Server
from tests.support.terminal import CTRL_C, CTRL_D, Terminal, at_terminal
from tests.support.warm import warm_aici

pytestmark = pytest.mark.e2e

LONG = "Write a long story about a fox, with every detail.\n"


def is_idle(server: Server) -> bool:
    stats = server.stats()
    return stats["active_requests"] == stats["waiting_requests"] == 0 and stats["cache_usage"] == 0.0


def stop_an_answer(terminal: Terminal, prompt: str) -> None:
    """Type a question, and Ctrl-C once the answer has begun."""
    terminal.type(LONG)
    terminal.until("detail.\r\n")
    terminal.until(" ")
    terminal.type(CTRL_C)
    terminal.until("note: stopped")
    terminal.until(prompt)


def test_a_terminal_on_a_server(server: Server, tmp_path: Path) -> None:
    """Ctrl-C stops the answer, the server frees the sequence, and the chat goes on; Ctrl-D ends."""
    saved = tmp_path / "chat.json"
    env = {"XDG_STATE_HOME": str(tmp_path)}
    with at_terminal([*AICI, "chat", "--server", server.url, "--seed", "1"], env) as terminal:
        terminal.until("Ctrl-D ends")
        terminal.until(">>> ")
        stop_an_answer(terminal, ">>> ")
        assert wait_until(lambda: is_idle(server), 60)
        terminal.type("half a line" + CTRL_C.decode())  # drops the line
        terminal.until(">>> ")
        terminal.type("/regex [0-9]{2}\n")
        terminal.until("regex >>> ")
        terminal.type('"""How many\n')
        terminal.until("... ")
        terminal.type('foxes?"""\n')
        assert re.search(r"\r\n[0-9]{2}\r\n", terminal.until("regex >>> "))
        terminal.type("/regex (\n")
        assert "regex error at position 0" in terminal.until("regex >>> ")
        terminal.type(f"/save {saved}\n")
        terminal.until("saved 4 messages")
        terminal.until("regex >>> ")
        terminal.type(CTRL_D)
        assert terminal.wait() == 0
    roles = [(each["role"], each["content"]) for each in json.loads(saved.read_text())["messages"]]
    assert roles[0] == ("user", LONG.strip())
    assert roles[2] == ("user", "How many\nfoxes?")
    assert re.fullmatch("[0-9]{2}", roles[3][1])
    typed = tmp_path / "aici" / "chat-history"
    assert "/regex [0-9]{2}\n" in typed.read_text()
    assert typed.stat().st_mode & 0o077 == 0


def test_a_terminal_with_an_engine(tmp_path: Path) -> None:
    """Ctrl-C reaches every process of the terminal: the guest goes on, and answers again."""
    with at_terminal([*AICI, "chat", "--regex", "[a-z ]+", "--no-history", "--seed", "1"]) as terminal:
        terminal.until("loading ...")
        terminal.until("\x1b[K")
        terminal.until("regex >>> ")
        for _ in range(2):
            stop_an_answer(terminal, "regex >>> ")
        terminal.type("/regex a{2}\n")
        terminal.until("regex >>> ")
        terminal.type("Say a.\n")
        terminal.until("\r\naa\r\n")
        terminal.until("regex >>> ")
        terminal.type(CTRL_D)
        assert terminal.wait() == 0


def test_a_pipe(server: Server, tmp_path: Path) -> None:
    lines = "/regex [0-9]{3}\nA number?\\\nQuick.\n/none\n/system Be brief.\n//Hello\n/retry\n"
    greedy = ["--max-tokens", "3", "--server", server.url]
    done = aici("chat", *greedy, stdin=f"{lines}/save {tmp_path}/chat.json\n")
    assert done.returncode == 0, done.stderr
    assert re.match(r"[0-9]{3}\n.+\n", done.stdout)
    assert ">>>" not in done.stdout + done.stderr
    told = json.loads((tmp_path / "chat.json").read_text())["messages"]
    assert [each["role"] for each in told] == ["system", "user", "assistant", "user", "assistant"]
    assert [told[1]["content"], told[3]["content"]] == ["A number?\nQuick.", "/Hello"]
    # Like its first answer, over another way:
    again = warm_aici("chat", "--max-tokens", "3", "--regex", "[0-9]{3}", stdin="A number?\\\nQuick.\n")
    assert again.stdout == done.stdout.partition("\n")[0] + "\n", again.stderr


def test_an_error_ends_a_pipe() -> None:
    for args, stdin, code, said in (
        (["--server", "http://127.0.0.1:1"], "Hello\n", 3, "cannot be reached"),
        (["--server", "http://127.0.0.1:1"], "/frobnicate\nHello\n", 2, "no command is called /frobnicate"),
        (["--server", "http://127.0.0.1:1", "--threads", "2"], "", 2, "--threads is not for --server"),
        (["--logprobs", "2"], "", 2, "--logprobs"),
        (["--regex", "("], "", 2, "error: "),
    ):
        done = aici("chat", *args, stdin=stdin)
        assert (done.returncode, done.stdout) == (code, "")
        assert said in done.stderr
        assert "loading" not in done.stderr
