"""The built-in aggregates and the hash against plain Python."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.errors import DefinitionError
from tidegate.kernel.aggregates import Accumulator, Overflow, accumulator
from tidegate.kernel.columns.hash64 import NULL_HASH, hash64
from tidegate.spec.aggregates import Aggregate

WIDE = Context(prec=90)
DAY = dt.date(2013, 1, 1)
NOON = dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC)
LONG = pa.int64()
FUNCTIONS = ("count", "sum", "min", "max", "mean", "first", "last", "collect_list", "approx_count_distinct")
SAMPLES: dict[pa.DataType, list[Any]] = {
    pa.int8(): [1, -128, None, 127],
    pa.int16(): [1, None, -5],
    pa.int32(): [2**31 - 1, -(2**31), None],
    LONG: [2**60, -(2**60), None, 7],
    pa.float32(): [1.5, None, math.nan, -math.inf],
    pa.float64(): [0.1, None, math.nan, math.inf, -2.5],
    pa.decimal128(9, 2): [Decimal("1.25"), None, Decimal("-9999999.99")],
    pa.string(): ["b", "", None, "ß", "a\0"],
    pa.large_string(): ["b", "", None, "ab"],
    pa.binary(): [b"\xff", b"", None],
    pa.bool_(): [True, None, False],
    pa.date32(): [DAY, None, DAY + dt.timedelta(9)],
    pa.timestamp("us", "UTC"): [NOON, None, NOON - dt.timedelta(1)],
}
NUMERIC = [k for k in SAMPLES if pa.types.is_integer(k) or pa.types.is_floating(k) or pa.types.is_decimal(k)]


def make(function: str, kind: pa.DataType | None) -> Accumulator:
    return accumulator(Aggregate(function, "x"), kind)


def naive(function: str, values: list[Any], kind: pa.DataType) -> Any:
    """The aggregate of a list, by definition."""
    there = [value for value in values if value is not None]
    if function == "count":
        return len(there)
    if function in ("first", "last"):
        return values[0 if function == "first" else -1]
    if function == "collect_list":
        return there
    if not there:
        return None
    if function in ("min", "max"):
        pick = min if function == "min" else max
        return pick(there, key=lambda v: (True, 0.0) if isinstance(v, float) and math.isnan(v) else (False, v))
    if isinstance(there[0], float):
        total = sum(there, -0.0)
        return total if function == "sum" else total / len(there)
    total = sum(map(WIDE.create_decimal, there))
    if function == "sum":
        return total if pa.types.is_decimal(kind) else int(total)
    if pa.types.is_decimal(kind):
        digit = Decimal(1).scaleb(-min(kind.scale + 4, 38))
        return WIDE.divide(total, Decimal(len(there))).quantize(digit, ROUND_HALF_UP, WIDE)
    return float(total) / len(there)


def same(got: Any, expected: Any, exact: bool = True) -> bool:
    if isinstance(got, float) and isinstance(expected, float):
        if math.isnan(got) or math.isnan(expected):
            return math.isnan(got) and math.isnan(expected)
        return got == expected if exact else math.isclose(got, expected, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(got, list) and isinstance(expected, list):
        return len(got) == len(expected) and all(map(same, got, expected))
    return bool(got == expected)


def starts_of(runs: list[list[Any]]) -> np.ndarray:
    return np.cumsum([0, *map(len, runs)])[:-1].astype(np.int64)


def agree(got: pa.Array, expected: list[Any], exact: bool = True) -> None:
    shown = got.to_pylist()
    assert len(shown) == len(expected)
    assert all(same(a, b, exact) for a, b in zip(shown, expected, strict=True)), (shown, expected)


def check(function: str, kind: pa.DataType, runs: list[list[Any]]) -> None:
    """Merge by runs, in two rounds, by Arrow's hash aggregates, and as a scan."""
    acc = make(function, kind)
    column = pa.array([value for run in runs for value in run], kind)
    state = acc.lift(column, len(column))
    assert tuple(part.type for part in state) == acc.state_types
    starts = starts_of(runs)
    expected = [naive(function, run, kind) for run in runs]
    exact = function not in ("sum", "mean")
    merged = acc.merge_runs(state, starts)
    assert tuple(part.type for part in merged) == acc.state_types
    result = acc.finish(merged)
    assert result.type == acc.result_type
    agree(result, expected, exact)
    pairs = starts_of([run[at : at + 2] for run in runs for at in range(0, len(run), 2)])
    halves = acc.merge_runs(state, pairs)
    twice = acc.merge_runs(halves, np.searchsorted(pairs, starts))
    agree(acc.finish(twice), expected, exact)
    if acc.merges is not None and acc.safe(state):
        agree(acc.finish(hashed(acc, state, starts)), expected, exact)
    scanned = acc.scan_runs(state, starts)
    assert tuple(part.type for part in scanned) == acc.state_types
    running = [naive(function, run[: end + 1], kind) for run in runs for end in range(len(run))]
    agree(acc.finish(scanned), running, exact)
    some = np.arange(len(running))[::-2]
    agree(acc.finish(acc.scan_at(state, starts, some)), [running[at] for at in some.tolist()], exact)


