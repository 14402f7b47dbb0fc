/* The second half of globals: a static variable whose name globals.c uses too. */
#define SDT_USE_VARIADIC 1
#include <sys/sdt.h>

#include "fixture.h"

void fire_second(unsigned long round);

extern int g_int;
static int twin;

void fire_second(unsigned long round)
{
    twin = -2000 - (int)round;
    FIRE(globals, twin_second, twin);
    FIRE(globals, elsewhere, g_int);
}
