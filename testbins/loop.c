/* As fast as a probe can be passed: -n N -q gives the cost of one hit, traced or not. */
#include <sys/sdt.h>

#include <time.h>

#include "fixture.h"

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static FX_NOINLINE void quick(unsigned long rounds)
{
    for (unsigned long i = 0; i < rounds; i++)
        STAP_PROBE2(loop, hit, i, (int)-i);
}

void fire(unsigned long round)
{
    STAP_PROBE2(loop, hit, round, (int)-round);
    HIT("loop:hit", round, (int)-round);
}

void fire_all(unsigned long rounds)
{
    double began = seconds();
    if (fixture.quiet && !fixture.sleep_us) {
        quick(rounds);
        fixture.hits += rounds;
    } else {
        for (unsigned long round = 0; round < rounds; round++) {
            if (round)
                fx_sleep();
            fire(round);
        }
    }
    fx_line("{\"hits\": %lu, \"ns_per_hit\": %.3f}", rounds,
            rounds ? (seconds() - began) * 1e9 / (double)rounds : 0.0);
}
