/* Each round forks -c N children (3), which fire; the first of them has a child of its own. */
#define SDT_USE_VARIADIC 1
#include <sys/sdt.h>

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"

static unsigned long children = 3;

bool fixture_option(int letter, const char *value)
{
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

void fire(unsigned long round)
{
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
