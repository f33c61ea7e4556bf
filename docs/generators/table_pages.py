"""Pages of a single table: errors, metrics, sampling parameters."""

import json
from typing import Any

from docs.generators.markdown import NOTE, table


def errors_page() -> str:
    import aici
    from aici_engine.server.errors import HTTP_ERRORS, markdown
    from aici_engine.server.gateway.error_responses import anthropic_body, openai_body, rest_body

    intro = (
        "Every expected failure is an `AiciError` with a stable code, an exit code of the command line, and an HTTP status. The message\n"
        "says what is wrong, the hint says what to do, and an error about a parameter names the parameter in `param`. A traceback means a bug in aici.\n"
    )
    only_server = [f"`{kind.__name__}`" for kind in HTTP_ERRORS if kind.__name__ not in aici.__all__]
    classes = (
        f"The server alone raises {', '.join(only_server)}. `import aici` exports all other classes of the table, and\n"
        f"`UnfinishedError` (code `{aici.UnfinishedError.code}`): the text ended before the constraint was met.\n"
    )
    error = aici.UsageError(
        "temperature must be 0 (greedy) or above, not -1", hint="use 0 for greedy decoding", param="temperature"
    )
    bodies = {
        "OpenAI: `type` is the type of the table, and `code` is the word of the table": openai_body(error),
        "Anthropic: `type` is the type of the table; no code": anthropic_body(error) | {"request_id": "..."},
        "AICI REST: `code` is the stable code of the table": rest_body(error),
    }
    shown = "".join(f"\n{said}:\n\n```json\n{json.dumps(body, indent=2)}\n```\n" for said, body in bodies.items())
    lmtp = "LMTP sends the stable code as text in the `code` of an error.\n"
    examples = f"## Bodies of responses\n\nThe same error in three protocols:\n{shown}\n{lmtp}"
    return NOTE.format(source="the registry of errors") + f"# Errors\n\n{intro}\n{markdown()}\n{classes}\n{examples}"


def sampling_page() -> str:
    from aici_engine.sampling_params import markdown

    intro = "The same parameters in every protocol, from one table: `aici_engine.sampling_params`.\n"
    return NOTE.format(source="the table of sampling parameters") + f"# Sampling parameters\n\n{intro}\n{markdown()}"


class _Zeros(dict[str, Any]):
    """Every gauge, at 0."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> int:
        return 0


def metrics_page() -> str:
    from prometheus_client.parser import text_string_to_metric_families

    from aici_engine.server.telemetry.metrics import Metrics

    text = Metrics().page(
        {"any": _Zeros()}, _Zeros(stages=[], driver=_Zeros()), replicas={"any": [_Zeros(engine=_Zeros())]}
    )
    families = [
        family for family in text_string_to_metric_families(text.decode()) if not family.name.endswith("_created")
    ]
    labels = {family.name: "model" for family in families}
    labels |= {"aici_sequences": "model, reason", "aici_tokens": "model, kind"}
    labels |= {family.name: "" for family in families if family.name.startswith("aici_pipeline_")}
    labels |= {family.name: "model, replica" for family in families if family.name.startswith("aici_replica_")}
    labels |= {"aici_http_requests": "method, route, status"}
    labels |= {family.name: "stage, node" for family in families if family.name.startswith("aici_stage_")}
    rows = (
        [
            f"`{family.name}{'_total' * (family.type == 'counter')}`",
            family.type,
            family.documentation,
            labels.get(family.name, ""),
        ]
        for family in families
    )
    intro = "`GET /metrics`, in the text format of Prometheus. Times are in seconds.\n"
    return (
        NOTE.format(source="the metrics of the server")
        + f"# Metrics\n\n{intro}"
        + table(("name", "kind", "meaning", "labels"), rows)
    )