def hashed(acc: Accumulator, state: list[pa.Array], starts: np.ndarray) -> list[pa.Array]:
    group = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(state[0])))
    table = pa.table({"g": group} | {f"s{i}": part for i, part in enumerate(state)})
    hows = [(f"s{i}", how) for i, how in enumerate(acc.merges or ())]
    merged = table.group_by("g").aggregate(hows).sort_by("g")
    return [
        merged.column(f"{name}_{how}").combine_chunks().cast(kind)
        for (name, how), kind in zip(hows, acc.state_types, strict=True)
    ]


PLAIN = [f for f in FUNCTIONS if f != "approx_count_distinct"]


TAKEN = [(f, kind) for f in PLAIN for kind in SAMPLES if f not in ("sum", "mean") or kind in NUMERIC]


@pytest.mark.parametrize(("function", "kind"), TAKEN, ids=str)
def test_every_type_against_python(function: str, kind: pa.DataType) -> None:
    values = SAMPLES[kind]
    check(function, kind, [values, [None], values[::-1], [None, values[0], None], [values[0]]])


def runs_of(element: st.SearchStrategy[Any]) -> st.SearchStrategy[list[list[Any]]]:
    return st.lists(st.lists(st.none() | element, min_size=1, max_size=9), min_size=1, max_size=6)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(PLAIN), runs_of(st.integers(-(2**59), 2**59)))
def test_longs(function: str, runs: list[list[Any]]) -> None:
    check(function, LONG, runs)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(PLAIN), runs_of(st.integers(-1000, 1000).map(lambda n: n / 8) | st.just(math.nan)))
def test_doubles(function: str, runs: list[list[Any]]) -> None:
    check(function, pa.float64(), runs)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(PLAIN), runs_of(st.decimals(-(10**20), 10**20, places=6, allow_nan=False)))
def test_decimals(function: str, runs: list[list[Any]]) -> None:
    check(function, pa.decimal128(27, 6), runs)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(["count", "min", "max", "first", "last", "collect_list"]), runs_of(st.text(max_size=4)))
def test_strings(function: str, runs: list[list[Any]]) -> None:
    check(function, pa.string(), runs)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_slices_and_no_rows(function: str) -> None:
    acc, starts = make(function, LONG), np.array([0, 2], np.int64)
    column = pa.array([9, 9, None, 1, 2, 2, 9])
    whole = acc.lift(column.slice(2, 4), 4)
    inside = [part.slice(2, 4) for part in acc.lift(column, 7)]
    assert acc.finish(acc.merge_runs(inside, starts)).equals(acc.finish(acc.merge_runs(whole, starts)))
    assert acc.finish(acc.scan_runs(inside, starts)).equals(acc.finish(acc.scan_runs(whole, starts)))
    nothing = acc.lift(column.slice(0, 0), 0)
    for way in (acc.merge_runs, acc.scan_runs):
        assert acc.finish(way(nothing, np.empty(0, np.int64))).equals(pa.array([], acc.result_type))


