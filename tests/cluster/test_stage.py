"""A stage without sockets: what a driver may say, in which order, and what becomes of failures."""

import msgspec
import numpy as np
import pytest

from aici_engine.cluster.frames import (
    Attach,
    Attached,
    Buffer,
    ChunkFrame,
    Detach,
    FromStage,
    MeasureSpeed,
    StageFacts,
    StageLoaded,
    StageLost,
    StageSpeed,
    StepFailed,
    StepFrame,
    StepStates,
    TensorDigest,
)
from aici_engine.cluster.link import LinkLostError
from aici_engine.cluster.stage import Stage, StagePorts
from aici_engine.failure import Failure
from aici_engine.model.stage_range import LayerRange
from tests.cluster.fake_model import HIDDEN_SIZE
from tests.cluster.fake_pipeline import PAGE_SIZE, FakeLoader, load_frame

FIRST = load_frame(LayerRange(0, 2, embedding=True, head=False))
SECOND = load_frame(LayerRange(2, 4, embedding=False, head=False))


class Ports(StagePorts):
    """Keeps the messages. `next`: the address of the next stage, `None` without a connection."""

    def __init__(self) -> None:
        self.said: list[FromStage] = []
        self.passed_on: list[tuple[StepFrame, bytes]] = []
        self.next: str | None = None

    def to_driver(self, message: FromStage, body: Buffer = b"") -> None:
        self.said.append(message)

    def to_next(self, message: StepFrame, body: Buffer) -> None:
        self.passed_on.append((message, bytes(body)))

    def connect_next(self, address: str) -> None:
        self.next = address

    def disconnect_next(self) -> None:
        self.next = None


class Setup:
    def __init__(self, *, memory_bytes: int = 1 << 20, fails_at_run: int = 0) -> None:
        self.ports = Ports()
        self.loader = FakeLoader(fails_at_run=fails_at_run)
        self.num_measured = 0
        self.stage = Stage(self.ports, self.loader, memory_bytes=memory_bytes, measure=self.measure)

    def measure(self) -> StageSpeed:
        self.num_measured += 1
        return StageSpeed(1e9 * self.num_measured, {"int8": 1e10})

    def attached(self, epoch: int = 1, *, next_stage: str = "") -> "Setup":
        self.stage.receive(FIRST)
        self.stage.receive(attach(epoch, next_stage=next_stage))
        if next_stage:
            self.stage.next_connected()
        assert isinstance(self.ports.said[-1], Attached)
        return self

    def failure(self) -> StepFailed:
        failed = self.ports.said[-1]
        assert isinstance(failed, StepFailed)
        return failed


@pytest.fixture
def setup() -> Setup:
    return Setup()


def attach(epoch: int = 1, *, next_stage: str = "", num_pages: int = 10) -> Attach:
    return Attach(epoch, 0, 2, next_stage, num_pages, PAGE_SIZE, 64, 64, rows_only=False)


def step(number: int, tokens: list[int], *, epoch: int = 1, start: int = 0) -> tuple[StepFrame, bytes]:
    chunk = ChunkFrame(7, start, len(tokens), 0, [3, 4], 1)
    return StepFrame(epoch, number, [], [], [chunk]), np.array(tokens, np.int32).tobytes()


def test_a_stage_loads_attaches_and_computes(setup: Setup) -> None:
    setup.attached()
    setup.stage.receive(*step(1, [1, 2, 3]))
    assert setup.ports.said[-1] == StepStates(1, 1, setup.ports.said[-1].times)
    assert [stage for stage, *_ in setup.ports.said[-1].times] == [0]


def test_a_range_that_is_loaded_already_is_not_loaded_again(setup: Setup) -> None:
    setup.attached()
    setup.stage.detach()
    setup.stage.receive(FIRST)
    assert isinstance(setup.ports.said[-1], StageLoaded)
    assert len(setup.loader.models) == 1
    setup.stage.receive(SECOND)
    assert len(setup.loader.models) == 2
    assert setup.stage.describe(StageFacts(1, "", "cpu", 1, 1, 0)).held.first == 2


def test_a_failed_load_can_be_repeated(setup: Setup) -> None:
    setup.loader.fails = True
    setup.stage.receive(FIRST)
    assert setup.failure().failure.message == "no such model"
    setup.loader.fails = False
    setup.attached()


@pytest.mark.parametrize(
    ("memory_bytes", "message"), [(100, "need at least 0.00 GiB"), (2000 + 3 * 128, "room for 3 pages, not for 10")]
)
def test_a_stage_without_enough_memory_says_so(memory_bytes: int, message: str) -> None:
    setup = Setup(memory_bytes=memory_bytes)
    setup.stage.receive(FIRST)
    setup.stage.receive(attach())
    failures = [said.failure.message for said in setup.ports.said if isinstance(said, StepFailed)]
    assert message in failures[0]


