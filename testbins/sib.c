/* Array elements: base, index and scale, and on non-PIE an array's name in place of the base. */
#define SDT_USE_VARIADIC 1
#include <sys/sdt.h>

#include "fixture.h"

enum { SIZE = 64 };

static signed char bytes[SIZE];
static unsigned short shorts[SIZE];
static int ints[SIZE];
static long long longs[SIZE];
static double doubles[SIZE];
static struct pair {
    int left, right;
} pairs[SIZE];

static FX_NOINLINE void by_pointer(const signed char *b, const unsigned short *s, const int *i,
                                   const long long *l, unsigned long at)
{
    FIRE(sib, byte, b[at]);
    FIRE(sib, half, s[at]);
    FIRE(sib, word, i[at]);
    FIRE(sib, wide, l[at]);
    FIRE(sib, displaced, i[at + 3], l[at + 1]);
    FIRE(sib, all, b[at], s[at], i[at], l[at]);
}

static FX_NOINLINE void by_name(unsigned long at)
{
    FIRE(sib, named, bytes[at], shorts[at], ints[at], longs[at]);
    FIRE(sib, named_displaced, ints[at + 2], longs[at + 1]);
    FIRE(sib, named_double, doubles[at]);
    FIRE(sib, named_pair, pairs[at].left, pairs[at].right);
}

static FX_NOINLINE void by_stack(unsigned long at)
{
    int local[SIZE];
    for (int i = 0; i < SIZE; i++)
        local[i] = ints[i] * 2;
    FIRE(sib, stack, local[at]);
}

static FX_NOINLINE void negative(const int *middle, long at)
{
    FIRE(sib, negative, middle[at], middle[at - 1]);
}

void fire(unsigned long round)
{
    unsigned long at = round % (SIZE - 4);
    for (int i = 0; i < SIZE; i++) {
        bytes[i] = (signed char)(-i - 1);
        shorts[i] = (unsigned short)(65535 - i * 3);
        ints[i] = -i * 100003;
        longs[i] = -(long long)i * 10000000019LL - 1;
        doubles[i] = i * 0.5;
        pairs[i].left = i + 1000;
        pairs[i].right = -i - 1000;
    }
    FX_BARRIER();
    by_pointer(bytes, shorts, ints, longs, at);
    by_name(at);
    by_stack(at);
    negative(ints + SIZE / 2, -(long)(round % 16));
}
