/* Every integer type: a value that varies, its least and greatest from memory and as constants. */
#define SDT_USE_VARIADIC 1
#include <sys/sdt.h>

#include <limits.h>
#include <stdint.h>
#include <wchar.h>

#include "fixture.h"

/* name(varying, least, greatest, -1, constant least, constant greatest) */
#define INT_TYPE(name, type, least, greatest) \
    static FX_NOINLINE void fire_##name(unsigned long round) \
    { \
        static volatile type low = (least), high = (greatest), ones = (type)-1; \
        type half = (type)(round / 2); \
        type varying = (type)(round & 1 ? high - half : low + half); \
        type minimum = low, maximum = high, minus_one = ones; \
        FIRE(ints, name, varying, minimum, maximum, minus_one, (type)(least), (type)(greatest)); \
    }

#define INT_TYPES(X) \
    X(i8, int8_t, INT8_MIN, INT8_MAX) \
    X(u8, uint8_t, 0, UINT8_MAX) \
    X(i16, int16_t, INT16_MIN, INT16_MAX) \
    X(u16, uint16_t, 0, UINT16_MAX) \
    X(i32, int32_t, INT32_MIN, INT32_MAX) \
    X(u32, uint32_t, 0, UINT32_MAX) \
    X(i64, int64_t, INT64_MIN, INT64_MAX) \
    X(u64, uint64_t, 0, UINT64_MAX) \
    X(plain_char, char, CHAR_MIN, CHAR_MAX) \
    X(plain_bool, _Bool, 0, 1) \
    X(plain_short, short, SHRT_MIN, SHRT_MAX) \
    X(ushort, unsigned short, 0, USHRT_MAX) \
    X(plain_int, int, INT_MIN, INT_MAX) \
    X(uint, unsigned, 0, UINT_MAX) \
    X(plain_long, long, LONG_MIN, LONG_MAX) \
    X(ulong, unsigned long, 0, ULONG_MAX) \
    X(llong, long long, LLONG_MIN, LLONG_MAX) \
    X(ullong, unsigned long long, 0, ULLONG_MAX) \
    X(size, size_t, 0, SIZE_MAX) \
    X(wide_char, wchar_t, WCHAR_MIN, WCHAR_MAX)

INT_TYPES(INT_TYPE)

enum signed_enum { BELOW = -5, ABOVE = 5 };
enum unsigned_enum { NOTHING, MUCH = 0x80000000u };

static FX_NOINLINE void fire_enums(unsigned long round)
{
    enum signed_enum below = round & 1 ? ABOVE : BELOW;
    enum unsigned_enum much = round & 1 ? NOTHING : MUCH;
    FIRE(ints, enums, below, much, BELOW, MUCH);
}

/* Memory holds the value on every machine: 32-bit ones name only one half of a register pair. */
static FX_NOINLINE void fire_in_memory(unsigned long round)
{
    static int64_t i64;
    static uint64_t u64;
    static int16_t i16;
    static uint8_t u8;
    i64 = INT64_MIN + (int64_t)round;
    u64 = UINT64_MAX - round;
    i16 = (int16_t)(INT16_MIN + (int)round);
    u8 = (uint8_t)(UINT8_MAX - round);
    FIRE(ints, in_memory, i64, u64, i16, u8);
}

/* The value is in its low bits only; a tracer must not take the rest of the register. */
static FX_NOINLINE void fire_dirty(unsigned long round)
{
    unsigned long long dirt = 0xfedcba9876543210ULL + round + fx_zero;
    __asm__("" : "+r"(dirt)::);
    FIRE(ints, dirty, (int8_t)dirt, (uint8_t)dirt, (int16_t)dirt, (uint16_t)dirt, (int32_t)dirt,
         (uint32_t)dirt);
}

#ifdef __SIZEOF_INT128__
static FX_NOINLINE void fire_i128(unsigned long round)
{
    static __int128 value;
    value = (__int128)round - ((__int128)2 << 64);
    FX_BARRIER();
    STAP_PROBE1(ints, i128, value);
    if (fx_begin("ints:i128")) {
        fx_hex(&value, sizeof value);
        fx_end();
    }
}
#else
static void fire_i128(unsigned long round)
{
    (void)round;
}
#endif

void fire(unsigned long round)
{
#define CALL(name, type, least, greatest) fire_##name(round);
    INT_TYPES(CALL)
    fire_enums(round);
    fire_in_memory(round);
    fire_dirty(round);
    fire_i128(round);
}
