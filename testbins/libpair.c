/* A program and its library (libpair_so.c) with the same provider, and one probe in both. */
#define SDT_USE_VARIADIC 1
#define _SDT_HAS_SEMAPHORES 1
#include <sys/sdt.h>

#include <string.h>

#include "fixture.h"

#define SEMAPHORE(name) \
    extern volatile unsigned short name __attribute__((visibility("hidden"))); \
    volatile unsigned short name __attribute__((section(".probes"), used))

SEMAPHORE(libpair_both_semaphore);
SEMAPHORE(libpair_program_only_semaphore);

void library_fire(unsigned long round);
unsigned library_semaphore(void);

bool fixture_command(const char *line)
{
    if (strcmp(line, "state") != 0)
        return false;
    fx_line("{\"state\": {\"program\": [%u, %u], \"library\": [%u]}}", libpair_both_semaphore,
            libpair_program_only_semaphore, library_semaphore());
    return true;
}

void fire(unsigned long round)
{
    const char *where = &"program"[fx_zero];
    FIRE(libpair, both, (int)round, where);
    FIRE(libpair, program_only, -(int)round);
    library_fire(round);
}
