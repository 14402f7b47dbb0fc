/* Structures and unions by value, of sizes that no integer has. */
#include <sys/sdt.h>

#include <string.h>

#include "fixture.h"

/* gcc for MIPS finds no operand for a structure that only this file knows. */
#ifdef __mips__
#define FILE_ONLY
#else
#define FILE_ONLY static
#endif

#define STRUCT(size) \
    struct s##size { \
        unsigned char bytes[size]; \
    }; \
    FILE_ONLY struct s##size value##size; \
    static FX_NOINLINE void fire##size(unsigned long round) \
    { \
        for (unsigned i = 0; i < size; i++) \
            value##size.bytes[i] = (unsigned char)(i * 7 + size + round); \
        FX_BARRIER(); \
        STAP_PROBE2(structs, s##size, value##size, size); \
        if (fx_begin("structs:s" #size)) { \
            fx_hex(&value##size, size); \
            fx_signed(size); \
            fx_end(); \
        } \
    }

STRUCT(1) STRUCT(2) STRUCT(3) STRUCT(4) STRUCT(5) STRUCT(8) STRUCT(12) STRUCT(16)
STRUCT(24) STRUCT(32) STRUCT(64) STRUCT(256)

struct point {
    long x;
    double y;
};
struct wide {
    long a, b, c;
};
union either {
    long number;
    double real;
    char text[24];
};

#define BY_VALUE(name, type) \
    static FX_NOINLINE void fire_##name(type value) \
    { \
        FX_BARRIER(); \
        STAP_PROBE1(structs, name, value); \
        if (fx_begin("structs:" #name)) { \
            fx_hex(&value, sizeof value); \
            fx_end(); \
        } \
    }

BY_VALUE(point, struct point)
BY_VALUE(wide, struct wide)
BY_VALUE(either, union either)

void fire(unsigned long round)
{
    union either either;
    memset(&either, 0, sizeof either);
    strcpy(either.text, "a union");
    either.text[0] = (char)('a' + round % 26);
    fire1(round), fire2(round), fire3(round), fire4(round), fire5(round), fire8(round);
    fire12(round), fire16(round), fire24(round), fire32(round), fire64(round), fire256(round);
    fire_point((struct point){.x = -1 - (long)round, .y = 0.5});
    fire_wide((struct wide){.a = -1, .b = (long)round, .c = 3});
    fire_either(either);
}
