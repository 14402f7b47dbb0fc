/* Every number of arguments, by each family of macros. */
#define SDT_USE_VARIADIC 1
#include <sys/sdt.h>

#include "fixture.h"

#define V(n) ((int)(round * 100 + (n)))

static FX_NOINLINE void stap(unsigned long round)
{
    STAP_PROBE(args, count0);
    HIT("args:count0");
    STAP_PROBE1(args, count1, V(1));
    HIT("args:count1", V(1));
    STAP_PROBE2(args, count2, V(1), V(2));
    HIT("args:count2", V(1), V(2));
    STAP_PROBE3(args, count3, V(1), V(2), V(3));
    HIT("args:count3", V(1), V(2), V(3));
    STAP_PROBE4(args, count4, V(1), V(2), V(3), V(4));
    HIT("args:count4", V(1), V(2), V(3), V(4));
    STAP_PROBE5(args, count5, V(1), V(2), V(3), V(4), V(5));
    HIT("args:count5", V(1), V(2), V(3), V(4), V(5));
    STAP_PROBE6(args, count6, V(1), V(2), V(3), V(4), V(5), V(6));
    HIT("args:count6", V(1), V(2), V(3), V(4), V(5), V(6));
}

static FX_NOINLINE void stap_many(unsigned long round)
{
    STAP_PROBE7(args, count7, V(1), V(2), V(3), V(4), V(5), V(6), V(7));
    HIT("args:count7", V(1), V(2), V(3), V(4), V(5), V(6), V(7));
    STAP_PROBE8(args, count8, V(1), V(2), V(3), V(4), V(5), V(6), V(7), V(8));
    HIT("args:count8", V(1), V(2), V(3), V(4), V(5), V(6), V(7), V(8));
    STAP_PROBE9(args, count9, V(1), V(2), V(3), V(4), V(5), V(6), V(7), V(8), V(9));
    HIT("args:count9", V(1), V(2), V(3), V(4), V(5), V(6), V(7), V(8), V(9));
    STAP_PROBE10(args, count10, V(1), V(2), V(3), V(4), V(5), V(6), V(7), V(8), V(9), V(10));
    HIT("args:count10", V(1), V(2), V(3), V(4), V(5), V(6), V(7), V(8), V(9), V(10));
    STAP_PROBE11(args, count11, V(1), V(2), V(3), V(4), V(5), V(6), V(7), V(8), V(9), V(10),
                 V(11));
    HIT("args:count11", V(1), V(2), V(3), V(4), V(5), V(6), V(7), V(8), V(9), V(10), V(11));
    STAP_PROBE12(args, count12, V(1), V(2), V(3), V(4), V(5), V(6), V(7), V(8), V(9), V(10),
                 V(11), V(12));
    HIT("args:count12", V(1), V(2), V(3), V(4), V(5), V(6), V(7), V(8), V(9), V(10), V(11),
        V(12));
}

static FX_NOINLINE void dtrace(unsigned long round)
{
    DTRACE_PROBE(args, dtrace0);
    HIT("args:dtrace0");
    DTRACE_PROBE3(args, dtrace3, V(1), V(2), V(3));
    HIT("args:dtrace3", V(1), V(2), V(3));
}

static FX_NOINLINE void variadic(unsigned long round)
{
    FIRE(args, variadic0);
    FIRE(args, variadic5, V(1), V(2), V(3), V(4), V(5));
    FIRE(args, variadic12, V(1), V(2), V(3), V(4), V(5), V(6), V(7), V(8), V(9), V(10), V(11),
         V(12));
}

/* Every width, sign and kind in one probe, registers, memory and constants. */
static FX_NOINLINE void mixed(unsigned long round)
{
    signed char i8 = (signed char)(-1 - (int)round);
    unsigned short u16 = (unsigned short)(65535 - round);
    long long i64 = -(1LL << 40) - (long long)round;
    const char *text = round & 1 ? "odd" : "even";
    static double ratio;
    ratio = 0.5 + (double)round;
    FIRE(args, mixed12, i8, u16, i64, text, ratio, -7, 18446744073709551615ULL,
         (_Bool)(round & 1), (char)('a' + round % 26), 2.25f, (long)round, (void *)&fixture);
}

void fire(unsigned long round)
{
    stap(round);
    stap_many(round);
    dtrace(round);
    variadic(round);
    mixed(round);
}
