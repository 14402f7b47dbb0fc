"""What patterns of function names mean."""

from __future__ import annotations

import pytest

from usdt.uprobes.name_patterns import (
    bare_name,
    literal_of,
    name_matcher,
    required_text,
    shown_name,
)


@pytest.mark.parametrize(
    ("demangled", "bare"),
    [
        ("main", "main"),
        ("ns::f(int)", "ns::f"),
        ("ns::A::f(char const*) const", "ns::A::f"),
        ("void ns::f<int>(int)", "ns::f<int>"),
        ("std::vector<int, A<int> >::push_back(int&&)", "std::vector<int, A<int> >::push_back"),
        ("std::X& ns::show<std::pair<int, int> >(int)", "ns::show<std::pair<int, int> >"),
        ("ns::A::operator()(int)", "ns::A::operator()"),
        ("ns::A::operator<<(int)", "ns::A::operator<<"),
        ("bool ns::operator< <int>(ns::B<int>)", "ns::operator< <int>"),
        ("ns::A::operator->() const", "ns::A::operator->"),
        ("ns::A::operator bool() const", "ns::A::operator bool"),
        ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
        ("core::ptr::drop_in_place", "core::ptr::drop_in_place"),
        ("f(int) [clone .cold]", "f"),
        ("", ""),
    ],
)
def test_a_name_without_parameters_and_result(demangled: str, bare: str) -> None:
    assert bare_name(demangled) == bare


@pytest.mark.parametrize(
    ("pattern", "literal"),
    [
        ("malloc", "malloc"),
        ("mall*", None),
        ("m?lloc", None),
        ("[mc]alloc", None),
        ("operator[*]", "operator*"),
        ("operator[[]]", "operator[]"),
    ],
)
def test_quoted_stars_stand_for_themselves(pattern: str, literal: str | None) -> None:
    assert literal_of(pattern) == literal


@pytest.mark.parametrize(
    ("pattern", "symbol"),
    [
        ("malloc", "malloc"),
        ("*alloc", "malloc"),
        ("_ZN2ns1fEi", "_ZN2ns1fEi"),
        ("_ZN2ns*", "_ZN2ns1fEi"),
        ("ns::f", "_ZN2ns1fEi"),
        ("ns::*", "_ZN2ns1fEi"),
        ("ns::f(int)", "_ZN2ns1fEi"),
        ("ns::A::g", "_ZN2ns1A1gIiEET_S2_"),
        ("ns::A::g<int>", "_ZN2ns1A1gIiEET_S2_"),
        ("shapes::Person::birthday", "_RNvMs4_Cs9FFTUSHdMhe_6shapesNtB5_6Person8birthday"),
        ("<shapes::Person>::birthday", "_RNvMs4_Cs9FFTUSHdMhe_6shapesNtB5_6Person8birthday"),
        ("*push_back", "_ZNSs9push_backEc"),
        ("ns::A::operator<<", "_ZN2ns1AlsEi"),
        ("mycrate::work", "_ZN7mycrate4work17h0123456789abcdefE"),
        ("mycrate::work", "_RNvCs1234_7mycrate4work"),
    ],
)
def test_names_match_as_they_stand_and_as_people_write_them(pattern: str, symbol: str) -> None:
    assert name_matcher(pattern)(symbol), shown_name(symbol)


@pytest.mark.parametrize(
    ("pattern", "symbol"),
    [
        ("malloc", "mallocs"),
        ("f", "_ZN2ns1fEi"),
        ("ns::f(long)", "_ZN2ns1fEi"),
        ("ns", "_ZN2ns1fEi"),
        ("*g", "_ZN2ns1fEi"),
        ("_Z*", "main"),
    ],
)
def test_names_that_are_not_meant(pattern: str, symbol: str) -> None:
    assert not name_matcher(pattern)(symbol)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("ns::handle_request", "handle_request"),
        ("ns::handle*<int>", "handle"),
        ("ns::operator+", ""),
        ("std::string", ""),
        ("ns::handle(struct request*)", "handle"),
        ("*", ""),
    ],
)
def test_what_a_mangled_name_must_contain(pattern: str, text: str) -> None:
    assert required_text(pattern) == text