def test_a_range_that_cannot_fit_is_refused_before_anything_is_read() -> None:
    setup = Setup(memory_bytes=1000)
    large = TensorDigest("w", "F32", (1 << 20, 1 << 20), 1 << 42, b"d" * 32)
    setup.stage.receive(msgspec.structs.replace(FIRST, tensors=[large]))
    assert "layers 0 to 1 need at least 4096.00 GiB" in setup.failure().failure.message
    assert setup.loader.models == []


def test_attach_without_weights_is_refused(setup: Setup) -> None:
    setup.stage.receive(attach())
    assert "before load" in setup.failure().failure.message


@pytest.mark.parametrize(
    ("number", "epoch", "tokens"),
    [(2, 1, [1]), (0, 1, [1]), (1, 2, [1]), (1, 1, [1] * 9), (1, 1, [-1]), (1, 1, [50]), (1, 1, [])],
    ids=["gap", "repeated", "later epoch", "no pages", "negative id", "id too large", "no tokens"],
)
def test_a_step_out_of_order_or_bounds_ends_the_epoch(setup: Setup, number: int, epoch: int, tokens: list[int]) -> None:
    setup.attached()
    frame, body = step(number, tokens, epoch=epoch)
    setup.stage.receive(frame, body)
    assert (setup.failure().epoch, setup.failure().number) == (1, 0)
    assert setup.loader.models[0].num_runs == 0
    setup.stage.receive(*step(1, [1]))
    assert setup.ports.said[-1] is setup.failure()  # nothing is computed before the next Attach
    setup.attached(2)
    setup.stage.receive(*step(1, [1], epoch=2))
    assert isinstance(setup.ports.said[-1], StepStates)


def test_a_step_of_an_earlier_epoch_is_dropped(setup: Setup) -> None:
    setup.attached(1).attached(2)
    count = len(setup.ports.said)
    setup.stage.receive(*step(1, [1], epoch=1))
    assert len(setup.ports.said) == count
    setup.stage.receive(*step(1, [1], epoch=2))
    assert isinstance(setup.ports.said[-1], StepStates)


def test_a_failed_forward_pass_is_a_failure_of_its_step() -> None:
    setup = Setup(fails_at_run=1).attached(next_stage="tcp://the-next:1")
    setup.stage.receive(*step(1, [1, 3]))
    [(failed, body)] = setup.ports.passed_on
    assert failed.failure is not None
    assert "a fault" in failed.failure.message
    assert body == b""
    setup.stage.receive(*step(2, [1, 2]))
    assert setup.ports.passed_on[1][0].failure is None
    assert len(setup.ports.passed_on[1][1]) == 2 * HIDDEN_SIZE * 4


def test_later_stages_follow_a_failed_step(setup: Setup) -> None:
    setup.stage.receive(SECOND)
    setup.stage.receive(attach())
    frame, _ = step(1, [1, 2])
    failure = Failure("internal_error", "no embedding")
    setup.stage.receive(StepFrame(1, 1, [], [(1, 2)], frame.chunks, [], failure))
    assert setup.failure() == StepFailed(1, 1, 0, failure)
    assert setup.loader.models[0].num_runs == 0
    chunk = ChunkFrame(7, 0, 1, 2, [], 1)  # the pages of the failed step are known
    setup.stage.receive(StepFrame(1, 2, [], [], [chunk]), bytearray(HIDDEN_SIZE * 4))
    assert isinstance(setup.ports.said[-1], StepStates)


def test_the_loss_of_the_next_stage_is_reported_and_ends_the_epoch(setup: Setup) -> None:
    setup.attached(next_stage="tcp://the-next:1")
    assert setup.ports.next == "tcp://the-next:1"
    setup.stage.next_lost(LinkLostError("gone"))
    assert isinstance(setup.ports.said[-1], StageLost)
    assert setup.ports.next is None
    setup.stage.receive(*step(1, [1]))
    assert setup.ports.passed_on == []


def test_detach_keeps_the_weights(setup: Setup) -> None:
    setup.attached()
    setup.stage.receive(Detach(1))
    setup.stage.receive(*step(1, [1]))
    assert isinstance(setup.ports.said[-1], Attached)
    setup.attached(2)
    assert len(setup.loader.models) == 1


def test_a_stage_measures_its_speed_once(setup: Setup) -> None:
    setup.stage.receive(MeasureSpeed())
    setup.attached()
    setup.stage.receive(MeasureSpeed())
    speeds = [said for said in setup.ports.said if isinstance(said, StageSpeed)]
    assert speeds == [StageSpeed(1e9, {"int8": 1e10})] * 2
    assert setup.num_measured == 1
