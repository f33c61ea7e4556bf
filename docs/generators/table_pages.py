"""Pages of a single table: errors, metrics, sampling parameters."""

from docs.generators.markdown import NOTE, table


def errors_page() -> str:
    from aici_engine.server.errors import markdown

    intro = (
        "Every expected failure is an `AiciError` with a stable code, an exit code of the command line, and an HTTP status. The message\n"
        "says what is wrong, the hint says what to do, and an error about a parameter names the parameter in `param`. A traceback means a bug in aici.\n"
    )
    return NOTE.format(source="the registry of errors") + f"# Errors\n\n{intro}\n{markdown()}"


def sampling_page() -> str:
    from aici_engine.sampling_params import markdown

    intro = "The same parameters in every protocol, from one table: `aici_engine.sampling_params`.\n"
    return NOTE.format(source="the table of sampling parameters") + f"# Sampling parameters\n\n{intro}\n{markdown()}"


class _Zeros(dict[str, int]):
    """Every gauge, at 0."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> int:
        return 0


def metrics_page() -> str:
    from prometheus_client.parser import text_string_to_metric_families

    from aici_engine.server.telemetry.metrics import Metrics

    page = Metrics().page(_Zeros()).decode()
    families = [family for family in text_string_to_metric_families(page) if not family.name.endswith("_created")]
    labels = {"aici_http_requests": "method, route, status", "aici_sequences": "reason", "aici_tokens": "kind"}
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
