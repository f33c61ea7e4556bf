"""A Service over an engine that plays the scripts of a test."""

from copy import copy
from functools import cache
from typing import Any

import httpx2
from fastapi import FastAPI
from starlette.testclient import TestClient

from aici_engine.chat.jinja_rendering import render
from aici_engine.chat.template import ChatTemplate
from aici_engine.server.api.app import create_app
from aici_engine.server.config import RequestLimits
from aici_engine.server.service.admission import Admission
from aici_engine.server.service.models import Models
from aici_engine.server.service.served_model import ServedModel
from aici_engine.server.service.service import Service
from aici_engine.server.service.template_processes import TemplateProcesses
from aici_engine.server.telemetry.metrics import Metrics
from aici_engine.vocabulary import ModelVocabulary
from tests.support.fake_engine import FakeEngine, Script
from tests.support.model import default_model_dir

TOOL_TEMPLATE = """\
{%- if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %} answer with <tool_call></tools>{% endif %}
{%- for message in messages %}[{{ message.role }}:{{ message.content }}
{%- for call in message.tool_calls or [] %}{{ call.function.name }}({{ call.function.arguments.city }}){% endfor %}
{%- if message.role == 'tool' %}<-{{ message.name }}{% endif %}]{% endfor %}
{%- if add_generation_prompt %}[assistant:{% endif %}"""


@cache
def _service() -> Service:
    """Cached: reading the vocabulary takes a third of a second. The copies share the constraints that passed the
    checks."""
    return Service(
        FakeEngine().client,
        model_dir=default_model_dir(),
        name="it",
        admission=Admission(8),
        templates=TemplatesHere(),
    )


class TemplatesHere(TemplateProcesses):
    """Renders in the process of the test."""

    def __init__(self) -> None:
        super().__init__()
        self.own = self.of_requests = render


def vocabulary() -> ModelVocabulary:
    return _service().vocabulary


def service_over(engine: FakeEngine, *, capacity: int = 8, limits: RequestLimits | None = None) -> Service:
    service = copy(_service())
    service.client, service.admission, service.metrics = engine.client, Admission(capacity), Metrics()
    service.limits = limits or RequestLimits()
    engine.client.on_guest_time = service.admission.budgets.spend_guest_time
    return service


def fake_service(*scripts: Script, template: str | None = None) -> tuple[Service, FakeEngine]:
    """`scripts` play in turn, the last again and again. `template`: instead of the default model's."""
    engine = FakeEngine(list(scripts)) if scripts else FakeEngine()
    service = service_over(engine)
    if template is not None:
        service.template = ChatTemplate(template, {}, name="test")
    return service, engine


@cache
def _app() -> tuple[FastAPI, ServedModel, Service]:
    service = copy(_service())
    models = Models.of(service)
    return create_app(models), models.default, service


def shared_app(service: Service) -> FastAPI:
    """Return an application that serves `service` until the next call: to make one takes several times as long as a
    request. What an application keeps by itself is shared: responses, files and metrics. There are no API keys, and
    the limits of requests are the usual ones."""
    assert service.limits == RequestLimits(), "other limits need an application of their own"
    app, model, serving = _app()
    vars(serving).update(vars(service))
    model.admission = service.admission
    return app


class ServiceClient(TestClient):
    """A client of a service of its own, in the shared application."""

    def __init__(self, service: Service) -> None:
        super().__init__(shared_app(service), raise_server_exceptions=False)
        self._service = service

    def send(self, *args: Any, **kwargs: Any) -> httpx2.Response:
        shared_app(self._service)
        answer: httpx2.Response = super().send(*args, **kwargs)
        return answer
