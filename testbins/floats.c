/* float and double: in registers, in memory, as constants (which the compiler keeps at .LC0). */
#define SDT_USE_VARIADIC 1
#include <sys/sdt.h>

#include <float.h>
#include <math.h>

#include "fixture.h"

static float global_float;
static double global_double;

static FX_NOINLINE void registers(float f, double d, float g, double h)
{
    FIRE(floats, f32, f, g);
    FIRE(floats, f64, d, h);
    FIRE(floats, sums, f + g, d * h);
}

/* Two doubles to a probe: i386 has registers for no more, and may want them in registers. */
static FX_NOINLINE void constants(void)
{
    FIRE(floats, const32, 1.5f, -0.1f);
    FIRE(floats, limits32, FLT_MAX, -FLT_MIN);
    FIRE(floats, infinite32, INFINITY, -INFINITY);
    FIRE(floats, special32, NAN, -0.0f, 1e-45f);
    FIRE(floats, const64, 1.5, -0.1);
    FIRE(floats, limits64, DBL_MAX, -DBL_MIN);
    FIRE(floats, infinite64, (double)INFINITY, -(double)INFINITY);
    FIRE(floats, special64, (double)NAN, -0.0);
    FIRE(floats, tiny64, 0.0, 5e-324);
}

static FX_NOINLINE void memory(unsigned long round)
{
    static float array_float[8];
    static double array_double[8];
    global_float = -(float)round / 3;
    global_double = (double)round / 7;
    array_float[round % 8] = (float)round + 0.25f;
    array_double[round % 8] = (double)round + 0.125;
    FIRE(floats, globals, global_float, global_double);
    FIRE(floats, elements, array_float[round % 8], array_double[round % 8]);
}

static FX_NOINLINE void mixed(int count, double d, unsigned long long big, float f, const char *s)
{
    FIRE(floats, mixed, count, d, big, f, s);
}

/* 16 bytes on x86-64, 12 on i386: the x87 format, or the machine's own. */
static FX_NOINLINE void longer(unsigned long round)
{
    static long double value;
    value = (long double)round + 0.5L;
    FX_BARRIER();
    STAP_PROBE1(floats, long_double, value);
    HIT("floats:long_double", (double)value);
}

void fire(unsigned long round)
{
    registers((float)round + 0.1f, (double)round - 0.1, -(float)round * 1e10f,
              1e300 * (double)(round + 1));
    constants();
    memory(round);
    mixed(-(int)round - 1, 2.5 + (double)round, ~0ULL - round, -0.5f * (float)round, "with floats");
    longer(round);
}
