/* What every fixture shares: the command line, the dialogue on stdin, and one JSON line per hit.
 *
 * A fixture defines fire(), which fires its whole set of probes once. Everything it prints is what
 * a tracer should have seen. Values are printed after the probe: nothing may touch a probe's memory
 * before it, so that tests meet the page faults that real programs cause.
 */
#ifndef FIXTURE_H
#define FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fixture {
    unsigned long count;      /* -n: rounds */
    unsigned long sleep_us;   /* -s: pause between rounds */
    unsigned long hits;       /* probes fired by this process so far */
    bool wait, quiet, total;  /* -w, -q, -e */
    int argc;                 /* words after the options */
    char **argv;
    char **all_argv;          /* the whole command line */
};

extern struct fixture fixture;

/* A value the compiler cannot know: always 0. Makes constants into run-time values. */
extern volatile unsigned long fx_zero;

/* Of the fixture: its whole set of probes, once. */
void fire(unsigned long round);
/* Of the fixture, each optional (weak): all rounds at once; a line on stdin that is neither "fire"
 * nor the end, true if understood; an option letter of its own, true if understood. */
void fire_all(unsigned long rounds);
bool fixture_command(const char *line);
bool fixture_option(int letter, const char *value);

/* One line of output, built in a buffer of the thread and written by one write(). */
bool fx_begin(const char *probe);   /* counts the hit; false: print nothing */
void fx_end(void);
void fx_signed(long long value);
void fx_unsigned(unsigned long long value);
void fx_double(double value);
void fx_string(const char *text);            /* {"ptr": N, "str": "text"}; NULL has "str": null */
void fx_pointer(const volatile void *address);        /* {"ptr": N} */
void fx_unreadable(const volatile void *address);     /* {"ptr": N, "str": null} */
void fx_hex(const void *bytes, size_t size); /* {"hex": "…"} */
void fx_untouched(const char *text, bool resident);   /* as fx_string, and "resident" */
void fx_null(void);                          /* no tracer can know this value */
void fx_line(const char *format, ...) __attribute__((format(printf, 1, 2))); /* not a hit */
void fx_die(const char *what) __attribute__((noreturn));
void fx_sleep(void);                         /* the pause between rounds */
const char *fx_sibling(const char *name);    /* path of a file beside this program */
bool fx_resident(const void *address);       /* is the page mapped in this process now? */

#ifdef __cplusplus
}
#endif

/* The compiler may move a store past a probe, whose asm does not say that it reads memory. */
#define FX_BARRIER() __asm__ __volatile__("" ::: "memory")
#ifdef __clang__
#define FX_NOINLINE __attribute__((noinline))
#else
#define FX_NOINLINE __attribute__((noinline, noclone))
#endif

#ifndef __cplusplus
#define FX_ARG(x) _Generic((x), \
    _Bool: fx_unsigned, char: fx_signed, signed char: fx_signed, unsigned char: fx_unsigned, \
    short: fx_signed, unsigned short: fx_unsigned, int: fx_signed, unsigned: fx_unsigned, \
    long: fx_signed, unsigned long: fx_unsigned, long long: fx_signed, \
    unsigned long long: fx_unsigned, float: fx_double, double: fx_double, \
    char *: fx_string, const char *: fx_string, default: fx_pointer)(x);
#else
inline void fx_arg(bool x) { fx_unsigned(x); }
inline void fx_arg(char x) { fx_signed(x); }
inline void fx_arg(short x) { fx_signed(x); }
inline void fx_arg(unsigned short x) { fx_unsigned(x); }
inline void fx_arg(int x) { fx_signed(x); }
inline void fx_arg(unsigned x) { fx_unsigned(x); }
inline void fx_arg(long x) { fx_signed(x); }
inline void fx_arg(unsigned long x) { fx_unsigned(x); }
inline void fx_arg(long long x) { fx_signed(x); }
inline void fx_arg(unsigned long long x) { fx_unsigned(x); }
inline void fx_arg(float x) { fx_double(x); }
inline void fx_arg(double x) { fx_double(x); }
inline void fx_arg(const char *x) { fx_string(x); }
inline void fx_arg(const void *x) { fx_pointer(x); }
#define FX_ARG(x) fx_arg(x);
#endif

#define FX_COUNT(...) FX_COUNT_(__VA_ARGS__, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define FX_COUNT_(z, a, b, c, d, e, f, g, h, i, j, k, l, n, ...) n
#define FX_JOIN(a, b) FX_JOIN_(a, b)
#define FX_JOIN_(a, b) a##b
#define FX_EACH0()
#define FX_EACH1(a) FX_ARG(a)
#define FX_EACH2(a, ...) FX_ARG(a) FX_EACH1(__VA_ARGS__)
#define FX_EACH3(a, ...) FX_ARG(a) FX_EACH2(__VA_ARGS__)
#define FX_EACH4(a, ...) FX_ARG(a) FX_EACH3(__VA_ARGS__)
#define FX_EACH5(a, ...) FX_ARG(a) FX_EACH4(__VA_ARGS__)
#define FX_EACH6(a, ...) FX_ARG(a) FX_EACH5(__VA_ARGS__)
#define FX_EACH7(a, ...) FX_ARG(a) FX_EACH6(__VA_ARGS__)
#define FX_EACH8(a, ...) FX_ARG(a) FX_EACH7(__VA_ARGS__)
#define FX_EACH9(a, ...) FX_ARG(a) FX_EACH8(__VA_ARGS__)
#define FX_EACH10(a, ...) FX_ARG(a) FX_EACH9(__VA_ARGS__)
#define FX_EACH11(a, ...) FX_ARG(a) FX_EACH10(__VA_ARGS__)
#define FX_EACH12(a, ...) FX_ARG(a) FX_EACH11(__VA_ARGS__)
#define FX_ARGS(...) FX_JOIN(FX_EACH, FX_COUNT(0, ##__VA_ARGS__))(__VA_ARGS__)

/* Print a hit whose values are plain C expressions. */
#define HIT(probe, ...) do { \
    if (fx_begin(probe)) { \
        FX_ARGS(__VA_ARGS__) \
        fx_end(); \
    } \
} while (0)

/* Fire provider:name with these values and print them. Needs SDT_USE_VARIADIC and <sys/sdt.h>. */
#define FIRE(provider, name, ...) do { \
    FX_BARRIER(); \
    STAP_PROBEV(provider, name, ##__VA_ARGS__); \
    HIT(#provider ":" #name, ##__VA_ARGS__); \
} while (0)

#endif
