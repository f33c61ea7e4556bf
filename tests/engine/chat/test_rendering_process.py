"""Rendering chat templates in a process with limits: the same texts, and nothing that a template does harms others."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from aici_base.errors import UnavailableError, UsageError
from aici_engine.chat.jinja_rendering import render
from aici_engine.chat.rendering import CostlyTemplateError, Rendered
from aici_engine.chat.rendering_process import RenderingProcess
from aici_engine.chat.template import ChatTemplate
from aici_engine.server.service.template_processes import TemplateProcesses
from tests.support.model import default_model_dir
from tests.support.openai_api import Api
from tests.support.processes import wait_until

TALK = [{"role": "user", "content": 'é \ud800 ↩ "<b>"'}, {"role": "assistant", "content": "Hi."}]
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
CHAT = {"model": "it", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}


@pytest.fixture
def process() -> Iterator[RenderingProcess]:
    process = RenderingProcess()
    yield process
    process.close()


@pytest.mark.parametrize(
    "source",
    [
        "{% for message in messages %}{{ message.role }}: {{ message.content | tojson }}{% endfor %}{{ 1 / 3 }}{{ x }}",
        "{{ raise_exception('no such role') }}",
        "{{ messages[0].content + 1 }}",
        "{{ 1 / 0 }}",
        "{{ 1e308 ** 2 }}",
        "{% for %}",
        "{{ ''.__class__.__mro__ }}",
        "",
    ],
)
def test_the_answers_are_those_of_this_process(process: RenderingProcess, source: str) -> None:
    variables = {"messages": TALK, "x": [None, True, 1.5, "a"]}
    assert process(source, variables) == render(source, variables)
    assert process(source, None) == render(source, None)


def test_the_default_models_template(process: RenderingProcess) -> None:
    here, there = ChatTemplate.of(default_model_dir()), ChatTemplate.of(default_model_dir(), process)
    assert here is not None
    assert there is not None
    assert process.pid is None, "the process starts when it is needed"
    assert here.render(TALK) == there.render(TALK)
    assert here.tools == there.tools


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("{{ 10**(10**9) }}", "the template computes for more than 1 s"),  # the compiler computes it
        ("{{ 'a' * (1000 * 1000 * 1000) }}", "the template needs more than 256 MiB"),
        (
            "{% for i in range(9999) %}{{ 'abcdefghij' * 100 }}{% endfor %}",
            "the text has more than 4,194,304 characters",
        ),
    ],
)
def test_a_template_has_limits(process: RenderingProcess, source: str, why: str) -> None:
    with pytest.raises(CostlyTemplateError, match=why):
        ChatTemplate(source, {}, name="it", render=process).render(TALK)
    assert process("{{ 1 }}", {}) == Rendered("text", "1")


def test_the_limit_of_a_text_holds_in_this_process_too() -> None:
    with pytest.raises(CostlyTemplateError, match="more than 4,194,304 characters"):
        ChatTemplate("{% for i in range(9999) %}{{ 'a' * 1000 }}{% endfor %}", {}, name="it").render(TALK)


def test_processor_time_is_counted_anew_for_each_text(process: RenderingProcess) -> None:
    busy = "{% for a in range(300) %}{% for b in range(1000) %}{% endfor %}{% endfor %}{{ 1 }}"
    process(busy, {})
    pid = process.pid
    assert [process(busy, {}).text for _ in range(4)] == ["1"] * 4
    assert process.pid == pid


def test_a_killed_process_is_replaced(process: RenderingProcess) -> None:
    process("", {})
    first = process.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert process("{{ 1 }}", {}) == Rendered("text", "1")
    assert process.pid != first


def test_a_process_that_cannot_start_is_no_fault_of_the_template(
    process: RenderingProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(UnavailableError, match="ended unexpectedly"):
        process("{{ 1 }}", {})


def test_the_process_knows_no_secret(process: RenderingProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AICI_API_KEY", "sk-secret")
    process("", {})
    assert b"sk-secret" not in Path(f"/proc/{process.pid}/environ").read_bytes()
    assert "Max file size             0 " in Path(f"/proc/{process.pid}/limits").read_text()


def test_the_process_ends_with_its_owner() -> None:
    program = (
        "import os, signal\n"
        "from aici_engine.chat.rendering_process import RenderingProcess\n"
        "process = RenderingProcess()\n"
        "process('', {})\n"
        "print(process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    owner = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=100, check=False)
    assert wait_until(lambda: _is_gone(int(owner.stdout)), 60)


def test_a_server_with_more_connections_than_select_takes() -> None:
    program = (
        "import os\n"
        "from aici_engine.chat.rendering_process import RenderingProcess\n"
        "from aici_runtime.process import raise_descriptors\n"
        "raise_descriptors()\n"
        "connections = [os.dup(0) for _ in range(1024)]\n"
        "process = RenderingProcess()\n"
        "print(process('{{ 1 }}', {}).text)\n"
        "process.close()\n"
    )
    assert (
        subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True).stdout == "1\n"
    )


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_costly_template_is_probed_once() -> None:
    """Probing for tools renders several conversations, and takes a refusal for an answer."""
    sources = []

    def costly(source: str, variables: Mapping[str, Any] | None) -> Rendered:
        sources.append(source)
        return Rendered("costly", "of no end")

    template = ChatTemplate("{{ tools }}", {}, name="it", render=costly)
    with pytest.raises(CostlyTemplateError, match="of no end"):
        _ = template.tools
    assert len(sources) == 1


def test_a_template_of_a_request_does_not_delay_the_models_own() -> None:
    api = Api()
    api.service.templates = templates = TemplateProcesses()
    api.service.template = ChatTemplate.of(default_model_dir(), templates.own)
    answers = []

    def ask() -> None:
        answers.append(api.post("/v1/chat/completions", CHAT | {"chat_template": ENDLESS}))

    slow = threading.Thread(target=ask)
    slow.start()
    try:
        api.answer("/v1/chat/completions", CHAT)
        run = {"controller": "none", "controller_arg": "", "messages": CHAT["messages"]}
        assert api.post("/v1/run", run).status_code == 200
    finally:
        slow.join(100)
        for process in templates._processes:
            process.close()
    [answer] = answers
    assert answer.status_code == 400
    assert "the chat template of this request is too costly: the template computes for more than 1 s" in answer.text


def test_a_broken_template_of_a_request(process: RenderingProcess) -> None:
    template = ChatTemplate("{% for %}", {}, name="this request", render=process)
    with pytest.raises(UsageError, match="the chat template of this request cannot be read"):
        template.render(TALK)
