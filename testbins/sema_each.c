/* A semaphore for each site of one probe, as languages that inline their probes make them. */
#include "note.h"

#include <string.h>

#include "fixture.h"

#define SITES(X) X(0) X(1) X(2) X(3) X(4)

#define SEMAPHORE(n) \
    extern volatile unsigned short sema_each_##n __attribute__((visibility("hidden"))); \
    volatile unsigned short sema_each_##n __attribute__((section(".probes"), used));
SITES(SEMAPHORE)

#if defined __i386__ || defined __x86_64__
#define ARGUMENTS "-4@%[site] -4@%k[value]"
#elif defined __powerpc__ /* where a number alone is a register */
#define ARGUMENTS "-4@i%[site] -4@%[value]"
#else
#define ARGUMENTS "-4@%[site] -4@%[value]"
#endif

/* "guarded" and "value" as in sema_shared; both have a site here, and share its semaphore. */
#define SITE(n) \
    static FX_NOINLINE void site##n(int value) \
    { \
        unsigned short now = sema_each_##n; \
        if (now) { \
            __asm__ __volatile__(HAND_NOTE(HAND_NOP, "sema_each", "guarded", ARGUMENTS, \
                                           "sema_each_" #n) \
                                 ::[site] "n"(n), [value] "r"(value)); \
            HIT("sema_each:guarded", n, value); \
        } \
        value = now; \
        __asm__ __volatile__(HAND_NOTE(HAND_NOP, "sema_each", "value", ARGUMENTS, \
                                       "sema_each_" #n) \
                             ::[site] "n"(n), [value] "r"(value)); \
        HIT("sema_each:value", n, value); \
    }
SITES(SITE)

bool fixture_command(const char *line)
{
    if (strcmp(line, "state") != 0)
        return false;
    fx_line("{\"state\": {\"sema_each\": [%u, %u, %u, %u, %u]}}", sema_each_0, sema_each_1,
            sema_each_2, sema_each_3, sema_each_4);
    return true;
}

void fire(unsigned long round)
{
#define CALL(n) site##n((int)round * 10 - n);
    SITES(CALL)
}
