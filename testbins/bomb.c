/* -c N children (4), all alive at the same time; each fires, so do its -t N threads (2) and then a
 * child of its own. Every probe has a semaphore, and none cares for it. */
#define SDT_USE_VARIADIC 1
#define _SDT_HAS_SEMAPHORES 1
#include <sys/sdt.h>

#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"

#define SEMAPHORE(name) \
    extern volatile unsigned short name __attribute__((visibility("hidden"))); \
    volatile unsigned short name __attribute__((section(".probes"), used))

SEMAPHORE(bomb_parent_semaphore);
SEMAPHORE(bomb_child_semaphore);
SEMAPHORE(bomb_thread_semaphore);
SEMAPHORE(bomb_grandchild_semaphore);

enum { MOST = 1024 };
static unsigned long children = 4, threads = 2;
static int own_index; /* of this child */

bool fixture_option(int letter, const char *value)
{
    unsigned long number = strtoul(value, NULL, 0);
    if (letter == 'c')
        children = number;
    if (letter == 't')
        threads = number;
    return (letter == 'c' || letter == 't') && number > 0 && number <= MOST;
}

void fire(unsigned long round)
{
    FIRE(bomb, parent, (int)getpid(), round);
}

static void *run_thread(void *unused)
{
    int tid = (int)syscall(SYS_gettid);
    for (unsigned long round = 0; round < fixture.count; round++) {
        FIRE(bomb, thread, own_index, tid, round);
        fx_sleep();
    }
    return NULL;
}

static void child(void)
{
    pthread_t ids[MOST];
    for (unsigned long i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, run_thread, NULL) != 0)
            fx_die("pthread_create");
    for (unsigned long round = 0; round < fixture.count; round++) {
        FIRE(bomb, child, own_index, (int)getpid(), round);
        fx_sleep();
    }
    for (unsigned long i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    pid_t pid = fork();
    if (pid < 0)
        fx_die("fork");
    if (pid == 0) {
        for (unsigned long round = 0; round < fixture.count; round++)
            FIRE(bomb, grandchild, own_index, (int)getpid(), round);
        _exit(0);
    }
    int status;
    _exit(waitpid(pid, &status, 0) == pid && status == 0 ? 0 : 3);
}

void fire_all(unsigned long rounds)
{
    int gate[2];
    pid_t pids[MOST];
    if (pipe(gate) != 0)
        fx_die("pipe");
    for (unsigned long i = 0; i < children; i++) {
        pids[i] = fork();
        if (pids[i] < 0)
            fx_die("fork");
        if (pids[i] == 0) {
            char byte;
            close(gate[1]);
            own_index = (int)i;
            if (read(gate[0], &byte, 1) != 0) /* until the last one is there */
                fx_die("read");
            close(gate[0]);
            child();
        }
    }
    close(gate[0]);
    close(gate[1]);
    for (unsigned long round = 0; round < rounds; round++)
        fire(round);
    for (unsigned long i = 0; i < children; i++) {
        int status;
        if (waitpid(pids[i], &status, 0) != pids[i] || status != 0)
            fx_die("a child failed");
    }
    fixture.hits += children * (2 + threads) * rounds; /* counted in their own memory */
}
