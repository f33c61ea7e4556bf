"""Plans: every layer once, in order, within the memory, and as fast as can be."""

import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aici_base.errors import UsageError
from aici_engine.cluster.headers import ModelSizes, PartSize
from aici_engine.cluster.plan import HOP_S, NodeInfo, PipelinePlan, PlanRequest, make_plan
from aici_engine.model.stage_range import LayerRange

MB = 1_000_000


def model(
    num_layers: int, *, layer: int = 4 * MB, embedding: int = 2 * MB, head: int | None = None, kv: int = 500
) -> ModelSizes:
    """Sizes in weights. `head` None: tied."""
    return ModelSizes(
        name="Tiny",
        dtype="bfloat16",
        layers=(PartSize(layer, 0, ("layer",)),) * num_layers,
        embedding=PartSize(embedding, 0, ("embedding",)),
        positions=PartSize(),
        head=PartSize(head or 0, 0, ("head",)),
        tied=head is None,
        kv_numbers=(kv,) * num_layers,
        head_dim=64,
        hidden_size=1,
        intermediate_size=1,
        vocab_size=1,
        context=2048,
    )


def wanted(sizes: ModelSizes, *, pages: int = 100, min_pages: int = 1) -> PlanRequest:
    return PlanRequest(sizes=sizes, dtype="bfloat16", num_pages=pages, min_pages=min_pages)


def node(name: str, mb: float, rate: float = 10.0, **more: object) -> NodeInfo:
    return NodeInfo(name=name, budget_bytes=int(mb * MB), bytes_per_s=rate * 1e9, **more)  # type: ignore[arg-type]


def ranges(plan: PipelinePlan) -> list[tuple[str, int, int]]:
    return [(stage.node.name, stage.part.first, stage.part.last) for stage in plan.stages]


def check(plan: PipelinePlan, driver: str) -> None:
    """Every layer once and in order, the ends where they belong, all within the memory."""
    parts = [stage.part for stage in plan.stages]
    assert [parts[0].first, *(part.last for part in parts)] == [
        *(part.first for part in parts),
        len(plan.request.sizes.layers),
    ]
    assert parts[0].first == 0
    assert [part.embedding for part in parts] == [part.first == 0 < part.last for part in parts]
    assert sum(part.embedding for part in parts) == 1
    assert [part.head for part in parts] == [False] * (len(parts) - 1) + [True]
    assert plan.stages[-1].node.name == driver
    assert all(part.num_layers for part in parts[:-1])
    for stage in plan.stages:
        assert stage.num_bytes(plan.num_pages) <= stage.node.budget_bytes
    names = [stage.node.name for stage in plan.stages] + [spare.name for spare in plan.spares]
    assert len(names) == len(set(names))
    assert plan.request.least_pages <= plan.num_pages <= plan.request.num_pages


def test_stages_in_a_given_order_stay_in_it() -> None:
    nodes = [node("slow", 500, rate=5, rtt_s=0.1), node("fast", 500, rate=20), node("driver", 500, rate=5)]
    plan = make_plan(wanted(model(12)), nodes, driver="driver", in_order=True)
    assert [name for name, *_ in ranges(plan)] == ["slow", "fast", "driver"]
    assert plan.stages[0].part.num_layers < plan.stages[1].part.num_layers


def test_a_given_stage_has_a_layer_even_if_it_is_slow() -> None:
    nodes = [node("fast", 500, rate=20), node("slow", 500, rate=0.01), node("driver", 500, rate=20)]
    plan = make_plan(wanted(model(6)), nodes, driver="driver", in_order=True)
    assert plan.stages[1].part.num_layers == 1
    with pytest.raises(UsageError, match="nothing to compute: 1 layers for 2 stages"):
        make_plan(wanted(model(1)), nodes, driver="driver", in_order=True)


def test_kept_ranges_must_be_in_the_given_order() -> None:
    first, second = LayerRange(0, 2, embedding=True, head=False), LayerRange(2, 5, embedding=False, head=False)
    for held, kept in [((first, second), True), ((second, first), False)]:
        nodes = [node(str(i), 500, held=(part,)) for i, part in enumerate(held)]
        plan = make_plan(wanted(model(12)), [*nodes, node("driver", 500)], driver="driver", in_order=True)
        assert ([stage.part for stage in plan.stages[:2]] == [first, second]) is kept
        check(plan, "driver")


models = st.builds(
    model,
    st.integers(1, 80),
    layer=st.integers(1, 20 * MB),
    embedding=st.integers(1, 30 * MB),
    head=st.none() | st.integers(1, 30 * MB),
    kv=st.integers(1, 4000),
)
budgets = st.floats(0, 1500)
rates = st.sampled_from([1.0, 5.0, 10.0, 12.5, 25.0])


