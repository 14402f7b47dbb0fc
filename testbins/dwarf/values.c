/* Functions with parameters of every type that C has. Each prints what it was passed. */
#include <stdbool.h>
#include <stdint.h>

#include "say.h"

#define LARGE (1l << (8 * sizeof(long) - 24))
#ifdef __SIZEOF_INT128__
typedef __int128 widest;
#else
typedef long long widest;
#endif

enum color { RED, GREEN = 5, BLUE };
enum level { LOW = -1, HIGH = 1 };

struct header {
    const char *name;
    int size;
};

struct request {
    const char *path;
    char method[8];
    struct header headers[3];
    unsigned int urgent : 1;
    int priority : 5;
    unsigned long long id : 40;
    enum color color : 4;
    union {
        int number;
        unsigned char bytes[4];
    };
    struct {
        short width, height;
    };
    struct request *next;
    enum color shade;
    bool open;
    double weight;
    long matrix[2][3];
};
typedef struct request request_t;

CALLED int integers(signed char a, unsigned char b, short c, unsigned short d, int e, unsigned f)
{
    BEGIN("integers");
    INT(a), INT(b), INT(c), INT(d), INT(e), UNSIGNED(f);
    int result = a + e;
    RETURN(result);
    END();
    return result;
}

CALLED long wide(long a, unsigned long b, long long c, unsigned long long d, size_t e, int64_t f)
{
    BEGIN("wide");
    INT(a), UNSIGNED(b), INT(c), UNSIGNED(d), UNSIGNED(e), INT(f);
    RETURN(a - 1);
    END();
    return a - 1;
}

CALLED unsigned char many(char a, short b, int c, long d, bool e, uint8_t f, signed char g, short h, int i,
                          unsigned long j, const char *k)
{
    unsigned char result = (unsigned char)(c + i);
    BEGIN("many");
    INT(a), INT(b), INT(c), INT(d), INT(e), INT(f), INT(g), INT(h), INT(i), UNSIGNED(j), TEXT(k);
    RETURN(result);
    END();
    return result;
}

CALLED enum color named(enum color color, enum level level, bool yes)
{
    static const char *const colors[] = {"RED", "", "", "", "", "GREEN", "BLUE"};
    BEGIN("named");
    NAMED(color, colors[color]), NAMED(level, level == LOW ? "LOW" : "HIGH"), INT(yes);
    say_text("return", "BLUE");
    END();
    return BLUE;
}

CALLED bool pointers(int *number, const char *text, void *nothing, struct header **two, char buffer[8],
                     const unsigned char *bytes)
{
    BEGIN("pointers");
    INT(*number), INT(number[1]), TEXT(text), ADDRESS(nothing), INT((*two)->size), TEXT((*two)->name);
    TEXT(buffer), INT(bytes[1]), INT(text[0]);
    RETURN(1);
    END();
    return true;
}

CALLED const char *by_pointer(request_t *req, const struct header *const head)
{
    BEGIN("by_pointer");
    TEXT(req->path), TEXT(req->method), TEXT(req->headers[0].name), INT(req->headers[2].size);
    INT(req->urgent), INT(req->priority), UNSIGNED(req->id), INT(req->number), INT(req->bytes[3]);
    INT(req->width), INT(req->height), TEXT(req->next->path), INT(req->next->urgent);
    NAMED(req->shade, "GREEN"), NAMED(req->color, "BLUE"), INT(req->open), INT(req->matrix[1][2]);
    INT(req->headers[1].size + head->size), TEXT(head->name), FLOAT(req->weight);
    TEXT((*req).path), INT(((struct request *)req)->next->priority);
    say_text("return", "done");
    END();
    return "done";
}

struct one { char a; };
struct three { char a, b, c; };
struct four { short a, b; };
struct eight { int a; unsigned b; };
struct twelve { int a[3]; };
struct sixteen { long a; char *b; };
struct large { long a, b, c; };
struct nested { struct four first; struct eight second; };
struct bits { unsigned a : 3; int b : 7; unsigned long long c : 40; };
struct packed { char a; long b; } __attribute__((packed));
union either { long number; int half[2]; char text[8]; };

CALLED struct eight small(struct one a, struct three b, struct four c, struct eight d, union either e)
{
    struct eight result = {-7, 4000000000u};
    BEGIN("small");
    INT(a.a), INT(b.a), INT(b.c), INT(c.a), INT(c.b), INT(d.a), UNSIGNED(d.b), INT(e.number);
    INT(e.half[1]), INT(e.text[2]);
    say_key("b"), printf("{\"a\": %d, \"b\": %d, \"c\": %d}", b.a, b.b, b.c);
    say_key("d"), printf("{\"a\": %d, \"b\": %u}", d.a, d.b);
    say_key("e.half"), printf("[%d, %d]", e.half[0], e.half[1]);
    say_key("return.a"), printf("-7");
    say_key("return.b"), printf("4000000000");
    say_key("return"), printf("{\"a\": -7, \"b\": 4000000000}");
    END();
    return result;
}

CALLED struct sixteen pairs(struct twelve a, struct sixteen b, struct nested c, int d)
{
    BEGIN("pairs");
    INT(a.a[0]), INT(a.a[2]), INT(b.a), TEXT(b.b), INT(c.first.b), INT(c.second.a), UNSIGNED(c.second.b);
    INT(d);
    say_key("a"), printf("{\"a\": [%d, %d, %d]}", a.a[0], a.a[1], a.a[2]);
    say_key("c"), printf("{\"first\": {\"a\": %d, \"b\": %d}, \"second\": {\"a\": %d, \"b\": %u}}", c.first.a,
                       c.first.b, c.second.a, c.second.b);
    say_key("c.second"), printf("{\"a\": %d, \"b\": %u}", c.second.a, c.second.b);
    say_key("return.a"), printf("%ld", -b.a);
    say_text("return.b", b.b);
    END();
    b.a = -b.a;
    return b;
}

