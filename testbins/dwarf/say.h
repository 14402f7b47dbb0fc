/* A call as one line of JSON: the function, and what a tracer shows of it, by the items' text. */
#ifndef SAY_H
#define SAY_H

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Called by its name, with its arguments where the calling convention has them. */
#if defined(__has_attribute) && __has_attribute(noipa)
#define CALLED __attribute__((noinline, noipa))
#else
#define CALLED __attribute__((noinline, used))
#endif

static int say_number;

static inline void say_begin(const char *function)
{
    printf("{\"function\": \"%s\", \"items\": {", function);
    say_number = 0;
}

static inline void say_key(const char *key)
{
    printf("%s\"%s\": ", say_number++ ? ", " : "", key);
}

static inline void say_bytes(const char *key, const char *text, size_t size)
{
    say_key(key);
    putchar('"');
    for (size_t at = 0; at < size; at++) {
        unsigned char one = (unsigned char)text[at];
        if (one < ' ' || one == '"' || one == '\\' || one > '~')
            printf("\\u00%02x", one);
        else
            putchar(one);
    }
    putchar('"');
}

static inline void say_text(const char *key, const char *text)
{
    say_bytes(key, text, strlen(text));
}

#define BEGIN(function) say_begin(function)
#define INT(item) (say_key(#item), printf("%lld", (long long)(item)))
#define UNSIGNED(item) (say_key(#item), printf("%llu", (unsigned long long)(item)))
#define ADDRESS(item) (say_key(#item), printf("\"0x%llx\"", (unsigned long long)(size_t)(item)))
#define TEXT(item) say_text(#item, (const char *)(item))
#define NAMED(item, name) say_text(#item, name)
#define FLOAT(item) (say_key(#item), printf("%.17g", (double)(item)))
/* What a tracer cannot read where the function begins: an error, whatever its words. */
#define UNREADABLE(item) (say_key(#item), printf("{\"error\": null}"))
#define RETURN(number) (say_key("return"), printf("%lld", (long long)(number)))
#define END() printf("}}\n")

#endif
