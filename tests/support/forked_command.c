/* `usdt` or `kprobe` on the PATH of shells: has fork_server.py fork the command with these words,
 * environment, folder and streams, passes signals on, and ends as it ends. The server reads all but
 * the streams in /proc. What it cannot fork like this process, it says so, and this becomes the
 * installed script. SERVER is the name of an abstract socket, SCRIPTS a folder. */
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static const int passed[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
static volatile int command;

static void pass(int number)
{
    kill(command, number);
}

/* A number of 4 bytes with the most significant first; 0 where the server has ended. */
static int received(int server)
{
    unsigned char bytes[4];
    if (recv(server, bytes, sizeof bytes, MSG_WAITALL) != sizeof bytes)
        return 0;
    return (int)((uint32_t)bytes[0] << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3]);
}

/* Send the streams behind a size of 0, which says that /proc has the words. */
static int asked(int server)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "\0" SERVER};
    socklen_t size = offsetof(struct sockaddr_un, sun_path) + sizeof SERVER;
    const int streams[] = {0, 1, 2};
    union {
        char space[CMSG_SPACE(sizeof streams)];
        struct cmsghdr header;
    } control = {.header = {CMSG_LEN(sizeof streams), SOL_SOCKET, SCM_RIGHTS}};
    struct iovec none = {"\0\0\0", 4};
    struct msghdr message = {.msg_iov = &none, .msg_iovlen = 1,
                             .msg_control = &control, .msg_controllen = sizeof control};
    memcpy(CMSG_DATA(&control.header), streams, sizeof streams);
    if (connect(server, (struct sockaddr *)&address, size) || sendmsg(server, &message, 0) < 0)
        return 0;
    return received(server);
}

int main(int, char **words)
{
    const char *slash = strrchr(words[0], '/');
    char script[4096];
    struct sigaction old, passing = {.sa_handler = pass, .sa_flags = SA_RESTART};
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before); /* until it is known whom to pass them to */
    int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    command = asked(server);
    if (!command) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        snprintf(script, sizeof script, "%s/%s", SCRIPTS, slash ? slash + 1 : words[0]);
        execv(script, words);
        perror(script);
        return 127;
    }
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        if (!sigaction(passed[i], NULL, &old) && old.sa_handler != SIG_IGN)
            sigaction(passed[i], &passing, NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    int status = received(server);
    if (WIFSIGNALED(status)) {
        signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
    }
    return WEXITSTATUS(status);
}