@st.composite
def machines(draw: st.DrawFn, most: int = 9) -> list[NodeInfo]:
    count = draw(st.integers(1, most))
    return [
        node(f"n{i}", draw(budgets), draw(rates), rtt_s=draw(st.sampled_from([0.0, 0.001, 0.02]))) for i in range(count)
    ]


@given(models, machines(), st.integers(1, 2000), st.integers(1, 2000))
def test_every_layer_is_planned_once_within_the_memory(
    sizes: ModelSizes, nodes: list[NodeInfo], pages: int, min_pages: int
) -> None:
    request = wanted(sizes, pages=pages, min_pages=min_pages)
    with contextlib.suppress(UsageError):
        check(make_plan(request, nodes, driver="n0"), "n0")


@given(models, machines(5), st.integers(0, 4), st.floats(0, 500))
def test_more_memory_never_makes_a_plan_impossible(
    sizes: ModelSizes, nodes: list[NodeInfo], which: int, more: float
) -> None:
    request = wanted(sizes)
    try:
        pages = make_plan(request, nodes, driver="n0").num_pages
    except UsageError:
        return
    index = which % len(nodes)
    nodes[index] = node(nodes[index].name, nodes[index].budget_bytes / MB + more, nodes[index].bytes_per_s / 1e9)
    plan = make_plan(request, nodes, driver="n0")
    check(plan, "n0")
    assert plan.num_pages >= pages


@given(st.integers(1, 80), st.integers(1, 9))
def test_equal_nodes_get_equal_shares(num_layers: int, count: int) -> None:
    sizes = model(num_layers, embedding=1, head=0)
    plan = make_plan(wanted(sizes), [node(f"n{i}", 10_000) for i in range(count)], driver="n0")
    shares = [stage.part.num_layers for stage in plan.stages] + [0] * (count - len(plan.stages))
    assert max(shares) - min(shares) <= 1


small_models = st.builds(
    model,
    st.integers(1, 6),
    layer=st.integers(1, 9),
    embedding=st.integers(1, 9),
    head=st.none() | st.integers(1, 20),
    kv=st.integers(1, 3),
)


@given(small_models, st.lists(st.tuples(st.integers(0, 400), rates), min_size=1, max_size=4), st.booleans())
def test_no_other_plan_is_faster(sizes: ModelSizes, given_nodes: list[tuple[int, float]], in_order: bool) -> None:
    request = PlanRequest(sizes=sizes, dtype="bfloat16", num_pages=1, page_size=1, max_batch_tokens=0)
    nodes = [
        NodeInfo(name=f"n{i}", budget_bytes=size + 256, bytes_per_s=rate) for i, (size, rate) in enumerate(given_nodes)
    ]
    every = list(_all_plans(request, nodes, in_order=in_order))
    try:
        plan = make_plan(request, nodes, driver="n0", in_order=in_order)
    except UsageError:
        assert not every
        return
    times = [stage.read_s for stage in plan.stages]
    assert max(times) == pytest.approx(min(max(each) for each in every))
    same_bound = [each for each in every if max(each) <= max(times) * (1 + 1e-9)]
    assert sum(times) == pytest.approx(min(map(sum, same_bound)))


def _all_plans(request: PlanRequest, nodes: list[NodeInfo], *, in_order: bool) -> list[list[float]]:
    """The times of the stages of every plan that fits, by brute force."""
    sizes, found = request.sizes, []
    for others in [nodes[1:]] if in_order else itertools.permutations(nodes[1:]):
        order = [*others, nodes[0]]
        for cut in itertools.combinations_with_replacement(range(sizes.num_layers + 1), len(order) - 1):
            times = []
            for each, (first, last) in zip(order, itertools.pairwise([0, *cut, sizes.num_layers]), strict=True):
                part = LayerRange(first, last, embedding=first == 0 < last, head=each is nodes[0])
                if not part.num_layers and not part.head:
                    if in_order:
                        break
                    continue
                num_bytes = sizes.weight_bytes(part, "bfloat16") + sizes.token_bytes(part, "bfloat16")
                if num_bytes + 8 * request.max_num_seqs * part.head > each.budget_bytes:
                    break
                times.append(sizes.read_bytes(part, "bfloat16") / each.bytes_per_s)
            else:
                found.append(times)
    return found


def test_what_does_not_fit_is_named_with_the_missing_bytes() -> None:
    sizes = model(10, layer=512 << 20, embedding=1, head=0)  # a GiB a layer
    nodes = [node("a", 4.5 * 1073.8), node("b", 3.5 * 1073.8), node("c", 1.5 * 1073.8)]
    with pytest.raises(UsageError, match=r"short by 1\.6 GiB: node a would need 6\.1 of 4\.5\n") as caught:
        make_plan(wanted(sizes), nodes, driver="a")
    assert "smaller dtype" in caught.value.hint


