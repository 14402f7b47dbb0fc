"""Stacks as a tree: sums, limits, depth."""

from __future__ import annotations

from pictures.profiles import COMM, shop

from usdt.pictures.profile import MAX_FRAMES, Frame, Profile
from usdt.pictures.tree import difference, tree_of


def test_a_box_has_the_sum_of_those_above_it() -> None:
    tree = tree_of(shop())
    names = [tree.names[index] for index in tree.function]
    assert [weight.name for weight in tree.weights] == ["duration", "hits"]
    assert tree.values[0][names.index("main")] == 10_000
    assert tree.values[1][names.index("main")] == 6
    assert all(parent < index for index, parent in enumerate(tree.parent))


def test_the_smallest_boxes_are_left_out() -> None:
    profile = Profile()
    for number in range(100):
        profile.add(COMM, (Frame("main"), Frame(f"f{number}")), (number + 1,))
    tree = tree_of(profile, most=13)
    names = [tree.names[index] for index in tree.function]
    assert names == ["all", "shop", "main", *(f"f{number}" for number in range(90, 100))]
    assert tree.left_out == 90
    assert tree.values[0][0] == 5050


def test_a_stack_of_any_depth_keeps_its_innermost_frames() -> None:
    profile = Profile()
    profile.add((), tuple(Frame(f"f{number}") for number in range(100_000)), (1,))
    (sample,) = profile.samples()
    assert len(sample.frames) == MAX_FRAMES + 1
    assert (sample.frames[0].name, sample.frames[-1].name) == ("[cut]", "f99999")
    assert profile.notices() == ["the stacks of 1 hit have more than 1000 frames: cut"]
    assert len(tree_of(profile).parent) == MAX_FRAMES + 2


def test_negative_sums_are_left_out_and_counted() -> None:
    profile = Profile()
    profile.add((), (Frame("a"),), (-1,))
    profile.add((), (Frame("b"),), (2,))
    tree = tree_of(profile)
    assert tree.values == ((2, 2),)
    assert tree.negative == 1


def test_a_difference_compares_shares() -> None:
    tree = difference(shop(), shop(3))
    names = [tree.names[index] for index in tree.function]
    assert tree.change is not None
    assert tree.change[names.index("vfs_read")] == 0.75 - 0.5
    assert tree.change[names.index("int Shop.go(int)")] == 0.1 - 0.2
    assert difference(shop(), Profile()).values[0][0] == 0