/* The second has no room in registers, the number behind it has. */
CALLED struct large crowded(long a, struct sixteen b, struct sixteen c, struct sixteen d, int e, struct one f)
{
    struct large result = {a, -1, e};
    BEGIN("crowded");
    INT(a), INT(b.a), TEXT(b.b), INT(c.a), TEXT(c.b), INT(d.a), TEXT(d.b), INT(e), INT(f.a);
    say_key("return.b"), printf("-1");
    say_key("return.c"), printf("%d", e);
    END();
    return result;
}

CALLED long in_memory(struct large a, int b, request_t c, struct packed d)
{
    BEGIN("in_memory");
    INT(a.a), INT(a.c), INT(b), TEXT(c.path), INT(c.priority), TEXT(c.headers[0].name), INT(d.a), INT(d.b);
    RETURN(a.b);
    END();
    return a.b;
}

CALLED short bit_fields(struct bits a, int b)
{
    BEGIN("bit_fields");
    INT(a.a), INT(a.b), INT(a.c), INT(b);
    say_key("a"), printf("{\"a\": %d, \"b\": %d, \"c\": %llu}", a.a, a.b, (unsigned long long)a.c);
    RETURN(-2);
    END();
    return -2;
}

struct mixed { int a; float b; };
struct real { double a; long b; };
struct reals { float a, b, c; };
struct turned { long a; double b; };

CALLED double floats(float a, int b, double c, long d)
{
    BEGIN("floats");
    UNREADABLE(a), INT(b), UNREADABLE(c), INT(d), UNREADABLE(return);
    END();
    return a + c;
}

CALLED struct real mixtures(struct mixed a, struct real b, struct reals c, struct turned d, int e)
{
    (void)c;
    BEGIN("mixtures");
    INT(a.a), FLOAT(a.b), UNREADABLE(b.a), INT(b.b), UNREADABLE(c.c), INT(d.a), UNREADABLE(d.b), INT(e);
    UNREADABLE(return.a);
    say_key("return.b"), printf("%ld", b.b);
    END();
    return b;
}

/* More of them than registers: the rest is in memory. */
CALLED int stacked(double a, double b, double c, double d, double e, double f, double g, double h, double i,
                   float j, int k)
{
    BEGIN("stacked");
    UNREADABLE(a), UNREADABLE(h), FLOAT(i), FLOAT(j), INT(k);
    RETURN(k);
    END();
    return k + (int)(0 * (a + b + c + d + e + f + g + h + i + j));
}

CALLED int extended(long double a, int b, widest c, int d, _Complex float e, int f)
{
    BEGIN("extended");
    INT(b), INT(d), INT(f);
    RETURN(b);
    END();
    return b + (int)(0 * (a + c + d + __real__ e));
}

static CALLED int hidden(const struct header *head, int times)
{
    BEGIN("hidden");
    TEXT(head->name), INT(times);
    RETURN(head->size * times);
    END();
    return head->size * times;
}

CALLED int variadic(const char *format, ...)
{
    BEGIN("variadic");
    TEXT(format);
    RETURN(0);
    END();
    return 0;
}

static void scalars(void)
{
    integers(-128, 255, -32768, 65535, -2147483647 - 1, 4294967295u);
    integers(1, 2, 3, 4, 5, 6);
    wide(-1, ~0ul, -9223372036854775807ll - 1, ~0ull, 0, -5);
    many('a', -2, -3, LARGE, true, 200, -7, -8, -9, ~0ul, "eleven");
    many(-1, 2, 3, -4, false, 1, 7, 8, 9, 10, "elf");
    named(GREEN, LOW, true);
    named(BLUE, HIGH, false);
}

static void structures(request_t *req)
{
    struct header head = {"x-last", 44}, *pointer = &head;
    int numbers[] = {-17, 18};
    char buffer[8] = "buffer";
    pointers(numbers, "text", (void *)0x1234, &pointer, buffer, (const unsigned char *)"\xff\xfe");
    by_pointer(req, &head);
    small((struct one){-1}, (struct three){1, -2, 3}, (struct four){-300, 301}, (struct eight){-5, 3000000000u},
          (union either){.number = -2});
    struct sixteen one = {LARGE / 128, "one"}, two = {-2, "two"}, three = {3, "three"};
    pairs((struct twelve){{-1, 2, -3}}, two, (struct nested){{1, -2}, {-3, 4000000000u}}, -4);
    crowded(-1, one, two, three, -5, (struct one){6});
    in_memory((struct large){1, -2, 3}, -4, *req, (struct packed){-5, -6});
    bit_fields((struct bits){5, -64, 1ull << 39}, -1);
    hidden(&head, 3);
    variadic("%d", 1);
}

int main(void)
{
    request_t next = {.path = "/next", .urgent = 0, .priority = -3};
    request_t req = {"/index.html", "GET", {{"host", 1}, {"accept", 2}, {"agent", -3}}, 1, -16, 1ull << 39, BLUE,
                     {-2}, {-640, 480}, &next, GREEN, true, 2.5, {{1, 2, 3}, {4, 5, -6}}};
    scalars();
    structures(&req);
    floats(1.5f, -2, 2.5, -3);
    mixtures((struct mixed){-1, 2.5f}, (struct real){1.5, -2}, (struct reals){1, 2, 3}, (struct turned){-4, 1.5}, -6);
    stacked(1, 2, 3, 4, 5, 6, 7, 8, 9.25, 10.5f, -11);
    extended(1, -2, 3, -4, 5, -6);
    return 0;
}
