/* Fires, then becomes another fixture: execer [OPTIONS] [PROGRAM [WORDS…]], PROGRAM beside it. */
#define SDT_USE_VARIADIC 1
#include <sys/sdt.h>

#include <string.h>
#include <unistd.h>

#include "fixture.h"

void fire(unsigned long round)
{
    FIRE(execer, before, (int)getpid(), round);
}

void fire_all(unsigned long rounds)
{
    char *none[] = {"args", NULL};
    char **words = fixture.argc ? fixture.argv : none;
    const char *path = strchr(words[0], '/') ? words[0] : fx_sibling(words[0]);
    for (unsigned long round = 0; round < rounds; round++)
        fire(round);
    execv(path, words);
    fx_die(path);
}
