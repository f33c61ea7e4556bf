"""The parsers by name: valid inputs, and what takes them.

A target takes bytes and raises nothing but what it documents; `Finding` tells of another wrong outcome.
"""

import contextlib
import io
import json
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.fuzz.mutations import mutated, mutated_json

Take = Callable[[bytes], None]
Mutate = Callable[[bytes, random.Random], bytes]


class Finding(AssertionError):
    """A parser answered as it must never answer."""


@dataclass(frozen=True, slots=True)
class Target:
    """`seeds`: valid inputs. `most_s`: processor time of one input above which the input is a finding. `folder`: of the
    files that `take` writes, removed by `close`."""

    seeds: Sequence[bytes]
    take: Take
    mutate: Mutate = mutated
    most_s: float = 2.0
    folder: "tempfile.TemporaryDirectory[str] | None" = None

    def close(self) -> None:
        if self.folder is not None:
            self.folder.cleanup()


def _folder() -> "tuple[tempfile.TemporaryDirectory[str], Path]":
    folder = tempfile.TemporaryDirectory(prefix="aici-fuzz-")
    return folder, Path(folder.name)


def _json(*documents: Any) -> list[bytes]:
    return [json.dumps(document).encode() for document in documents]


def _allows(*errors: type[Exception]) -> Callable[[Take], Take]:
    def wrap(take: Take) -> Take:
        def taken(data: bytes) -> None:
            with contextlib.suppress(*errors):
                take(data)

        return taken

    return wrap


def aicirt() -> Target:
    """Messages of the runtime's channels. `tests/wire --fuzz N` sends whole conversations to a real runtime."""
    from aici_base.errors import AiciError
    from aici_runtime.channels import envelope
    from aici_runtime.protocol.commands import parse_mid, parse_post_pre, parse_steps, parse_turn

    op = {"id": 1, "clone_id": 2, "req_id": "a", "tokens": [1, 2], "backtrack": 0, "clone_idx": 0}
    seeds = _json(
        {
            "op": "post_pre_process",
            "$rid": "a",
            "$auth": {"user": "u", "is_admin": False},
            "pre_ops": [op],
            "post_ops": [op],
            "freed": [3],
        },
        {"op": "mid_process", "ops": [op], "max_context_len": 2048, "freed": []},
        {
            "op": "turn_process",
            "post_ops": [op],
            "pre_ops": [op],
            "ops": [op],
            "freed": [1],
            "patience": {"most_ms": 30, "hurried": [1]},
        },
        {"op": "mid_process", "ops": [{"id": 1, "req_id": "a"}, {"id": 2, "clone_id": 1}], "freed": [2]},
    )

    def take(data: bytes) -> None:
        with contextlib.suppress(envelope.BadMessageError):
            request = envelope.parse(data)
            for parse in (parse_post_pre, parse_mid, parse_turn, parse_steps):
                with contextlib.suppress(envelope.RequestError, AiciError):
                    parse(request.body)

    return Target(seeds, take, mutated_json)


def turn() -> Target:
    """Turns in binary form, and their answers."""
    from aici_base.ids import SeqId, TokenId
    from aici_runtime import turn_message
    from aici_runtime.channels.envelope import RequestError
    from aici_runtime.protocol.commands import decode_turn
    from aici_runtime.wire import MidOp, Patience, PostOp, PreOp

    one, two, three = map(SeqId, (1, 2, 3))
    asked = turn_message.TurnFields(
        [PostOp(one, [TokenId(7)])], [], [one], [MidOp(one)], [three], Patience(1, 2, {one})
    )
    fresh = turn_message.TurnFields([], [PreOp(two, "a")], [], [MidOp(one), MidOp(three, one)], [])
    rest = turn_message.TurnRest(cpu_us=b'"1":3')
    answers = [turn_message.encode_answer([30], more) for more in (None, rest)]

    @_allows(turn_message.MalformedTurnError, RequestError)
    def take(data: bytes) -> None:
        if not turn_message.is_turn(data):
            return
        with contextlib.suppress(
            KeyError, AttributeError, TypeError, ValueError
        ):  # of JSON, which is the runtime's own
            turn_message.decode_answer(data, [MidOp(one)])
        decode_turn(data)

    return Target([*map(turn_message.encode, (asked, fresh)), *answers], take)


