/* The library half of libpair. */
#define SDT_USE_VARIADIC 1
#define _SDT_HAS_SEMAPHORES 1
#include <sys/sdt.h>

#include "fixture.h"

#define SEMAPHORE(name) \
    extern volatile unsigned short name __attribute__((visibility("hidden"))); \
    volatile unsigned short name __attribute__((section(".probes"), used))

SEMAPHORE(libpair_both_semaphore);
SEMAPHORE(libpair_library_only_semaphore);

void library_fire(unsigned long round);
unsigned library_semaphore(void);

unsigned library_semaphore(void)
{
    return libpair_both_semaphore;
}

void library_fire(unsigned long round)
{
    static long last;
    const char *where = &"library"[fx_zero];
    last = 1000 + (long)round;
    FIRE(libpair, both, last, where);
    FIRE(libpair, library_only, where, last);
}
