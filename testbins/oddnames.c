/* Providers and names that no C identifier can be: the note's strings are any bytes but NUL. */
#include "fixture.h"
#include "note.h"

/* Basic asm: no operands, so % and { stand for themselves. The name is the assembler's literal. */
#define ODD(provider, name, shown) do { \
    __asm__ __volatile__(HAND_NOTE(HAND_NOP, provider, name, "", "0")); \
    HIT(shown); \
} while (0)

#define SAME(name) ODD("oddnames", name, "oddnames:" name)
#define LONG10 "0123456789"
#define LONG50 LONG10 LONG10 LONG10 LONG10 LONG10
#define LONG300 LONG50 LONG50 LONG50 LONG50 LONG50 LONG50

static FX_NOINLINE void punctuation(void)
{
    SAME("dash-ed");
    SAME("two__underscores");
    SAME("with space");
    SAME(" spaces around ");
    SAME("dots.and.more");
    SAME("colon:colon");
    SAME("ends:");
    SAME("star*");
    SAME("question?");
    SAME("[a-z]");
    SAME("percent%s%n");
    SAME("slash/ed");
    SAME("call(arg0,arg1)");
    SAME("comma,");
    SAME("equals==1");
    SAME("$HOME");
    SAME("#hash");
    SAME("'single'");
    SAME("{braces|}");
    SAME("-p");
    SAME("@at");
}

static FX_NOINLINE void bytes(void)
{
    SAME("\xc3\xbcn\xc3\xaf" "code \xe2\x82\xac");
    ODD("oddnames", "quote\\\"d", "oddnames:quote\"d");
    ODD("oddnames", "back\\\\slash", "oddnames:back\\slash");
    ODD("oddnames", "tab\\011ed", "oddnames:tab\ted");
    ODD("oddnames", "line\\012feed", "oddnames:line\nfeed");
    ODD("oddnames", "\\033[31mred", "oddnames:\033[31mred");
    ODD("oddnames", "not UTF-8 \\377\\376", "oddnames:not UTF-8 \377\376");
}

static FX_NOINLINE void providers(void)
{
    ODD("", "no_provider", ":no_provider");
    ODD("oddnames", "", "oddnames:");
    ODD("odd-names", "name", "odd-names:name");
    ODD("odd names", "name", "odd names:name");
    ODD("odd:names", "name", "odd:names:name");
    ODD("/odd/names", "name", "/odd/names:name");
    ODD("kprobe", "name", "kprobe:name");
    SAME(LONG300);
}

void fire(unsigned long round)
{
    (void)round;
    punctuation();
    bytes();
    providers();
}
