"""LMTP: texts in place of tokens, and the buffers that hold what streams generate."""

from aici_base.errors import (
    UsageError,
)
from aici_engine.events import FinishReason
from aici_engine.server.link import wire
from tests.support.fake_engine import fails, silent
from tests.support.lmtp import EOS, connected, run, tokens


@run
async def test_text_for_text() -> None:
    def halves(submit: wire.Submit) -> list[wire.StreamOut]:
        """An é in two tokens, and the first half of an é without a second half."""
        stream = submit.stream
        return [
            wire.TokenOut(stream, 1, b"\xc3", "", False, -1.0, []),
            wire.TokenOut(stream, 2, b"\xa9", "é", False, -1.0, []),
            wire.TokenOut(stream, 1, b"\xc3", "", False, -1.0, []),
            wire.FinishOut(stream, FinishReason.LENGTH, "\ufffd", wire.UsageOut(1, 3, 0)),
        ]

    async with connected(halves) as client:
        await client.generate(prompt="hi", max_tokens=3)
        assert [item["text"] for item in await client.stream()] == ["", "é", "\ufffd"]
        assert client.engine.submitted[-1].prompt == [6004]
        await client.generate(prompt="hi", text=False, max_tokens=3)
        assert "text" not in (await client.stream())[0]
        await client.generate(prompt=[5, "hi", None, 6], text=True, max_tokens=3)
        assert (await client.stream())[1]["text"] == "é"
        assert client.engine.submitted[-1].prompt == [5, 6004, 6]


@run
async def test_buffers() -> None:
    async with connected(tokens(11, 12), tokens(13, EOS, reason=FinishReason.EOS), tokens(14)) as client:
        await client.generate(buffer="a", max_tokens=2)
        await client.stream()
        await client.generate(prompt=[{"buffer": "a"}, 8], buffer="b", max_tokens=9)
        await client.stream()
        assert client.engine.submitted[-1].prompt == [5, 6, 7, 11, 12, 8]
        await client.generate(prompt=[{"buffer": "b"}, {"buffer": "a"}], buffer="a")
        await client.stream()
        assert client.engine.submitted[-1].prompt == [5, 6, 7, 11, 12, 8, 13, 5, 6, 7, 11, 12]
        await client.send("BUFFER", stream_id=9, buffer="b", prompt=["hi", 3])
        assert await client.message() == {"stream_id": 9, "buffer": "b", "num_tokens": 2}
        await client.generate(prompt=[{"buffer": "b"}])
        await client.stream()
        assert client.engine.submitted[-1].prompt == [6004, 3]
        await client.send("BUFFER", stream_id=9, buffer="b", prompt=None)
        assert await client.message() == {"stream_id": 9, "buffer": "b"}
        await client.generate(prompt=[{"buffer": "b"}])
        assert "no buffer 'b'" in (await client.stream())[0]["error"]


@run
async def test_a_buffer_is_quiet_while_it_is_written() -> None:
    async with connected(silent, tokens(11)) as client:
        await client.generate(1, buffer="a")
        await client.generate(2, prompt=[{"buffer": "a"}])
        assert "still writes" in (await client.stream(2))[0]["error"]
        await client.generate(2, buffer="a")
        assert "still writes" in (await client.stream(2))[0]["error"]
        await client.send("CANCEL", stream_id=1)
        await client.stream(1)
        await client.generate(2, prompt=[{"buffer": "a"}])
        await client.stream(2)
        assert client.engine.submitted[-1].prompt == [5, 6, 7]


@run
async def test_a_failed_stream_does_not_change_its_buffer() -> None:
    async with connected(tokens(11), fails(wire.Failure.of(UsageError("no"))), tokens(12)) as client:
        for _ in range(2):
            await client.generate(buffer="a")
            await client.stream()
        await client.generate(prompt=[{"buffer": "a"}])
        await client.stream()
        assert client.engine.submitted[-1].prompt == [5, 6, 7, 11]


@run
async def test_buffers_are_bounded() -> None:
    async with connected() as client:
        await client.send("BUFFER", stream_id=1, buffer="big", prompt=[5] * 2000)
        assert (await client.message())["num_tokens"] == 2000
        await client.generate(prompt=[{"buffer": "big"}] * 10_000)
        assert "a sequence may have 2048" in (await client.stream())[0]["error"]
        for number in range(64):
            await client.send("BUFFER", stream_id=1, buffer=str(number), prompt=[5])
            answer = await client.message()
        assert "64 buffers" in answer["error"]