def test_count_without_a_column_counts_records() -> None:
    acc = accumulator(Aggregate("count"), None)
    assert acc.finish(acc.merge_runs(acc.lift(None, 5), np.array([0, 2]))).to_pylist() == [2, 3]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("later", [LONG, pa.float64(), pa.decimal128(9, 2), pa.string()], ids=str)
def test_a_column_of_nulls_merges_with_what_comes_later(function: str, later: pa.DataType) -> None:
    unseen = make(function, pa.null())
    early = unseen.lift(pa.nulls(2), 2)
    assert tuple(part.type for part in early) == unseen.state_types
    nothing: Any = {"count": 0, "approx_count_distinct": 0, "collect_list": []}.get(function)
    starts = np.array([0], np.int64)
    assert unseen.finish(unseen.merge_runs(early, starts)).to_pylist() == [nothing]
    assert unseen.finish(unseen.scan_runs(early, starts)).to_pylist() == [nothing] * 2
    if unseen.merges is not None:
        assert unseen.finish(hashed(unseen, early, starts)).to_pylist() == [nothing]
    if function in ("sum", "mean") and later == pa.string():
        return
    acc = make(function, later)
    value = pa.array([{pa.decimal128(9, 2): Decimal(1), pa.string(): "1"}.get(later, 1)], later)
    tables = [pa.table({f"s{i}": part for i, part in enumerate(state)}) for state in (early, acc.lift(value, 1))]
    both = pa.concat_tables(tables, promote_options="default")
    assert tuple(both.schema.types) == acc.state_types
    got = acc.finish(acc.merge_runs([column.combine_chunks() for column in both.columns], starts))
    expected = [None, None, value[0].as_py()]
    assert got.to_pylist() == [1 if function == "approx_count_distinct" else naive(function, expected, later)]
    typed_over_null_state = acc.merge_runs(early, starts)
    assert acc.finish(typed_over_null_state).to_pylist() == [nothing]


@pytest.mark.parametrize(("kind", "result"), [
    (pa.int8(), LONG), (pa.int32(), LONG), (pa.float32(), pa.float64()), (pa.decimal128(9, 2), pa.decimal128(19, 2)),
    (pa.decimal128(30, 4), pa.decimal128(38, 4)),
], ids=str)  # fmt: skip
def test_the_type_of_a_sum(kind: pa.DataType, result: pa.DataType) -> None:
    assert make("sum", kind).result_type == result


@pytest.mark.parametrize(("kind", "result"), [
    (pa.int8(), pa.float64()), (LONG, pa.float64()), (pa.float32(), pa.float64()),
    (pa.decimal128(9, 2), pa.decimal128(13, 6)), (pa.decimal128(38, 36), pa.decimal128(38, 38)),
], ids=str)  # fmt: skip
def test_the_type_of_a_mean(kind: pa.DataType, result: pa.DataType) -> None:
    assert make("mean", kind).result_type == result


@pytest.mark.parametrize("kind", [pa.string(), pa.bool_(), pa.date32(), pa.binary(), pa.list_(LONG)], ids=str)
@pytest.mark.parametrize("function", ["sum", "mean"])
def test_sums_refuse_what_is_not_a_number(function: str, kind: pa.DataType) -> None:
    with pytest.raises(DefinitionError) as caught:
        make(function, kind)
    assert f"`{function}(x)` adds up values, but column `x` is of type {kind}. Cast it to long" in str(caught.value)


@pytest.mark.parametrize("function", ["min", "max", "approx_count_distinct"])
def test_nested_types_are_refused(function: str) -> None:
    with pytest.raises(
        DefinitionError, match=rf"`{function}\(x\)` .* column `x` is of type list<item: int64>.*Take one"
    ):
        make(function, pa.list_(LONG))
    with pytest.raises(DefinitionError, match=rf"`{function}\(x\)` .* column `x` is of type month_day_nano_interval"):
        make(function, pa.month_day_nano_interval())


