/* Instructions under a probe other than one nop, and a red zone that must survive. Other
 * machines than x86 have the nop alone.
 *
 * The kernel may turn an entry probe on a nop5 into a call, which overwrites the red zone of a leaf
 * function: red_zone shows its value as it was after the probe.
 */
#include "fixture.h"
#include "note.h"

#if defined __x86_64__ || defined __i386__

#define NOP5 ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00"
#define NOP10 ".byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00"

#define PLACE(name, instructions) \
    static FX_NOINLINE void name(int value) \
    { \
        __asm__ __volatile__(HAND_NOTE(instructions, "nops", #name, "-4@%k0", "0")::"r"((long)value)); \
        HIT("nops:" #name, value); \
    }

PLACE(nop1, "nop")
PLACE(nop2, ".byte 0x66, 0x90")
PLACE(nop_nop5, "nop\n" NOP5)
PLACE(nop_nop10, "nop\n" NOP10)
PLACE(push, "push %0\npop %0")
PLACE(move, "mov %0, %0")

#if defined __x86_64__
long nops_red_zone(long value);
__asm__(".text\n.local nops_red_zone\n.type nops_red_zone, @function\nnops_red_zone:\n"
    "mov %rdi, -8(%rsp)\n"
    HAND_NOTE("nop\n" NOP5, "nops", "red_zone", "-8@%rdi", "0")
    "mov -8(%rsp), %rax\nret\n"
    ".size nops_red_zone, .-nops_red_zone\n");

static void red_zone(unsigned long round)
{
    long after = nops_red_zone(-(long)round - 5);
    HIT("nops:red_zone", after);
}
#else
static void red_zone(unsigned long round)
{
    (void)round;
}
#endif

void fire(unsigned long round)
{
    int value = -(int)round - 1;
    nop1(value);
    nop2(value);
    nop_nop5(value);
    nop_nop10(value);
    push(value);
    move(value);
    red_zone(round);
}

#else

static FX_NOINLINE void nop1(long value)
{
    __asm__ __volatile__(HAND_NOTE(HAND_NOP, "nops", "nop1", "-4@%0", "0")::"r"(value));
    HIT("nops:nop1", (int)value);
}

void fire(unsigned long round)
{
    nop1(-(long)round - 1);
}

#endif
