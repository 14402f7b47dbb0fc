/* Each round forks -c N children (3), which fire; the first of them has a child of its own.
   With -v, one more child shares the memory of its parent, which waits, as after vfork(2). */
#define _GNU_SOURCE
#define SDT_USE_VARIADIC 1
#include <sys/sdt.h>

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"

static unsigned long children = 3;
static bool sharing;
static char stack[1 << 16] __attribute__((aligned(16)));

bool fixture_option(int letter, const char *value)
{
    if (letter == 'v')
        return sharing = true;
    children = strtoul(value, NULL, 0);
    return letter == 'c' && children > 0;
}

static void reap(pid_t pid)
{
    int status;
    if (waitpid(pid, &status, 0) != pid || status != 0)
        fx_die("a child failed");
}

static pid_t fork_or_die(void)
{
    pid_t pid = fork();
    if (pid < 0)
        fx_die("fork");
    return pid;
}

static void child(int index, unsigned long round)
{
    FIRE(forker, child, index, (int)getpid(), round);
    if (index == 0) {
        pid_t pid = fork_or_die();
        if (pid == 0) {
            FIRE(forker, grandchild, (int)getpid(), round);
            _exit(0);
        }
        reap(pid);
    }
    _exit(0);
}

static int share(void *round)
{
    FIRE(forker, sharing, (int)getpid(), (unsigned long)round);
    _exit(0);
}

static void share_memory(unsigned long round)
{
    pid_t pid = clone(share, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)round);
    if (pid < 0)
        fx_die("clone");
    reap(pid);
}

void fire(unsigned long round)
{
    if (sharing)
        share_memory(round);
    FIRE(forker, parent, (int)getpid(), round);
    for (unsigned long i = 0; i < children; i++) {
        pid_t pid = fork_or_die();
        if (pid == 0)
            child((int)i, round);
        reap(pid);
        fixture.hits += 1 + (i == 0); /* those of the children, which counted in their own memory */
        FIRE(forker, forked, (int)pid);
    }
}