def test_wrong_aggregates_are_refused() -> None:
    with pytest.raises(DefinitionError, match=r"`median\(x\)` is not a built-in aggregate"):
        make("median", LONG)
    with pytest.raises(DefinitionError, match=r"`sum.*` needs the type of a column"):
        make("sum", None)


DECIMAL = pa.decimal128(38, 0)


class TestOverflow:
    def test_a_long_sum_names_its_group_and_total(self) -> None:
        acc = make("sum", LONG)
        state = acc.lift(pa.array([1, 2**63 - 1, 1]), 3)
        assert not acc.safe(state)
        with pytest.raises(Overflow, match="the sum 9223372036854775808 does not fit int64") as caught:
            acc.merge_runs(state, np.array([0, 1]))
        assert caught.value.group_index == 1
        with pytest.raises(Overflow) as caught:
            acc.scan_runs(state, np.array([0, 1]))
        assert caught.value.group_index == 1

    @pytest.mark.parametrize(("function", "kind"), [("sum", LONG), ("sum", DECIMAL), ("mean", DECIMAL)], ids=str)
    def test_only_the_rows_that_are_asked_for_must_fit(self, function: str, kind: pa.DataType) -> None:
        acc, starts = make(function, kind), np.array([0, 1])
        most = 2**63 - 1 if kind == LONG else 10**38 - 1
        values = [1, most, 1, -1] if kind == LONG else list(map(Decimal, (1, most, 1, -1)))
        state = acc.lift(pa.array(values, kind), 4)
        assert acc.scan_at(state, starts, np.array([0, 3])) == acc.merge_runs(state, starts)
        with pytest.raises(Overflow) as caught:
            acc.scan_at(state, starts, np.array([0, 2]))
        assert caught.value.group_index == 1

    def test_the_largest_and_smallest_longs_are_exact(self) -> None:
        acc, starts = make("sum", LONG), np.array([0, 3, 5, 6])
        state = acc.lift(pa.array([2**63 - 1, 2**63 - 1, -(2**63), -(2**63) + 1, -1, None, 5]), 7)
        got = acc.finish(acc.merge_runs(state, starts)).to_pylist()
        assert got == [2**63 - 2, -(2**63), None, 5]

    @pytest.mark.parametrize("kind", [LONG, pa.decimal128(38, 0)])
    def test_a_scan_of_some_rows_passes_others_that_overflow(self, kind: pa.DataType) -> None:
        acc, most = make("sum", kind), 2**63 - 1 if kind == LONG else Decimal(10**38 - 1)
        state, starts = acc.lift(pa.array([1, most, 1, -1, 2, None], kind), 6), np.array([0, 1])
        scanned = acc.scan_at(state, starts, np.array([3, 0, 1]))
        assert acc.finish(scanned).to_pylist() == [most, 1, most]
        with pytest.raises(Overflow) as caught:
            acc.scan_at(state, starts, np.array([0, 1, 5]))
        assert caught.value.group_index == 1

    def test_a_long_mean_does_not_overflow(self) -> None:
        check("mean", LONG, [[2**63 - 1, 2**63 - 1], [-(2**63), None, -(2**63)]])

    def test_a_decimal_sum_beyond_38_digits(self) -> None:
        acc, most = make("sum", pa.decimal128(38, 2)), Decimal("9" * 36 + ".99")
        state = acc.lift(pa.array([most, most.copy_negate(), most, Decimal("0.01")], pa.decimal128(38, 2)), 4)
        assert not acc.safe(state)
        assert acc.finish(acc.merge_runs(state, np.array([0, 2, 3]))).to_pylist() == [
            0,
            most,
            Decimal("0.01"),
        ]
        with pytest.raises(Overflow, match=r"the sum 10{36}\.00 does not fit decimal128\(38, 2\)") as caught:
            acc.merge_runs(state, np.array([0, 2]))
        assert caught.value.group_index == 1
        with pytest.raises(Overflow):
            acc.scan_runs(state, np.array([0, 2]))
        doubled = acc.lift(pa.array([most] * 4, pa.decimal128(38, 2)), 4)
        with pytest.raises(Overflow, match=r"the sum 39{35}9\.96 "):  # wraps 128 bits as well
            acc.merge_runs(doubled, np.array([0]))

    def test_a_decimal_mean_that_has_no_room_for_its_digits(self) -> None:
        acc = make("mean", pa.decimal128(38, 2))
        state = acc.lift(pa.array([Decimal(1), Decimal(10**35)], pa.decimal128(38, 2)), 2)
        with pytest.raises(Overflow, match=r"the mean 10{35}\.\d* does not fit decimal128\(38, 6\)") as caught:
            acc.finish(state)
        assert caught.value.group_index == 1

    def test_few_or_small_values_are_safe(self) -> None:
        for kind in (LONG, pa.decimal128(38, 0), pa.float64(), pa.int8()):
            for function in ("sum", "mean", "count", "min"):
                acc = make(function, kind)
                assert acc.safe(acc.lift(pa.array([1, None, 3]).cast(kind), 3))
        assert not make("first", LONG).safe([pa.array([1])])


