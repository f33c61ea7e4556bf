"""Settings of MkDocs beside `mkdocs.yml`: READMEs of the folders become pages, links follow, mermaid is local.

Pages under `docs/` link to the files of the repository by relative path (`../../controllers/README.md`), so that the
links work in a checkout too. The hook turns a link to a file into a link to the page of the file; if a file has no
page, the file's name replaces the link.
"""

import hashlib
import os
import posixpath
import re
from pathlib import Path
from typing import Any

import mermaidx
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT = Path(__file__).parents[1]
_GUESTS = ("regex", "grammar", "json_schema", "choices", "substring", "jsctrl", "pyctrl", "declctrl")
_PROTOCOLS = ("openai", "anthropic", "rest", "lmtp")

PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "README.md": "index.md",
    "controllers/README.md": "reference/controllers.md",
    "examples/README.md": "reference/examples.md",
    "grammars/README.md": "reference/grammars.md",
    "runtime/LIMITS.md": "reference/limits.md",
    "runtime/README.md": "reference/runtime.md",
    **{f"controllers/guests/{name}/README.md": f"reference/guests/{name}.md" for name in _GUESTS},
    **{
        f"engine/aici_engine/server/protocols/{name}/README.md": f"reference/protocols/{name}.md" for name in _PROTOCOLS
    },
}
"""File of the repository -> page of the site. `README.md` has no page: links to it go to the first page."""

_MERMAID = "assets/mermaid.min.js"
_MERMAID_SHA256 = "74d7c46dabca328c2294733910a8aa1ed0c37451776e8d5295da38a2b758fb9b"
"""The hash of `dist/mermaid.min.js` in the npm package mermaid 11.16.0; mermaidx 0.10.1 carries the file unchanged."""

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_PICTURE = re.compile(r"^```mermaid\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in PAGES.items():
        if source != "README.md":
            files.append(File.generated(config, page, content=(_ROOT / source).read_text()))
    files.append(File.generated(config, _MERMAID, content=_mermaid()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    here = page.file.src_uri
    for picture in _PICTURE.findall(markdown):
        try:
            mermaidx.render(picture).svg()
        except RuntimeError as error:
            raise PluginError(f"{here}: a picture that mermaid cannot draw: {error}\n{picture}") from error
    source = next(
        (source for source, shown in PAGES.items() if shown == here and source != "README.md"), f"docs/{here}"
    )
    return follow_links(markdown, source, here)


def follow_links(markdown: str, source: str, here: str) -> str:
    """Return `markdown` of the repository's file `source` as the page `here`: links to files become links to pages."""

    def follow(link: re.Match[str]) -> str:
        mark, text, target = link.groups()
        path, _, anchor = target.partition("#")
        if not path or "://" in target or target.startswith("mailto:"):
            return link[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        shown = PAGES.get(file) or (file.removeprefix("docs/") if file.startswith("docs/") else None)
        if shown is None:
            if not (_ROOT / file).exists():
                return link[0]  # MkDocs reports the dead link
            return mark + text if mark else text
        anchor = f"#{anchor}" if anchor and file != "README.md" else ""
        return f"{mark}[{text}]({os.path.relpath(shown, posixpath.dirname(here) or '.')}{anchor})"

    def outside(prose: str) -> str:
        return _LINK.sub(follow, prose)

    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [outside(markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, outside(markdown[end:])])


def _mermaid() -> bytes:
    """Return mermaid's script. The site serves the script; without the local copy the theme would load mermaid from
    a CDN."""
    script = (Path(mermaidx.__file__).parent / "assets" / "mermaid.js").read_bytes()
    if hashlib.sha256(script).hexdigest() != _MERMAID_SHA256:
        raise PluginError("mermaidx carries another mermaid.js than the pinned one (docs/hooks.py)")
    return script
