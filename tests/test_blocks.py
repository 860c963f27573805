"""The block pool: who owns what, and which tokens stand where."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from minigen.generation.block_tables import BlockTables
from minigen.generation.blocks import NULL, ROOT, BlockPool


def test_blocks_are_counted_shared_and_given_back() -> None:
    pool = BlockPool(3, 4)
    a, b = pool.take(), pool.take()
    pool.share(a)
    assert (pool.num_free, pool.num_used, pool.owners[a], pool.owners[b]) == (1, 2, 2, 1)
    pool.release([a, b])
    assert (pool.num_free, pool.owners[a], pool.owners[b]) == (2, 1, 0)
    pool.release([a])
    assert (pool.num_free, pool.num_used) == (3, 0)


def test_the_null_block_is_never_given_out() -> None:
    pool = BlockPool(4, 2)
    assert NULL == 0
    assert sorted(pool.take() for _ in range(4)) == [1, 2, 3, 4]
    with pytest.raises(KeyError):
        pool.take()


def test_a_full_block_is_found_by_its_tokens_and_by_all_before_it() -> None:
    pool = BlockPool(4, 2)
    a, b = pool.take(), pool.take()
    first = pool.publish(a, ROOT, [5, 6])
    second = pool.publish(b, first, [7, 8])
    assert pool.find(ROOT, [5, 6]) == (first, a)
    assert pool.find(first, [7, 8]) == (second, b)
    assert pool.find(ROOT, [7, 8]) is None, "the same tokens after others are another content"
    assert pool.find(second, [7, 8]) is None


def test_tokens_of_the_same_hash_are_told_apart() -> None:
    assert hash((-1, 3)) == hash((-2, 3))
    pool = BlockPool(2, 2)
    name = pool.publish(pool.take(), ROOT, [-1, 3])
    assert pool.find(ROOT, [-2, 3]) is None
    assert pool.publish(pool.take(), ROOT, [-2, 3]) != name


def test_a_freed_block_stays_findable_until_it_is_given_out_again() -> None:
    pool = BlockPool(2, 2)
    a = pool.take()
    name = pool.publish(a, ROOT, [5, 6])
    pool.release([a])
    assert pool.find(ROOT, [5, 6]) == (name, a)
    pool.share(a)
    assert (pool.num_used, pool.owners[a]) == (1, 1)
    pool.release([a])
    assert {pool.take(), pool.take()} == {1, 2}
    assert pool.find(ROOT, [5, 6]) is None


def test_what_is_common_to_many_stays_longest() -> None:
    pool = BlockPool(4, 2)
    table = [pool.take() for _ in range(4)]
    name = ROOT
    for place, block in enumerate(table[:3]):
        name = pool.publish(block, name, [place, place])
    pool.release(table)
    assert [pool.take() for _ in range(4)] == [table[3], table[2], table[1], table[0]], "unknown first, then the tails"


def test_content_that_is_known_already_keeps_its_block() -> None:
    pool = BlockPool(3, 2)
    a, b = pool.take(), pool.take()
    assert pool.publish(a, ROOT, [5, 6]) == pool.publish(b, ROOT, [5, 6])
    found = pool.find(ROOT, [5, 6])
    assert found is not None
    assert found[1] == a


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(1, 8))
def test_free_and_used_are_always_all_and_owners_are_counted(data: st.DataObject, size: int) -> None:
    """BAT-7"""
    pool = BlockPool(size, 2)
    tables: list[list[int]] = []
    names: dict[int, tuple[int, int, tuple[int, int]]] = {}  # by block: name, what is before, tokens
    for _ in range(data.draw(st.integers(1, 25))):
        action = data.draw(st.sampled_from(["take", "share", "release", "publish"]))
        if action == "take" and pool.num_free:
            block = pool.take()
            names.pop(block, None)
            tables.append([block])
        elif action == "share" and tables:
            table = data.draw(st.sampled_from(tables))
            for block in table:
                pool.share(block)
            tables.append(list(table))
        elif action == "release" and tables:
            pool.release(tables.pop(data.draw(st.integers(0, len(tables) - 1))))
        elif action == "publish" and tables:
            block = data.draw(st.sampled_from(tables))[0]
            if block not in names:
                tokens = data.draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
                before = data.draw(st.sampled_from([ROOT, *(name for name, _, _ in names.values())]))
                names[block] = pool.publish(block, before, tokens), before, tokens
        owners = Counter(block for table in tables for block in table)
        assert pool.num_free + pool.num_used == size
        assert pool.num_used == len(owners)
        assert {block: count for block, count in enumerate(pool.owners) if count} == owners
        for name, before, tokens in names.values():
            found = pool.find(before, tokens)
            assert found is None or (found[0], names[found[1]][1:]) == (name, (before, tokens))


def test_blocks_whose_clearing_is_interrupted_are_free_again() -> None:
    def interrupted(blocks: list[int]) -> None:
        assert blocks == [1, 2, 3]
        raise KeyboardInterrupt

    tables = BlockTables(BlockPool(4, 2), clear=interrupted, copy=lambda source, target: None)
    sequence: Any = SimpleNamespace(table=[])
    with pytest.raises(KeyboardInterrupt):
        tables.grow(sequence, 5)
    assert (sequence.table, tables.pool.num_free) == ([], 4)