def test_decimal_means_round_half_away_from_zero() -> None:
    acc = make("mean", pa.decimal128(3, 0))
    values = pa.array([Decimal(v) for v in (1, 0, -1, 0, 2, 0, 0)], pa.decimal128(3, 0))
    state = [acc.merge_runs(acc.lift(values, 7), np.array([0, 2, 4]))[0], pa.array([2 * 10**4, 2 * 10**4, 3])]
    got = acc.finish(state)
    assert got.to_pylist() == [Decimal("0.0001"), Decimal("-0.0001"), Decimal("0.6667")]


@pytest.mark.parametrize("scale", [0, 18, 34, 35, 36, 37, 38])
def test_decimal_means_are_exact_at_every_scale(scale: int) -> None:
    """Of numbers one below a power, whose quotients carry through all digits."""
    kind, last = pa.decimal128(38, scale), Decimal(1).scaleb(-min(38, scale + 4))
    divided = [(n * power - 1, n) for n in (2, 3, 7, 8, 999) for power in (*(2**i for i in range(99)), 10**27, 10**30)]
    with localcontext(prec=80):
        totals = [Decimal(total).scaleb(-scale) for total, _ in divided]
        expected = [(t / n).quantize(last, ROUND_HALF_UP) for t, (_, n) in zip(totals, divided, strict=True)]
    state = [pa.array(totals, kind), pa.array([n for _, n in divided])]
    assert make("mean", kind).finish(state).to_pylist() == expected


def test_infinities_stay_in_their_run() -> None:
    acc = make("sum", pa.float64())
    state = acc.lift(pa.array([math.inf, -math.inf, 1.0, None, 1e300, 1.0]), 6)
    got = acc.finish(acc.scan_runs(state, np.array([0, 2, 4]))).to_pylist()
    assert got[0] == math.inf
    assert math.isnan(got[1])
    assert got[2:] == [1.0, 1.0, 1e300, 1e300]


