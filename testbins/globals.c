/* Operands that name a symbol: SYM(%rip), N+SYM(%rip), name.N, and names that two files share. */
#define SDT_USE_VARIADIC 1
#include <sys/sdt.h>

#include "fixture.h"

void fire_second(unsigned long round);

int g_int;
long g_long;
unsigned char g_byte;
short g_array[16];
long long g_wide[4];
double g_double;
const char *g_text;
struct {
    int first;
    unsigned second;
    long third;
} g_struct;
static int s_int;
static unsigned s_array[16];
static const volatile int c_int = -123456789; /* in read-only data */
/* Also a static of globals2.c, where it has another value: a tracer cannot tell which from the name. */
static int twin;

static FX_NOINLINE void set(unsigned long round)
{
    g_int = -(int)round - 1;
    g_long = -(long)round * 1000003;
    g_byte = (unsigned char)(255 - round);
    g_array[5] = (short)(-5 - (int)round);
    g_array[0] = (short)round;
    g_wide[3] = -(1LL << 50) - (long long)round;
    g_double = (double)round + 0.75;
    g_text = round & 1 ? "odd global" : "even global";
    g_struct.first = 1 + (int)round;
    g_struct.second = ~0U - (unsigned)round;
    g_struct.third = -3 - (long)round;
    s_int = 77 + (int)round;
    s_array[7] = 7 + (unsigned)round;
    twin = 1000 + (int)round;
}

static FX_NOINLINE void local_static_a(unsigned long round)
{
    static int counter;
    counter = 10 + (int)round;
    FIRE(globals, local_a, counter);
}

static FX_NOINLINE void local_static_b(unsigned long round)
{
    static int counter; /* the compiler calls this one counter.N as well */
    counter = -10 - (int)round;
    FIRE(globals, local_b, counter);
}

void fire(unsigned long round)
{
    set(round);
    FIRE(globals, scalars, g_int, g_long, g_byte, g_double);
    FIRE(globals, elements, g_array[5], g_wide[3], g_array[0]);
    FIRE(globals, members, g_struct.first, g_struct.second, g_struct.third);
    FIRE(globals, statics, s_int, s_array[7], c_int);
    FIRE(globals, text, g_text);
    FIRE(globals, twin_first, twin);
    local_static_a(round);
    local_static_b(round);
    fire_second(round);
}
