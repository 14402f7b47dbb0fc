/* -t N threads (4) fire at the same time; the main thread fires too. */
#define SDT_USE_VARIADIC 1
#include <sys/sdt.h>

#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fixture.h"

enum { MOST = 1024 };
static unsigned long threads = 4;
static pthread_barrier_t start;

bool fixture_option(int letter, const char *value)
{
    threads = strtoul(value, NULL, 0);
    return letter == 't' && threads > 0 && threads <= MOST;
}

static void *run(void *index)
{
    int tid = (int)syscall(SYS_gettid);
    pthread_barrier_wait(&start);
    for (unsigned long round = 0; round < fixture.count; round++) {
        FIRE(threads, hit, (long)index, round, tid);
        fx_sleep();
    }
    return NULL;
}

void fire(unsigned long round)
{
    FIRE(threads, main, round, (int)getpid());
}

void fire_all(unsigned long rounds)
{
    pthread_t ids[MOST];
    pthread_barrier_init(&start, NULL, (unsigned)threads + 1);
    for (unsigned long i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, run, (void *)i) != 0)
            fx_die("pthread_create");
    pthread_barrier_wait(&start);
    for (unsigned long round = 0; round < rounds; round++)
        fire(round);
    for (unsigned long i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    pthread_barrier_destroy(&start);
}