class TestDistinct:
    def test_any_cutting_and_order_gives_the_same_registers(self) -> None:
        acc = make("approx_count_distinct", LONG)
        rng = np.random.default_rng(7)
        values = pa.array(rng.integers(0, 3000, 5000))
        state, start = acc.lift(values, 5000), np.array([0])
        whole = acc.merge_runs(state, start)[0]
        assert whole.type == pa.list_(pa.uint16())
        cuts = np.unique(np.append(rng.integers(0, 5000, 40), 0))
        assert acc.merge_runs(acc.merge_runs(state, cuts), start)[0].equals(whole)
        assert acc.merge_runs(acc.lift(values.take(pa.array(rng.permutation(5000))), 5000), start)[0].equals(whole)
        scanned = acc.scan_runs(state, start)[0]
        assert scanned[4999].as_py() == whole[0].as_py()
        assert scanned[1022:1024].to_pylist() == [
            acc.merge_runs([state[0].slice(0, end)], start)[0][0].as_py() for end in (1023, 1024)
        ]

    def test_scans_keep_runs_apart(self) -> None:
        acc = make("approx_count_distinct", LONG)
        runs = [[random.Random(n).randrange(50) for _ in range(n)] for n in (1, 1022, 3, 700, 2, 2000)]
        state = acc.lift(pa.array([v for run in runs for v in run]), sum(map(len, runs)))
        starts = starts_of(runs)
        scanned, merged = acc.scan_runs(state, starts)[0], acc.merge_runs(state, starts)[0]
        assert scanned.take(pa.array(np.append(starts[1:], len(state[0])) - 1)).equals(merged)
        assert acc.finish([scanned]).to_pylist()[1:4] == [1, len(set(runs[1][:2])), len(set(runs[1][:3]))]

    @pytest.mark.parametrize("n", [0, 1, 2, 10, 100, 1000, 10_000, 300_000])
    def test_the_error_is_within_three_standard_deviations(self, n: int) -> None:
        acc = make("approx_count_distinct", pa.string())
        names = pa.array([f"user-{i}" for i in range(n)] + ["user-0"] * (n > 0) + [None], pa.string())
        got = acc.finish(acc.merge_runs(acc.lift(names, len(names)), np.array([0])))[0].as_py()
        assert abs(got - n) <= 3 * 0.046 * n

    def test_the_estimate_has_no_bias_and_the_stated_spread(self) -> None:
        acc, each = make("approx_count_distinct", LONG), 2000
        values = pa.array(np.arange(300 * each))
        got = acc.finish(acc.merge_runs(acc.lift(values, len(values)), np.arange(300) * each)).to_numpy() / each
        assert abs(got.mean() - 1) < 0.01
        assert 0.035 < got.std() < 0.055

    def test_equal_floats_count_once(self) -> None:
        acc = make("approx_count_distinct", pa.float64())
        state = acc.lift(pa.array([0.0, -0.0, math.nan, -math.nan, None]), 5)
        assert acc.finish(acc.merge_runs(state, np.array([0]))).to_pylist() == [2]

    def test_the_empty_string_is_a_value_like_any_other(self) -> None:
        acc = make("approx_count_distinct", pa.string())
        assert acc.finish(acc.lift(pa.array(["", None]), 2)).to_pylist() == [1, 0]
        assert acc.lift(pa.array([""]), 1)[0][0].as_py()[0] & 63 < 20


GOLDEN: list[tuple[pa.Array, list[int]]] = [
    (
        pa.array(["", "abc", "0123456789", "x" * 200, None]),
        [
            0x8209B480FAED1B10,
            0x79763E8703E6912E,
            0x40197F0D5995BF2F,
            0xDABFD7B696143EC1,
            0x7A6B9C3D51E2F08D,
        ],
    ),
    (
        pa.array([0, 1, -1, 2**40]),
        [
            0xE220A8397B1DCDAF,
            0x910A2DEC89025CC1,
            0xE4D971771B652C20,
            0x1FDD7128F310C389,
        ],
    ),
    (
        pa.array([0.0, 1.5, float("nan")]),
        [
            0xE220A8397B1DCDAF,
            0xD6DAB18E1392608A,
            0xC72971D82E15BB46,
        ],
    ),
    (
        pa.array([True, False]),
        [
            0x910A2DEC89025CC1,
            0xE220A8397B1DCDAF,
        ],
    ),
    (
        pa.array([Decimal("1.00"), Decimal("-12345678901234567890.12")], pa.decimal128(30, 2)),
        [
            0x4818920EF640F180,
            0xD1A4DD2E2F4F54C1,
        ],
    ),
    (
        pa.array([0, 15706], pa.date32()),
        [
            0xE220A8397B1DCDAF,
            0xC2D4B737258FAAE5,
        ],
    ),
    (
        pa.array([1357041600000000], pa.timestamp("us", "UTC")),
        [
            0xA355EE2CD34BCE17,
        ],
    ),
    (
        pa.array([b"\xff", b"two words"]),
        [
            0x44F2A1357803CF15,
            0x545222369B441D80,
        ],
    ),
]


