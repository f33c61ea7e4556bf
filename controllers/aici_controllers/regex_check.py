"""Checks a regular expression before anything is loaded for it, with the very parser that constrains generation.

The parser is inside the guest `regex`; compiling that for one call takes about 30 ms, so nothing is cached. The syntax
is described in `controllers/guests/regex/README.md`.
"""

from dataclasses import dataclass

from aici_controllers.catalog import guest_path

_CONTEXT = 40


@dataclass(frozen=True, slots=True)
class RegexProblem:
    """Why a pattern is refused; `position` counts code points from 0."""

    position: int
    message: str

    def show(self, pattern: str) -> str:
        """The message, the pattern near the position, and a caret under it: what the guest writes to its log."""
        first = max(0, self.position - _CONTEXT)
        near = "".join("·" if c < " " or c == "\x7f" else c for c in pattern[first : self.position + _CONTEXT])
        caret = " " * (self.position - first) + "^"
        return f"regex error at position {self.position}: {self.message}\n  {near}\n  {caret}"


def check_regex(pattern: str) -> RegexProblem | None:
    """None when the guest `regex` accepts `pattern`. UnavailableError when the guests are not built."""
    try:
        text = pattern.encode()
    except UnicodeEncodeError as error:
        return RegexProblem(error.start, "a surrogate is not a character")
    import wasmtime

    config = wasmtime.Config()
    config.cranelift_opt_level = "none"
    engine = wasmtime.Engine(config)
    module = wasmtime.Module.from_file(engine, str(guest_path("regex")))
    linker = wasmtime.Linker(engine)
    linker.define_unknown_imports_as_traps(module)
    store = wasmtime.Store(engine)
    exports = linker.instantiate(store, module).exports(store)
    memory, alloc, check = exports["memory"], exports["regex_alloc"], exports["regex_check"]
    assert isinstance(memory, wasmtime.Memory)
    assert isinstance(alloc, wasmtime.Func)
    assert isinstance(check, wasmtime.Func)
    address = alloc(store, len(text))
    memory.write(store, text, address)
    report = check(store, address, len(text))
    if report == 0:
        return None
    position, length = (int.from_bytes(memory.read(store, at, at + 4), "little") for at in (report, report + 4))
    return RegexProblem(position, bytes(memory.read(store, report + 8, report + 8 + length)).decode())
