/* One probe in a function that is always inlined: 320 sites, most with operands of their own. */
#define SDT_USE_VARIADIC 1
#include <sys/sdt.h>

#include "fixture.h"

static struct {
    int number[512];
    long big;
} table;

static inline __attribute__((always_inline)) void probe(int site, int value, const long *pointer)
{
    FX_BARRIER();
    if (site % 4 == 0)
        STAP_PROBE3(inlined, site, site, value, *pointer);
    else if (site % 4 == 1)
        STAP_PROBE3(inlined, site, site, table.number[site], *pointer);
    else if (site % 4 == 2)
        STAP_PROBE3(inlined, site, site, value + site, (long)-site);
    else
        STAP_PROBE3(inlined, site, site, -site, (long)value);
}

/* What that site passed: kept out of line, or 320 copies of it would take long to compile. */
static FX_NOINLINE void report(int site, int value, const long *pointer)
{
    if (site % 4 == 0)
        HIT("inlined:site", site, value, *pointer);
    else if (site % 4 == 1)
        HIT("inlined:site", site, table.number[site], *pointer);
    else if (site % 4 == 2)
        HIT("inlined:site", site, value + site, (long)-site);
    else
        HIT("inlined:site", site, -site, (long)value);
}

#define SITE(n) probe((n), value, pointer), report((n), value, pointer);
#define SITE4(n) SITE(n) SITE((n) + 1) SITE((n) + 2) SITE((n) + 3)
#define SITE16(n) SITE4(n) SITE4((n) + 4) SITE4((n) + 8) SITE4((n) + 12)
#define SITE80(n) SITE16(n) SITE16((n) + 16) SITE16((n) + 32) SITE16((n) + 48) SITE16((n) + 64)

static FX_NOINLINE void first(int value, const long *pointer)
{
    SITE80(0)
}

static FX_NOINLINE void second(int value, const long *pointer)
{
    SITE80(80)
}

static FX_NOINLINE void third(int value, const long *pointer)
{
    SITE80(160)
}

static FX_NOINLINE void fourth(int value, const long *pointer)
{
    SITE80(240)
}

void fire(unsigned long round)
{
    for (int i = 0; i < 512; i++)
        table.number[i] = -i - (int)round;
    table.big = -(long)round - 1;
    first((int)round, &table.big);
    second(-(int)round, &table.big);
    third((int)round * 3, &table.big);
    fourth(5 - (int)round, &table.big);
}
