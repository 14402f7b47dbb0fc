"""Names of C++ and Rust as people read them; beside c++filt, and for names that lie."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from kept_builds import compile_in
from skips import need_program

from usdt.demangle.bounded import MAX_NAME, MAX_TEXT
from usdt.demangle.demangle import demangle

CXX = [
    ("_ZN3foo3barEv", "foo::bar()"),
    ("_ZN3foo3barB5cxx11Ev.cold", "foo::bar[abi:cxx11]() [clone .cold]"),
    ("_ZN3foo3barEv.constprop.0.isra.1", "foo::bar() [clone .constprop.0] [clone .isra.1]"),
    ("_Z3fooRA10_Kc", "foo(char const (&) [10])"),
    ("_Z1fM1AKFivE", "f(int (A::*)() const)"),
    ("_Z1fILi3ELb1ELPKc0EEvv", "void f<3, true, (char const*)0>()"),
    ("_Z1fIJidEEvDpT_", "void f<int, double>(int, double)"),
    ("_ZN1AIiEcvT_IcEEv", "A<int>::operator char<char>()"),
    ("_Z1fIiEDTcl1gfp_EET_", "decltype (g({parm#1})) f<int>(int)"),
    ("_ZZ4mainENKUlvE_clEv", "main::{lambda()#1}::operator()() const"),
    ("_ZN1AD0Ev", "A::~A()"),
    ("_ZTV1A", "vtable for A"),
    ("_ZThn16_N1A1fEv", "non-virtual thunk to A::f()"),
    ("_ZTv0_n24_N1A1fEv", "virtual thunk to A::f()"),
    ("_ZGVZ1fvE1x", "guard variable for f()::x"),
    ("_ZN12_GLOBAL__N_13fooEv", "(anonymous namespace)::foo()"),
    # T_ of the lambda's own template is not that of the function around it.
    (
        "_Z2apIZ3locIiEvT_EUliE_EvS1_",
        "void ap<loc<int>(int)::{lambda(int)#1}>(loc<int>(int)::{lambda(int)#1})",
    ),
    # The qualifiers of an array are those of its elements.
    ("_Z1fIA30_cEvRKT_", "void f<char [30]>(char const (&) [30])"),
    ("_Z1fIA3_A4_iEvPPKT_", "void f<int [3][4]>(int const (**) [3][4])"),
    ("_Z1fIA30_cEvM1AKT_", "void f<char [30]>(char const (A::*) [30])"),
    ("_Z1fIXadL_ZgtEEEvv", "void f<&(operator>)>()"),
    ("_Z1fIXadL_ZN1ArsEEEEvv", "void f<&A::operator>> >()"),
    # c++filt puts no space there if a pack without elements is behind.
    ("_Z1f1AI1BIiEJEE", "f(A<B<int>>)"),
    ("_Z1f1AI1BIiEE", "f(A<B<int> >)"),
    # The qualifiers of a template argument are not printed twice.
    ("_Z1fIKiEvRKT_", "void f<int const>(int const&)"),
    ("_Z1fIA3_KiEvPKT_", "void f<int const [3]>(int const (*) [3])"),
    # Template arguments belong to the type of a conversion, unless that is a template parameter.
    ("_ZN1AcvSt6vectorI1BSaIS1_EEEv", "A::operator std::vector<B, std::allocator<B> >()"),
    ("_ZN1AcvRSt6vectorIiEEv", "A::operator std::vector<int>&()"),
    ("_ZN1AIiEcvPT_IcEEv", "A<int>::operator char*<char>()"),
    ("_GLOBAL__I_foo", "global constructors keyed to foo"),
]
RUST = [
    ("_ZN4core3fmt9Formatter9write_str17h0123456789abcdefE", "core::fmt::Formatter::write_str"),
    (
        "_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$3bar17h930b740aa94f1d3aE",
        "<Test + 'static as foo::Bar<Test>>::bar",
    ),
    ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
    ("_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar"),
    ("_RNCNvCs1234_7mycrate4main0", "mycrate::main::{closure#0}"),
    ("_RINvCs1234_7mycrate3foolRNvCs1234_7mycrate3BarE", "mycrate::foo::<i32, &mycrate::Bar>"),
    ("_RMCs1234_7mycrateTlhE", "<(i32, u8)>"),
    ("_RMC0FKCPhuEu", '<extern "C" fn(*const u8, ())>'),
    ("_RNvC3foou9gre_6ka8i", "foo::größe"),
    ("_RINvC3foo3barKj7b_Kb1_Kc78_E", "foo::bar::<123, true, 'x'>"),
]
PLAIN = ["main", "", "_Z", "_ZN", "_R", "_RN", "_Zfoo", "operator", "_ZNSaIcE", "_ZS_", "_Z1fT_"]


@pytest.mark.parametrize(("mangled", "readable"), CXX)
def test_a_cxx_name_is_shown_as_cxxfilt_shows_it(mangled: str, readable: str) -> None:
    assert demangle(mangled) == readable


@pytest.mark.parametrize(("mangled", "readable"), RUST)
def test_a_rust_name_is_shown_without_its_hashes(mangled: str, readable: str) -> None:
    assert demangle(mangled) == readable


@pytest.mark.parametrize("name", PLAIN)
def test_what_is_no_mangled_name_stays_as_it_is(name: str) -> None:
    assert demangle(name) == name


def _filtered(names: list[str], *options: str) -> list[str]:
    done = subprocess.run(
        [need_program("c++filt", "binutils"), *options],
        input="\n".join(names) + "\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.splitlines()


def _symbols(path: str, *options: str) -> list[str]:
    words = [need_program("nm", "binutils"), *options, "--defined-only", path]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    return sorted({line.split()[-1].partition("@")[0] for line in done.stdout.splitlines()})


# Each with names that c++filt leaves mangled, or damages: their endings.
LIBRARIES = [
    ("libstdc++6", "*/libstdc++.so.6", ()),
    ("default-jdk-headless", "jvm/java-*-openjdk-*/lib/server/libjvm.so", ()),
    ("libllvm14", "*/libLLVM-1[45].so.1", ()),
    (
        "libclang-cpp14",
        "*/libclang-cpp.so.14",
        ("6emitOpIJEEEbNS0_6OpcodeEDpRKT_RKNS0_10SourceInfoE",),
    ),
]


@pytest.mark.parametrize(("package", "files", "known"), LIBRARIES, ids=[p for p, *_ in LIBRARIES])
def test_every_name_of_a_library_is_shown_as_cxxfilt_shows_it(
    package: str, files: str, known: tuple[str, ...]
) -> None:
    found = next(Path("/usr/lib").glob(files), None)
    if found is None:
        pytest.skip(f"needs a library: apt-get install {package}")
    names = [name for name in _symbols(str(found), "-D") if name.startswith("_Z")]
    names += [name for name in _symbols(str(found)) if name.startswith("_Z")]
    assert len(names) > 1000
    names = names[:: 1 + len(names) // 12000]  # all of the largest take five seconds
    wrong = [
        (name, demangle(name), expected)
        for name, expected in zip(names, _filtered(names), strict=True)
        if demangle(name) != expected and not name.endswith(known or ("\0",))
    ]
    assert not wrong


TEMPLATES = r"""
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>
template<class... Ts> auto sum(Ts... ts) -> decltype((ts + ...)) { return (ts + ...); }
template<template<class...> class X, class... T> int tt(X<T...>) { return sizeof...(T); }
template<int (*F)(int)> int call(int x) { return F(x); }
template<class T> auto cond(T t) -> decltype(t ? T(1) : static_cast<T>(2)) { return t; }
template<int N> int room(char (&)[N + 1]) { return N; }
template<class F> void apply(F f) { f(1); }
template<class T> void local(T t) { apply([t](int i) { return i + (int)sizeof t; }); }
template<class T> struct In { struct Deep { template<class U> int go(U, T, void (*)(U)); }; };
template<class T> template<class U> int In<T>::Deep::go(U, T, void (*)(U)) { return 1; }
template<class R, class... A> R invoke(R (*f)(A...), A... a) { return f(a...); }
namespace { struct Hidden { int m(int) const & { return 1; } int n() && { return 2; } }; }
struct Base { virtual ~Base() {} virtual int v() { return 1; } };
struct Left : virtual Base { int v() override { return 2; } };
struct Right : virtual Base {};
struct Both : Left, Right { int v() override { return 3; } };
int add(int x) { return x + 1; }
int take(int (&)[4], int (*)(const char *, ...), int Hidden::*, long double, char16_t,
         int (Hidden::*)(int) const, int const *const *volatile *) { return 0; }
