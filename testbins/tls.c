/* Thread-local variables, fired by two threads with different values. */
#define SDT_USE_VARIADIC 1
#include <sys/sdt.h>

#include <pthread.h>

#include "fixture.h"

static __thread int t_int;
static __thread long t_long;
static __thread short t_array[8];
static __thread struct {
    int first;
    unsigned char second;
} t_struct;
__thread unsigned long long t_global;

static FX_NOINLINE void fire_thread(long seed)
{
    t_int = -(int)seed;
    t_long = seed * 1000003;
    t_array[3] = (short)(seed - 7);
    t_struct.first = (int)seed + 1;
    t_struct.second = (unsigned char)(200 + seed);
    t_global = ~0ULL - (unsigned long)seed;
    FIRE(tls, scalars, t_int, t_long);
    FIRE(tls, members, t_array[3], t_struct.first, t_struct.second);
    FIRE(tls, global, t_global);
    FIRE(tls, address, &t_int);
}

static void *other(void *seed)
{
    fire_thread((long)seed);
    return NULL;
}

void fire(unsigned long round)
{
    pthread_t thread;
    fire_thread((long)round);
    if (pthread_create(&thread, NULL, other, (void *)(round + 50)) != 0)
        fx_die("pthread_create");
    pthread_join(thread, NULL);
}
