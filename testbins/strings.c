/* Pointers and strings: every way a string can be there, not be there yet, or not be there at all. */
#define _GNU_SOURCE
#define SDT_USE_VARIADIC 1
#include <sys/sdt.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fixture.h"

#if defined __x86_64__ || defined __i386__ || defined __s390x__ || defined __riscv
enum { PAGE = 4096 };
#else
enum { PAGE = 65536 }; /* the largest that kernels of this machine are built with */
#endif
enum { PAGES = 64, LONGEST = 5000 };

/* Literals that nothing touches before their probe has fired: one page each, used in turn. */
#define TEXT(n) [n] = "untouched page " #n " of a table that nobody has read",
#define TEXT8(a, b, c, d, e, f, g, h) \
    TEXT(a) TEXT(b) TEXT(c) TEXT(d) TEXT(e) TEXT(f) TEXT(g) TEXT(h)
static const char untouched[PAGES][PAGE] __attribute__((aligned(PAGE))) = {
    TEXT8(0, 1, 2, 3, 4, 5, 6, 7) TEXT8(8, 9, 10, 11, 12, 13, 14, 15)
    TEXT8(16, 17, 18, 19, 20, 21, 22, 23) TEXT8(24, 25, 26, 27, 28, 29, 30, 31)
    TEXT8(32, 33, 34, 35, 36, 37, 38, 39) TEXT8(40, 41, 42, 43, 44, 45, 46, 47)
    TEXT8(48, 49, 50, 51, 52, 53, 54, 55) TEXT8(56, 57, 58, 59, 60, 61, 62, 63)
};

/* The same in writable data, and one string that goes on into a second page. */
static char untouched_data[2][PAGE] __attribute__((aligned(PAGE))) = {
    "untouched page of initialised data", "this one never has company",
};
static const struct {
    char before[PAGE - 16], text[64], after[PAGE - 48];
} crossing __attribute__((aligned(PAGE))) = {.text = "begins on one page and ends on the next"};

/* The kernel maps the neighbours of a page it faults in, so pages are given back by force. */
static void forget(const void *page, size_t size)
{
    if (madvise((void *)page, size, MADV_DONTNEED) != 0)
        fx_die("madvise");
}

static FX_NOINLINE void fire_untouched(const char *text, const char *data, const char *across)
{
    bool here, data_here, across_here;
    forget(text, PAGE);
    forget(data, PAGE);
    forget(&crossing, 2 * PAGE);
    here = fx_resident(text);
    data_here = fx_resident(data);
    across_here = fx_resident(across);
    STAP_PROBE1(strings, untouched, text);
    STAP_PROBE1(strings, untouched_data, data);
    STAP_PROBE1(strings, untouched_crossing, across);
    if (fx_begin("strings:untouched")) {
        fx_untouched(text, here);
        fx_end();
    }
    if (fx_begin("strings:untouched_data")) {
        fx_untouched(data, data_here);
        fx_end();
    }
    if (fx_begin("strings:untouched_crossing")) {
        fx_untouched(across, across_here);
        fx_end();
    }
}

/* The first page of a string is there, its second is not: what a tracer can read now is half. */
static FX_NOINLINE void fire_half(const char *across)
{
    forget((const char *)&crossing + PAGE, PAGE);
    bool here = fx_resident((const char *)&crossing + PAGE);
    STAP_PROBE1(strings, untouched_half, across);
    if (fx_begin("strings:untouched_half")) {
        fx_untouched(across, here);
        fx_end();
    }
}

static FX_NOINLINE void fire_heap(unsigned long round)
{
    char *text = malloc(64);
    if (!text)
        fx_die("malloc");
    memset(text, 'a' + (int)(round % 26), 63);
    text[round % 62 + 1] = 0;
    FIRE(strings, heap, text, strlen(text));
    free(text);
}

static FX_NOINLINE void fire_long(unsigned long round)
{
    static const unsigned lengths[] = {1, 7, 8, 63, 64, 127, 128, 129, 255, 256, 511, 1023, 1024,
                                       2047, 4095, 4096, LONGEST};
    static char text[LONGEST + 1];
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        unsigned length = lengths[i];
        for (unsigned j = 0; j < length; j++)
            text[j] = (char)('a' + (j + round) % 26);
        text[length] = 0;
        FIRE(strings, long, (const char *)text, length);
    }
}

static FX_NOINLINE void fire_bytes(void)
{
    static const char *volatile texts[] = {
        "\xff\xfe not UTF-8 \x80", "caf\xe9", "na\xc3\xafve \xe2\x82\xac \xf0\x9f\x90\x8d",
        "cut \xe2\x82", "\xed\xa0\x80 surrogate", "\xc0\xaf overlong", "\xf4\x90\x80\x80 too high",
        "line\nfeed\ttab\r\x1b[31mred\x7f", "\"quotes\" and \\backslash\\", "%s %n %d",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *text = texts[i];
        FIRE(strings, bytes, text);
    }
}

static FX_NOINLINE void fire_unreadable(const char *name, const char *address)
{
    (void)name;
    STAP_PROBE1(strings, bad, address);
    if (fx_begin("strings:bad")) {
        fx_unreadable(address);
        fx_end();
    }
}

/* No NUL before the end of the last mapped page. */
static FX_NOINLINE void fire_unterminated(void)
{
    char *map = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || munmap(map + PAGE, PAGE) != 0)
        fx_die("mmap");
    const char *text = memset(map + PAGE - 10, 'x', 10);
    FX_BARRIER();
    STAP_PROBE1(strings, unterminated, text);
    if (fx_begin("strings:unterminated")) {
        fx_unreadable(text);
        fx_end();
    }
    munmap(map, PAGE);
}

static FX_NOINLINE void fire_pointers(unsigned long round)
{
    static int numbers[4];
    static char buffer[16];
    int *pointer = numbers + round % 4;
    const char *texts[2] = {"first", "second"};
    strcpy(buffer, "array");
    FIRE(strings, pointers, pointer, (void *)&round, (void (*)(unsigned long))fire);
    FIRE(strings, array, buffer);
    FIRE(strings, two, texts[round & 1], texts[~round & 1]);
}

void fire(unsigned long round)
{
    const char *null = (const char *)fx_zero, *empty = "" + fx_zero;
    const char *literal = (round & 1 ? "odd literal" : "even literal") + fx_zero;
    const char *across = crossing.text + fx_zero;
    fire_untouched(untouched[round % PAGES], untouched_data[0], across);
    fire_half(across);
    FIRE(strings, literal, literal);
    FIRE(strings, constant, "a literal itself");
    FIRE(strings, empty, empty);
    FIRE(strings, null, null);
    fire_heap(round);
    fire_long(round);
    fire_bytes();
    fire_unreadable("one", (const char *)(1 + fx_zero));
    fire_unreadable("all ones", (const char *)(~0UL - fx_zero));
    fire_unreadable("top half", (const char *)(~(~0UL >> 1) + fx_zero)); /* kernel or no address */
    fire_unterminated();
    fire_pointers(round);
}