int main(int argc, char **) {
    std::map<std::string, std::vector<std::pair<int, std::unique_ptr<double>>>> m;
    m["a"].emplace_back(1, nullptr);
    char four[4];
    std::function<int(int)> f = [&](int x) { return x + argc; };
    std::variant<int, std::string> v;
    auto generic = [](auto a, auto *b) { return a + *b; };
    Both both;
    In<int>::Deep deep;
    local(3), local(std::string());
    std::visit([](auto &&x) { (void)x; }, v);
    return sum(1, 2L, 'c') + tt(std::pair<int, char>()) + call<add>(3) + cond(3) + room<3>(four)
        + f(3) + generic(argc, &argc) + both.v() + Hidden().n() + Hidden().m(1)
        + deep.go<double>(1.0, 2, nullptr) + invoke(add, 3);
}
"""


def test_names_that_templates_make_are_shown_as_cxxfilt_shows_them(tmp_path: Path) -> None:
    source = tmp_path / "templates.cpp"
    source.write_text(TEMPLATES)
    program = tmp_path / "templates"
    words = [need_program("g++"), "-std=c++17", "-O0", "-w", "-o", str(program), str(source)]
    compile_in(tmp_path, words)
    names = [name for name in _symbols(str(program)) if name.startswith("_Z")]
    assert len(names) > 200
    # Not copied: c++filt writes ", ," for an empty pack before another argument, and names a
    # lambda's destructor after the function around it.
    wrong = [
        (name, demangle(name), expected)
        for name, expected in zip(names, _filtered(names), strict=True)
        if demangle(name) != expected and not (", , " in expected or "}::~" in expected)
    ]
    assert not wrong


def test_names_of_a_rust_program_are_shown_as_cxxfilt_shows_them(tmp_path: Path) -> None:
    source = tmp_path / "shapes.rs"
    source.write_text(
        "trait Shape { fn area(&self) -> f64; }\n"
        "struct Square<T>(T);\n"
        "impl<T: Into<f64> + Copy> Shape for Square<T> {\n"
        "    #[inline(never)] fn area(&self) -> f64 { let v: f64 = self.0.into(); v * v }\n"
        "}\n"
        "#[inline(never)] fn each(f: &mut (dyn for<'a> FnMut(&'a str) -> usize + Send)) -> usize"
        ' { f("x") }\n'
        "#[inline(never)] fn fixed<const N: usize, const C: char>(a: [u8; N]) -> usize"
        " { a.len() + C as usize }\n"
        "fn main() {\n"
        "    let s: Vec<Box<dyn Shape>> = vec![Box::new(Square(2i32)), Box::new(Square(3.0f32))];\n"
        '    println!("{}", s.iter().map(|x| x.area()).sum::<f64>());\n'
        "    println!(\"{} {}\", each(&mut |t| t.len()), fixed::<3, 'x'>([1, 2, 3]));\n"
        "}\n"
    )
    program = tmp_path / "shapes"
    words = [need_program("rustc"), "-Csymbol-mangling-version=v0", "-o", str(program), str(source)]
    compile_in(tmp_path, words)
    names = [name for name in _symbols(str(program)) if name.startswith("_R")]
    names = [name for name in names if "." not in name]
    assert len(names) > 100
    assert [demangle(name) for name in names] == _filtered(names, "--no-verbose")


def test_damaged_names_end_in_some_text_of_bounded_length() -> None:
    chance = random.Random(7)
    good = [mangled for mangled, _ in CXX + RUST]
    letters = "_ZNSTEIRKPMFJDLXvic0123456789UtClBhQY"
    for _ in range(8000):
        name = list(chance.choice(good))
        for _ in range(chance.randint(1, 4)):
            name[chance.randrange(2, len(name))] = chance.choice(letters)
        assert len(demangle("".join(name))) <= MAX_TEXT + MAX_NAME


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("_Z1fv" + "F" * 5000, id="deep"),
        pytest.param("_Z1f" + "P" * 9000 + "i", id="pointers without end"),
        pytest.param("_Z1f" + "I" * 9000, id="arguments within arguments"),
        pytest.param(
            "_Z1f1AI" + "S_S_E" + "".join(f"S0_I{'S1_' * 8}E" for _ in range(400)), id="reuse"
        ),
        pytest.param("_Z1fI" + "J" * 3000 + "E" * 3000 + "vT_", id="packs within packs"),
        pytest.param(
            "_Z1f" + "1AIiiE" + "".join(f"1BI{'S%s_' % (n or '') * 2}E" for n in range(8)) * 40,
            id="doubling",
        ),
        pytest.param("_RNvC3foo" + "B" * 9000, id="references"),
        pytest.param("_R" + "INvC1a1b" * 3000, id="open Rust paths"),
        pytest.param("_RMC0" + "TB2_B2_" * 300 + "E" * 300, id="tuples of themselves"),
        pytest.param("_Z1f" + "x" * (MAX_NAME + 1), id="longer than any"),
        pytest.param("_ZN1aüE", id="not ASCII"),
    ],
)
def test_a_hostile_name_costs_little(name: str) -> None:
    assert len(demangle(name)) <= MAX_TEXT + len(name)