class TestHash:
    @pytest.mark.parametrize(("array", "hashes"), GOLDEN, ids=[str(array.type) for array, _ in GOLDEN])
    def test_golden_values_because_they_are_in_checkpoints(self, array: pa.Array, hashes: list[int]) -> None:
        assert [hex(value) for value in hash64(array).tolist()] == [hex(value) for value in hashes]

    @pytest.mark.parametrize("kind", SAMPLES, ids=str)
    def test_it_depends_on_the_value_alone(self, kind: pa.DataType) -> None:
        array = pa.array(SAMPLES[kind] * 3, kind)
        hashes = hash64(array)
        assert hashes.dtype == np.uint64
        assert (hash64(array.slice(2, 5)) == hashes[2:7]).all()
        assert (hash64(pa.chunked_array([array.slice(0, 3), array.slice(3)])) == hashes).all()
        assert [hash64(pa.array([value], kind))[0] for value in SAMPLES[kind]] == hashes[: len(SAMPLES[kind])].tolist()
        assert (hash64(array.dictionary_encode()) == hashes).all()
        assert len(set(hashes.tolist())) == len(SAMPLES[kind])
        assert hashes[SAMPLES[kind].index(None)] == NULL_HASH

    def test_types_that_hold_the_same_value(self) -> None:
        words = pa.array(["a", "", None, "long enough for more than one word"])
        for other in (pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view()):
            assert (hash64(words.cast(other)) == hash64(words)).all()
        assert (hash64(pa.array([1, -1], pa.int8())) == hash64(pa.array([1, -1]))).all()
        assert (hash64(pa.array([1.5], pa.float32())) == hash64(pa.array([1.5]))).all()
        small = pa.array([Decimal("-1.50"), Decimal("2.00")], pa.decimal128(4, 2))
        for wide in (pa.decimal128(38, 2), pa.decimal256(60, 2)):
            assert (hash64(small.cast(wide)) == hash64(small)).all()
        assert (hash64(pa.nulls(2)) == NULL_HASH).all()

    def test_long_values_and_neighbours(self) -> None:
        texts = ["x" * n for n in (0, 1, 7, 8, 9, 16, 127, 128, 129, 136, 137, 5000)]
        texts += ["x" * 4999 + "y", "y" + "x" * 4999]
        together = hash64(pa.array(texts))
        assert len(set(together.tolist())) == len(texts)
        assert [hash64(pa.array([text]))[0] for text in texts] == together.tolist()
        exact = pa.py_buffer("".join(texts).encode())  # no padding after the last byte
        offsets = pa.py_buffer(np.cumsum([0, *map(len, texts)]).astype(np.int32))
        assert (hash64(pa.Array.from_buffers(pa.string(), len(texts), [None, offsets, exact])) == together).all()

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.binary(max_size=40), min_size=1, max_size=20))
    def test_equal_exactly_if_the_bytes_are(self, values: list[bytes]) -> None:
        hashes = hash64(pa.array(values, pa.binary())).tolist()
        assert len(set(zip(values, hashes, strict=True))) == len(set(values)) == len(set(hashes))

    def test_nested_types_have_none(self) -> None:
        with pytest.raises(TypeError, match=r"values of type list<item: int64> cannot be hashed"):
            hash64(pa.array([[1]]))

    def test_bits_are_spread(self) -> None:
        for array in (pa.array(range(40_000)), pa.array([f"k{i}" for i in range(40_000)])):
            hashes = hash64(array)
            for shift in (0, 20, 40, 56):
                buckets = np.bincount((hashes >> np.uint64(shift)).astype(np.int64) & 255, minlength=256)
                assert 150 < ((buckets - 40_000 / 256) ** 2).sum() / (40_000 / 256) < 370  # chi square, 255 degrees
