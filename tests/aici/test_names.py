"""The names that `import aici` offers, and the cost of importing."""

import subprocess
import sys

import aici

NAMES = {
    *(
        "LLM",
        "AsyncLLM",
        "Stream",
        "AsyncStream",
        "Result",
        "ChatResult",
        "ToolCall",
        "Fork",
        "Constraint",
        "SamplingParams",
    ),
    *("choice", "controller", "grammar", "json_schema", "regex", "script", "structural_tag", "substring"),
    *(
        "AcceptedEvent",
        "BacktrackEvent",
        "ControlEvent",
        "Event",
        "FinishEvent",
        "ForkEvent",
        "ForkedEvent",
        "SuspendedEvent",
        "TokenEvent",
    ),
    *("Explanation", "FinishReason", "LikelyToken", "Origin", "Timings", "Token", "Usage"),
    *(
        "AiciError",
        "ControllerError",
        "ForbiddenError",
        "InUseError",
        "NotFoundError",
        "QuotaError",
        "RateLimitError",
        "RuntimeDiedError",
    ),
    *(
        "TimedOutError",
        "TooLargeError",
        "UnauthorizedError",
        "UnavailableError",
        "UnfinishedError",
        "UnreachableError",
        "UsageError",
    ),
}


def test_the_exported_names_are_these() -> None:
    assert set(aici.__all__) == NAMES
    assert len(aici.__all__) == len(NAMES)
    assert all(hasattr(aici, name) for name in NAMES)


def test_every_exported_error_is_an_aici_error() -> None:
    errors = [getattr(aici, name) for name in NAMES if name.endswith("Error")]
    assert all(issubclass(error, aici.AiciError) for error in errors)


def test_importing_loads_no_model_code() -> None:
    heavy = {"torch", "transformers", "numpy", "wasmtime", "pydantic", "fastapi", "httpx2", "httpcore2"}
    code = f"import sys, aici; print(*{heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