def test_a_small_node_gets_fewer_layers_or_none() -> None:
    sizes = model(30)
    plan = make_plan(wanted(sizes, pages=1), [node("small", 62), node("tiny", 8), node("big", 1000)], driver="big")
    assert ranges(plan) == [("small", 0, 7), ("big", 7, 30)]
    assert [spare.name for spare in plan.spares] == ["tiny"]


def test_a_driver_without_room_for_a_layer_has_the_head_alone() -> None:
    plan = make_plan(wanted(model(30, head=1)), [node("driver", 1.2), node("big", 1000)], driver="driver")
    assert ranges(plan) == [("big", 0, 30), ("driver", 30, 30)]


def test_fewer_pages_than_wanted_are_planned_if_no_more_fit() -> None:
    sizes = model(10, kv=1000)  # a page has 320 kB in all layers
    plan = make_plan(wanted(sizes, pages=10_000), [node("a", 100), node("b", 100)], driver="b")
    assert 300 < plan.num_pages < 400
    with pytest.raises(UsageError, match="short by"):
        make_plan(wanted(sizes, pages=10_000, min_pages=1000), [node("a", 100), node("b", 100)], driver="b")


def test_the_way_around_is_the_shortest() -> None:
    nodes = [node(name, 150) for name in "abcd"]
    near = {("a", "c"): 0.001, ("c", "d"): 0.001, ("a", "b"): 0.001, ("b", "d"): 0.001}
    rtts = {pair: near.get(pair, 0.1) for pair in itertools.combinations("abcd", 2)}
    plan = make_plan(wanted(model(60)), nodes, driver="d", rtts=rtts)
    assert [name for name, *_ in ranges(plan)] in (["c", "a", "b", "d"], ["b", "a", "c", "d"])
    assert plan.hops_s == pytest.approx(4 * (HOP_S + 0.0005))


def test_nodes_keep_what_they_hold() -> None:
    held = {"a": LayerRange(10, 14, embedding=False, head=False), "b": LayerRange(0, 10, embedding=True, head=False)}
    nodes = [node(name, 1000, held=(held[name],) if name in held else ()) for name in "abc"]
    assert ranges(make_plan(wanted(model(30)), nodes, driver="c")) == [("b", 0, 10), ("a", 10, 14), ("c", 14, 30)]
    fresh = make_plan(wanted(model(30)), nodes, driver="c", keep=False)
    assert [stage.part.num_layers for stage in fresh.stages] == [10, 10, 10]


def test_a_spare_takes_the_layers_of_a_lost_node() -> None:
    held = {"a": LayerRange(0, 10, embedding=True, head=False), "b": LayerRange(20, 25, embedding=False, head=False)}
    nodes = [node(name, 1000, held=(held[name],) if name in held else ()) for name in ("b", "a", "spare", "driver")]
    plan = make_plan(wanted(model(30)), nodes, driver="driver")
    assert ranges(plan) == [("a", 0, 10), ("spare", 10, 20), ("b", 20, 25), ("driver", 25, 30)]


def test_what_nodes_hold_is_given_up_if_it_does_not_fit() -> None:
    nodes = [node("a", 1000, held=(LayerRange(0, 2, embedding=True, head=False),)), node("b", 50)]
    assert ranges(make_plan(wanted(model(30)), nodes, driver="b")) == [("a", 0, 26), ("b", 26, 30)]


def test_small_batches_gain_nothing_and_large_ones_do() -> None:
    sizes = model(40, layer=40 * MB)
    nodes = [node(name, 4000, 10.0, flops_per_s={"bfloat16": 50e9}) for name in "ab"]
    plan = make_plan(wanted(sizes), nodes, driver="b")
    alone = plan.speed_alone(1)
    assert alone is not None
    assert plan.speed(1).tokens_per_s < alone.tokens_per_s
    assert plan.speed(1).tokens_per_s_in_flights == pytest.approx(plan.speed(1).tokens_per_s)
    alone = plan.speed_alone(16)
    assert alone is not None
    assert plan.speed(16).tokens_per_s_in_flights > 1.6 * alone.tokens_per_s


def test_names_are_checked() -> None:
    with pytest.raises(UsageError, match="the driver 'x' is not among the nodes a"):
        make_plan(wanted(model(2)), [node("a", 100)], driver="x")
    with pytest.raises(UsageError, match="two nodes have the same name"):
        make_plan(wanted(model(2)), [node("a", 100), node("a", 100)], driver="a")
