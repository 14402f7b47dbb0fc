/* The part of every fixture that is not about probes: see fixture.h and README.md. */
#define _GNU_SOURCE
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct fixture fixture = {.count = 1};
volatile unsigned long fx_zero;

static __thread struct {
    char *text;
    size_t used, room;
    bool first; /* no argument printed yet */
} line;

/* A pipe takes up to PIPE_BUF bytes at once; longer lines of two threads would be mixed. */
static pthread_mutex_t output = PTHREAD_MUTEX_INITIALIZER;

void fx_die(const char *what)
{
    fprintf(stderr, "fixture: %s: %s\n", what, strerror(errno));
    _exit(3);
}

static void put(const char *text, size_t size)
{
    if (line.used + size > line.room) {
        line.room = 2 * (line.used + size) + 256;
        line.text = realloc(line.text, line.room);
        if (!line.text)
            fx_die("realloc");
    }
    memcpy(line.text + line.used, text, size);
    line.used += size;
}

static void put_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void put_format(const char *format, ...)
{
    char text[128];
    va_list values;
    va_start(values, format);
    int size = vsnprintf(text, sizeof text, format, values);
    va_end(values);
    put(text, (size_t)size);
}

static void flush_line(void)
{
    put("\n", 1);
    pthread_mutex_lock(&output);
    for (size_t sent = 0; sent < line.used;) {
        ssize_t n = write(STDOUT_FILENO, line.text + sent, line.used - sent);
        if (n > 0)
            sent += (size_t)n;
        else if (errno != EINTR)
            _exit(4); /* the reader has gone */
    }
    pthread_mutex_unlock(&output);
    line.used = 0;
}

/* Bytes of the valid UTF-8 sequence at text, 0 if there is none (RFC 3629, table 3-7 of Unicode). */
static size_t utf8(const unsigned char *text)
{
    unsigned char lead = text[0], low = 0x80, high = 0xbf;
    size_t size = lead < 0x80 ? 1 : lead >= 0xc2 && lead <= 0xdf ? 2
                : lead >= 0xe0 && lead <= 0xef ? 3 : lead >= 0xf0 && lead <= 0xf4 ? 4 : 0;
    if (lead == 0xe0)
        low = 0xa0;
    else if (lead == 0xed)
        high = 0x9f;
    else if (lead == 0xf0)
        low = 0x90;
    else if (lead == 0xf4)
        high = 0x8f;
    for (size_t i = 1; i < size; i++, low = 0x80, high = 0xbf)
        if (text[i] < low || text[i] > high)
            return 0;
    return size;
}

/* Bytes that are not UTF-8 become \udcXX, as Python's surrogateescape has them. */
static void put_quoted(const char *string)
{
    const unsigned char *text = (const unsigned char *)string;
    put("\"", 1);
    while (*text) {
        size_t size = utf8(text);
        if (!size)
            put_format("\\udc%02x", *text);
        else if (*text < 0x20 || *text == '"' || *text == '\\')
            put_format("\\u%04x", *text);
        else
            put((const char *)text, size);
        text += size ? size : 1;
    }
    put("\"", 1);
}

static void separate(void)
{
    if (!line.first)
        put(", ", 2);
    line.first = false;
}

bool fx_begin(const char *probe)
{
    __atomic_fetch_add(&fixture.hits, 1, __ATOMIC_RELAXED);
    if (fixture.quiet)
        return false;
    put("{\"probe\": ", 10);
    put_quoted(probe);
    put_format(", \"pid\": %d, \"tid\": %ld, \"args\": [", (int)getpid(), (long)syscall(SYS_gettid));
    line.first = true;
    return true;
}

void fx_end(void)
{
    put("]}", 2);
    flush_line();
}

void fx_signed(long long value)
{
    separate();
    put_format("%lld", value);
}

void fx_unsigned(unsigned long long value)
{
    separate();
    put_format("%llu", value);
}

void fx_double(double value)
{
    char text[64];
    separate();
    if (isnan(value))
        strcpy(text, "NaN");
    else if (isinf(value))
        strcpy(text, value < 0 ? "-Infinity" : "Infinity");
    else
        snprintf(text, sizeof text, "%.17g", value);
    put(text, strlen(text));
    if (!strpbrk(text, ".eNI")) /* or a reader would take it for an integer, and lose -0.0 */
        put(".0", 2);
}

static void put_address(const volatile void *address)
{
    separate();
    put_format("{\"ptr\": %" PRIuPTR, (uintptr_t)address);
}

void fx_pointer(const volatile void *address)
{
    put_address(address);
    put("}", 1);
}

