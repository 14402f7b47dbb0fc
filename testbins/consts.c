/* Constants: nothing to read but the note. Only the round varies. */
#define SDT_USE_VARIADIC 1
#include <sys/sdt.h>

#include <limits.h>

#include "fixture.h"

enum colour { RED, GREEN = 7, BLUE = -3 };

void fire(unsigned long round)
{
    unsigned now = (unsigned)round;
    FIRE(consts, small, 0, 1, -1, 5, -5, now);
    FIRE(consts, extremes, INT_MIN, INT_MAX, UINT_MAX, LLONG_MIN, LLONG_MAX, ULLONG_MAX, now);
    FIRE(consts, above_signed, 9223372036854775808ULL, 18446744073709551614ULL, 0x1234567890abcdefLL);
    FIRE(consts, narrow, (char)'x', (signed char)-128, (unsigned char)255, (short)-32768,
         (unsigned short)65535, (_Bool)1);
    FIRE(consts, enums, RED, GREEN, BLUE, sizeof(long), 'c');
    FIRE(consts, pointers, (void *)0, (void *)4096, now);
    FIRE(consts, only, 42);
}
