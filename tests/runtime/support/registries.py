"""Registries with a fake compiler, and checks of their visible state."""

import hashlib
from pathlib import Path

from aici_base.cache_files import write_atomically
from aici_runtime.channels.envelope import Auth
from aici_runtime.modules.module_files import ModuleFiles
from aici_runtime.modules.registry import Registry

ADMIN = Auth("root", is_admin=True)
KEY = "key"


def fake_compile(source: Path, target: Path) -> None:
    write_atomically(target, b"code of " + source.read_bytes())


def open_registry(folder: Path) -> Registry:
    return Registry(folder, cache_key=KEY, compile=fake_compile)


def wasm(name: str) -> tuple[str, bytes]:
    """Return a module's id and bytes."""
    content = b"\0asm" + name.encode() * 1000
    return hashlib.sha256(content).hexdigest(), content


def seen(folder: Path) -> tuple[frozenset[str], dict[str, str]]:
    """Return modules and tags. All entries are complete, and no tag names a missing module."""
    registry = open_registry(folder)
    modules = {module.module_id: module for module in registry.modules()}
    tags = {tag.tag: tag.module_id for tag in registry.get_tags()}
    for module_id, module in modules.items():
        content = registry.read(module_id)
        assert hashlib.sha256(content).hexdigest() == module_id
        assert module.created_by == "root"
        code = ModuleFiles(folder).compiled(module_id, KEY)
        assert not code.exists() or code.read_bytes() == b"code of " + content
    assert set(tags.values()) <= modules.keys(), tags
    return frozenset(modules), tags


def seen_tags(registry: Registry) -> None:
    """Two tags always set together never differ, whatever other processes do to either."""
    tags = {tag.tag: tag.module_id for tag in registry.get_tags()}
    for name, module_id in tags.items():
        again = tags.get(f"{name}-again", module_id)
        assert again == module_id, tags


def leftovers(folder: Path) -> list[str]:
    """Return the files that no module needs."""
    files = ModuleFiles(folder)
    kept = {files.tags, folder / ".lock"}
    for module_id in files.module_ids():
        kept |= {files.wasm(module_id), files.record(module_id), files.compiled(module_id, KEY)}
    return sorted(path.name for path in folder.iterdir() if path not in kept)
