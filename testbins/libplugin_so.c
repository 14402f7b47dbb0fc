/* The plug-in of dlopened. */
#define SDT_USE_VARIADIC 1
#include <sys/sdt.h>

#include "fixture.h"

void plugin_fire(unsigned long round);

void plugin_fire(unsigned long round)
{
    const char *text = (round & 1 ? "odd plug-in" : "even plug-in") + fx_zero;
    static int counter;
    counter++;
    FIRE(plugin, hit, -(int)round, text);
    FIRE(plugin, counter, counter);
}