void fx_unreadable(const volatile void *address)
{
    put_address(address);
    put(", \"str\": null}", 14);
}

void fx_string(const char *text)
{
    if (!text) {
        fx_unreadable(text);
        return;
    }
    put_address(text);
    put(", \"str\": ", 9);
    put_quoted(text);
    put("}", 1);
}

void fx_untouched(const char *text, bool resident)
{
    put_address(text);
    put(", \"str\": ", 9);
    put_quoted(text);
    put_format(", \"resident\": %s}", resident ? "true" : "false");
}

void fx_hex(const void *bytes, size_t size)
{
    separate();
    put("{\"hex\": \"", 9);
    for (size_t i = 0; i < size; i++)
        put_format("%02x", ((const unsigned char *)bytes)[i]);
    put("\"}", 2);
}

void fx_null(void)
{
    separate();
    put("null", 4);
}

void fx_line(const char *format, ...)
{
    char *text;
    va_list values;
    va_start(values, format);
    int size = vasprintf(&text, format, values);
    va_end(values);
    if (size < 0)
        fx_die("vasprintf");
    put(text, (size_t)size);
    free(text);
    flush_line();
}

void fx_sleep(void)
{
    if (fixture.sleep_us)
        usleep((useconds_t)fixture.sleep_us);
}

const char *fx_sibling(const char *name)
{
    static char path[PATH_MAX];
    ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
    if (size < 0)
        fx_die("/proc/self/exe");
    path[size] = 0;
    char *slash = strrchr(path, '/');
    snprintf(slash + 1, sizeof path - (size_t)(slash + 1 - path), "%s", name);
    return path;
}

/* Documentation/admin-guide/mm/pagemap.rst: bit 63 of a page's 64-bit entry is "present". */
bool fx_resident(const void *address)
{
    uint64_t entry = 0;
    long page = sysconf(_SC_PAGESIZE);
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    off64_t offset = (off64_t)((uintptr_t)address / (uintptr_t)page * sizeof entry);
    if (fd < 0 || pread64(fd, &entry, sizeof entry, offset) != sizeof entry)
        fx_die("/proc/self/pagemap");
    close(fd);
    return entry >> 63;
}

__attribute__((weak)) void fire_all(unsigned long rounds)
{
    for (unsigned long round = 0; round < rounds; round++) {
        if (round)
            fx_sleep();
        fire(round + fx_zero);
    }
}

__attribute__((weak)) bool fixture_command(const char *text)
{
    (void)text;
    return false;
}

__attribute__((weak)) bool fixture_option(int letter, const char *value)
{
    (void)letter, (void)value;
    return false;
}

/* Byte by byte: what is left on stdin belongs to a child or to the program exec'ed next. */
static bool read_line(char *text, size_t room)
{
    size_t used = 0;
    char byte;
    ssize_t n;
    while ((n = read(STDIN_FILENO, &byte, 1)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        if (byte == '\n') {
            text[used] = 0;
            return true;
        }
        if (used + 1 < room)
            text[used++] = byte;
    }
    return false;
}

static bool next_order(char *text, size_t room)
{
    while (read_line(text, room))
        if (!fixture_command(text))
            return true;
    return false;
}

static void parse(int argc, char **argv)
{
    int letter;
    fixture.all_argv = argv;
    while ((letter = getopt(argc, argv, "+n:ws:eqt:c:v")) != -1) {
        if (letter == 'n')
            fixture.count = strtoul(optarg, NULL, 0);
        else if (letter == 's')
            fixture.sleep_us = strtoul(optarg, NULL, 0);
        else if (letter == 'w')
            fixture.wait = true;
        else if (letter == 'q')
            fixture.quiet = true;
        else if (letter == 'e')
            fixture.total = true;
        else if (letter == '?' || !fixture_option(letter, optarg)) {
            fprintf(stderr, "usage: %s [-n COUNT] [-w] [-s MICROSECONDS] [-q] [-e]\n", argv[0]);
            exit(2);
        }
    }
    fixture.argc = argc - optind;
    fixture.argv = argv + optind;
}

int main(int argc, char **argv)
{
    char order[256] = "fire";
    parse(argc, argv);
    if (fixture.wait) {
        fx_line("ready %d", (int)getpid());
        next_order(order, sizeof order);
    }
    do {
        fire_all(fixture.count);
        if (fixture.wait)
            fx_line("done %lu", fixture.hits);
    } while (fixture.wait && next_order(order, sizeof order) && strcmp(order, "fire") == 0);
    if (fixture.total)
        fx_line("{\"hits\": %lu}", fixture.hits);
    return 0;
}
