/* libbpf's own attaching, driven by lines on stdin; each is answered by one line.
 *
 *   attacher OBJECT [multi]     "multi": have the program loaded for uprobe_multi
 *
 *   attach PID PATH PROVIDER NAME COOKIE    "ok N", or "error ERRNO"
 *   detach N                                "ok"
 *   pin DIRECTORY                           "ok": program and maps, under their names */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#define LINKS 64
#define TRACE_UPROBE_MULTI 48

static struct bpf_link *links[LINKS];
static int number;

static void attach(struct bpf_program *program, const char *line)
{
    char path[PATH_MAX], provider[256], name[256];
    unsigned long long cookie;
    int pid;
    LIBBPF_OPTS(bpf_usdt_opts, options);

    if (number == LINKS ||
        sscanf(line, "attach %d %4095s %255s %255s %llu", &pid, path, provider, name, &cookie) != 5) {
        puts("error 22");
        return;
    }
    options.usdt_cookie = cookie;
    errno = 0;
    links[number] = bpf_program__attach_usdt(program, pid, path, provider, name, &options);
    if (!links[number])
        printf("error %d\n", errno);
    else
        printf("ok %d\n", number++);
}

static void detach(const char *line)
{
    int wanted = atoi(line + strlen("detach "));

    if (wanted >= 0 && wanted < number) {
        bpf_link__destroy(links[wanted]);
        links[wanted] = NULL;
    }
    puts("ok");
}

static int pin(struct bpf_object *object, struct bpf_program *program, const char *directory)
{
    char path[2 * PATH_MAX];

    if (bpf_object__pin_maps(object, directory))
        return -1;
    snprintf(path, sizeof(path), "%s/on_hit", directory);
    return bpf_program__pin(program, path);
}

int main(int argc, char **argv)
{
    char line[PATH_MAX];
    struct bpf_object *object = bpf_object__open_file(argc > 1 ? argv[1] : "", NULL);
    struct bpf_program *program =
        object ? bpf_object__find_program_by_name(object, "on_hit") : NULL;

    if (!program)
        return 1;
    bpf_program__set_autoattach(program, false);
    if (argc > 2)
        bpf_program__set_expected_attach_type(program, TRACE_UPROBE_MULTI);
    if (bpf_object__load(object))
        return 1;
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "attach ", 7))
            attach(program, line);
        else if (!strncmp(line, "detach ", 7))
            detach(line);
        else if (!strncmp(line, "pin ", 4))
            puts(pin(object, program, line + 4) ? "error 22" : "ok");
        else
            puts("error 22");
        fflush(stdout);
    }
    bpf_object__close(object);
    return 0;
}
