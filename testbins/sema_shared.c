/* Semaphores as sdt.h has them: one for a probe, however many sites the probe has.
 *
 * "guarded" fires only while somebody traces it; "value" always does, and shows its semaphore.
 */
#define SDT_USE_VARIADIC 1
#define _SDT_HAS_SEMAPHORES 1
#include <sys/sdt.h>

#include <string.h>

#include "fixture.h"

#define SEMAPHORE(name) \
    extern volatile unsigned short name __attribute__((visibility("hidden"))); \
    volatile unsigned short name __attribute__((section(".probes"), used))

SEMAPHORE(sema_shared_guarded_semaphore);
SEMAPHORE(sema_shared_value_semaphore);

static FX_NOINLINE void site_one(int value)
{
    if (sema_shared_guarded_semaphore)
        FIRE(sema_shared, guarded, 1, value);
}

static FX_NOINLINE void site_two(int value)
{
    if (__builtin_expect(sema_shared_guarded_semaphore, 0))
        FIRE(sema_shared, guarded, 2, -value);
}

static FX_NOINLINE void site_three(int value)
{
    if (sema_shared_guarded_semaphore)
        FIRE(sema_shared, guarded, value, value * 2);
}

bool fixture_command(const char *line)
{
    if (strcmp(line, "state") != 0)
        return false;
    fx_line("{\"state\": {\"sema_shared:guarded\": [%u], \"sema_shared:value\": [%u]}}",
            sema_shared_guarded_semaphore, sema_shared_value_semaphore);
    return true;
}

void fire(unsigned long round)
{
    unsigned short now = sema_shared_value_semaphore;
    site_one((int)round);
    site_two((int)round + 1);
    site_three((int)round + 2);
    FIRE(sema_shared, value, now, (int)round);
    FIRE(sema_shared, value, now, -(int)round);
}