def engine() -> Target:
    """Messages between the API process and the engine process."""
    import msgspec

    from aici_engine.server.link import wire

    seeds = [
        wire.encode([wire.Abort("r")]),
        wire.encode([wire.EngineCall(*_filled(wire.EngineCall))]),
        wire.encode([wire.TokenOut(*_filled(wire.TokenOut)), wire.BacktrackOut(*_filled(wire.BacktrackOut))]),
    ]

    @_allows(msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError)
    def take(data: bytes) -> None:
        for decode in (wire.decode_to_engine, wire.decode_from_engine):
            with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
                list(decode(data))

    return Target(seeds, take)


def _filled(kind: Any) -> list[Any]:
    import msgspec

    samples: dict[Any, Any] = {str: "r", int: 1, float: 0.5, bool: False}
    return [samples.get(field.type) for field in msgspec.structs.fields(kind) if field.required]


def cluster() -> Target:
    """Frames between a driver and its stages."""
    from tests.cluster.test_frames import VALID, encode, ids, take

    return Target([bytes(encode(message)) for message in VALID], lambda data: take(data, ids(19)))


def lmtp() -> Target:
    """Messages of LMTP's clients."""
    from aici_base.errors import AiciError
    from aici_engine.server.protocols.lmtp.messages import parse

    generate = {
        "stream_id": 1,
        "model": "default",
        "prompt": ["a", 5, {"buffer": "b"}, None],
        "max_tokens": 2,
        "logit_bias": {"5": 1.5},
    }
    seeds = [
        b"GENERATE " + json.dumps(generate | {"guided_json": {"type": "object"}, "buffer": "b", "text": True}).encode(),
        b'SCORE {"stream_id": {"a": 1}, "model": "m", "prompt": "x", "scored": [1, "y"]}',
        b'BUFFER {"stream_id": 2, "buffer": "b", "prompt": "x"}',
        b'CANCEL {"stream_id": 1}',
        b'MODEL_INFO {"stream_id": 1, "model": "default"}',
    ]

    @_allows(AiciError)
    def take(data: bytes) -> None:
        parse(data.decode(errors="replace"))

    def mutate(seed: bytes, rnd: random.Random) -> bytes:
        command, _, body = seed.partition(b" ")
        return mutated(seed, rnd) if rnd.random() < 0.2 else command + b" " + mutated_json(body, rnd)

    return Target(seeds, take, mutate)


