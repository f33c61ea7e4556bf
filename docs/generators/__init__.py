"""The generated pages of `docs/reference/`: `python -m docs.generators` writes the pages, a test compares.

Every module has a function that returns the text of a page.
"""

from collections.abc import Callable

from docs.generators.abi_page import abi_page
from docs.generators.cli_page import cli_page
from docs.generators.http_page import http_page
from docs.generators.python_page import python_page
from docs.generators.sdk_fields import sdk_fields_page
from docs.generators.table_pages import errors_page, metrics_page, sampling_page

PAGES: dict[str, Callable[[], str]] = {
    "abi.md": abi_page,
    "cli.md": cli_page,
    "errors.md": errors_page,
    "http.md": http_page,
    "metrics.md": metrics_page,
    "python.md": python_page,
    "sampling.md": sampling_page,
    "sdk_parameters.md": sdk_fields_page,
}
"""File in `docs/reference/` -> function that returns the text."""