_CHAT: Final = {
    "model": "it",
    "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    "stop": ["x"], "logit_bias": {"5": 1}, "n": 2, "max_tokens": 4, "temperature": 0.5, "seed": 3, "logprobs": True,
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "integer"}}},
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
    "tool_choice": "auto", "stream_options": None, "metadata": {"a": "b"},
}  # fmt: skip
_BODIES: Final[Mapping[str, Sequence[Any]]] = {
    "/v1/chat/completions": [_CHAT, _CHAT | {"stream": True, "stream_options": {"include_usage": True}}],
    "/v1/completions": [
        {"model": "it", "prompt": ["a", "b"], "max_tokens": 2, "echo": True, "logprobs": 2, "suffix": None},
    ],
    "/v1/embeddings": [{"model": "it", "input": ["a", "b"], "encoding_format": "float", "dimensions": 8}],
    "/v1/responses": [
        {"model": "it", "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
         "tools": [{"type": "custom", "name": "c",
                    "format": {"type": "grammar", "syntax": "regex", "definition": "a"}}],
         "reasoning": {"effort": "low"}, "text": {"format": {"type": "text"}}, "stream": True},
    ],
    "/v1/messages": [
        {"model": "it", "max_tokens": 8, "system": [{"type": "text", "text": "s"}], "stop_sequences": ["x"],
         "messages": [{"role": "user", "content": [
             {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]}],
         "tools": [{"name": "f", "input_schema": {"type": "object"}}], "tool_choice": {"type": "auto"}, "stream": True},
    ],
    "/v1/run": [
        {"controller": "none", "controller_arg": "Once", "max_tokens": 3, "stop": ["x"], "bad_tokens": [[1, 2]]},
        {"controller": "regex", "controller_arg": "a+", "messages": [{"role": "user", "content": "x"}], "logprobs": 2},
    ],
    "/v1/check": [{"guided_regex": "a+"}, {"guided_json": {"type": "string"}}, {"guided_choice": ["a", "b"]}],
    "/v1/check/source": [{"language": "regex", "text": "a("}, {"language": "steps", "text": '{"steps": [1]}'}],
    "/tokenize": [{"model": "it", "prompt": "Hi"}, {"messages": [{"role": "user", "content": "x"}]}],
    "/detokenize": [{"model": "it", "tokens": [1, 2]}],
    "/v1/controllers/tags": [{"module_id": "0" * 64, "tags": ["a"]}],
    "/v1/batches": [
        {"input_file_id": "f", "endpoint": "/v1/completions", "completion_window": "24h", "metadata": {"a": "b"}},
    ],
}  # fmt: skip


def http() -> Target:
    """Bodies of every route with one, in an application over a fake engine. The path stands before the body."""
    from starlette.testclient import TestClient

    from aici_engine.server.api.app import create_app
    from tests.support.fake_engine import FakeEngine, says
    from tests.support.fake_service import service_over

    client = TestClient(
        create_app(service_over(FakeEngine([says("a", " b")], calls={}))), raise_server_exceptions=False
    )
    seeds = [f"{path} ".encode() + body for path, bodies in _BODIES.items() for body in _json(*bodies)]

    def mutate(seed: bytes, rnd: random.Random) -> bytes:
        path, _, body = seed.partition(b" ")
        return path + b" " + mutated_json(body, rnd)

    def take(data: bytes) -> None:
        path, _, body = data.partition(b" ")
        answer = client.post(path.decode(), content=body, headers={"Content-Type": "application/json"})
        # 503: the fake engine computes no embeddings and knows no controllers.
        if answer.status_code >= 500 and answer.status_code != 503:
            raise Finding(f"{answer.status_code} {answer.text[:300]}")

    return Target(seeds, take, mutate)


def multipart() -> Target:
    """Forms, as for /v1/files."""
    from aici_base.errors import UsageError
    from aici_engine.server.gateway.multipart import read_form

    head = b'Content-Disposition: form-data; name="file"; filename="a.jsonl"\r\nContent-Type: text/plain'
    part = b"--xyz\r\n" + head + b"\r\n\r\n{}\r\n"
    seeds = [part + b"--xyz--\r\n", part + part.replace(b'"file"', b'"purpose"') + b"--xyz--\r\n"]

    @_allows(UsageError)
    def take(data: bytes) -> None:
        for field in read_form("multipart/form-data; boundary=xyz", io.BytesIO(data)).values():
            field.text()

    return Target(seeds, take)


def wasm() -> Target:
    """Modules before they are compiled."""
    from wasmtime import Module, WasmtimeError

    from aici_base.errors import UsageError
    from aici_controllers.catalog import guest_path
    from aici_runtime.guests.wasmtime_engine import new_engine
    from aici_runtime.modules.compile_bounds import check_functions, check_sections

    engine = new_engine()

    @_allows(UsageError, WasmtimeError)
    def take(data: bytes) -> None:
        sections = check_sections(data)
        Module.validate(engine, data)
        check_functions(sections)

    return Target([guest_path(name).read_bytes() for name in ("substring", "choices")], take)


def gguf() -> Target:
    """Model files of llama.cpp: metadata and tokenizer."""
    from aici_base.errors import UsageError
    from aici_base.tokenizer import gguf_tokenizer
    from tests.runtime.test_gguf import merges, written
    from tests.support.vocabulary import write_tokenizer

    kept, folder = _folder()
    config = json.loads((write_tokenizer(folder, [b"ab", b"abc"]) / "tokenizer.json").read_bytes())
    path = folder / "x.gguf"
    seed = written(path, config, kind="gpt2", eos=0, token_merges=merges(config)).read_bytes()

    @_allows(UsageError)
    def take(data: bytes) -> None:
        path.write_bytes(data)
        gguf_tokenizer.read(path)

    return Target([seed], take, folder=kept)


def safetensors() -> Target:
    """Headers of weights."""
    import numpy as np
    from safetensors.numpy import save

    from aici_base.errors import AiciError
    from aici_engine.model.tensor_source import read_header, read_tensor

    kept, folder = _folder()
    path = folder / "model.safetensors"
    seed = save({"a": np.zeros((2, 3), np.float32), "b": np.ones(4, np.float16)})

    @_allows(AiciError)
    def take(data: bytes) -> None:
        path.write_bytes(data)
        for info, start in read_header(path).values():
            read_tensor(path, info, start)

    def mutate(seed: bytes, rnd: random.Random) -> bytes:
        if rnd.random() < 0.4:
            return mutated(seed, rnd)
        size = int.from_bytes(seed[:8], "little")
        header = mutated_json(seed[8 : 8 + size], rnd)
        return len(header).to_bytes(8, "little") + header + seed[8 + size :]

    return Target([seed], take, mutate, folder=kept)


def tokenizer() -> Target:
    """tokenizer.json, read by the library `tokenizers` and by ours."""
    from aici_base.errors import AiciError
    from aici_engine.model_files import read_tokenizer
    from tests.support.vocabulary import write_tokenizer

    kept, folder = _folder()
    path = write_tokenizer(folder, [b"ab", b"abc"]) / "tokenizer.json"
    seed = path.read_bytes()

    @_allows(AiciError)
    def take(data: bytes) -> None:
        path.write_bytes(data)
        read_tokenizer(path)

    return Target([seed], take, mutated_json, folder=kept)


def grammar() -> Target:
    """Grammars in the notations that Python reads: y, Lark and GBNF. Before the text stands its notation."""
    from aici_base.errors import AiciError
    from aici_controllers.notations.reading import read_notation
    from aici_controllers.notations.tree import NotationError

    seeds = [
        b"y %start list\n%%\nlist: item | list ',' item;\nitem: ID | '(' list ')';\n%%\nID [a-z]+\n",
        b'lark start: (item ",")* item\nitem: WORD | "(" start ")" -> inner\n'
        b'%import common.WORD\nA.2: /a+?b{2,3}/i\n%ignore " "\n',
        b'gbnf root ::= item ("," item)*\nitem ::= [a-z]+ | "(" root ")" | "x"{2,3}\n',
    ]

    def take(data: bytes) -> None:
        syntax, _, text = data.partition(b" ")
        name = syntax.decode(errors="replace")
        if name in ("y", "lark", "gbnf"):
            with contextlib.suppress(AiciError, NotationError):
                read_notation(text.decode(errors="replace"), syntax=name)  # type: ignore[arg-type]

    def mutate(seed: bytes, rnd: random.Random) -> bytes:
        syntax, _, text = seed.partition(b" ")
        return syntax + b" " + mutated(text, rnd)

    return Target(seeds, take, mutate)


def constraint() -> Target:
    """Schemas, regular expressions and structural tags, up to the guest's own parser. `make fuzz` fuzzes the guests."""
    from aici_base.errors import AiciError
    from aici_controllers import constraints

    schema = {
        "type": "object", "properties": {"a": {"type": "string", "pattern": "^a+$"}, "b": {"$ref": "#/$defs/b"}},
        "required": ["a"], "$defs": {"b": {"type": "array", "items": {"enum": [1, "x"]}, "maxItems": 3}},
        "oneOf": [{"minProperties": 1}], "additionalProperties": False,
    }  # fmt: skip
    tag = {
        "type": "structural_tag",
        "format": {"type": "tag", "begin": "<a>", "content": {"type": "json_schema", "json_schema": {}}, "end": "</a>"},
    }
    kinds: Mapping[str, Callable[[str], object]] = {
        "schema": constraints.json_schema,
        "regex": constraints.regex,
        "tag": constraints.structural_tag,
    }
    seeds = [
        b"schema " + json.dumps(schema).encode(),
        b"regex (a|b){2,5}[^x-z]*?\\d+",
        b"tag " + json.dumps(tag).encode(),
    ]

    def take(data: bytes) -> None:
        kind, _, text = data.partition(b" ")
        with contextlib.suppress(AiciError):
            kinds[kind.decode()](text.decode(errors="replace"))

    def mutate(seed: bytes, rnd: random.Random) -> bytes:
        kind, _, text = seed.partition(b" ")
        return kind + b" " + (mutated(text, rnd) if kind == b"regex" else mutated_json(text, rnd))

    return Target(seeds, take, mutate, most_s=4.0)


TARGETS: Final[Mapping[str, Callable[[], Target]]] = {
    make.__name__: make
    for make in (
        aicirt,
        turn,
        engine,
        cluster,
        lmtp,
        http,
        multipart,
        wasm,
        gguf,
        safetensors,
        tokenizer,
        grammar,
        constraint,
    )
}
