/* Notes that are odd in other ways than by their names; see README.md for each of them. */
#include "fixture.h"
#include "note.h"

/* Two notes for one instruction, the same and different. */
static FX_NOINLINE void together(void)
{
    __asm__ __volatile__("990: " HAND_NOP "\n"
        HAND_NOTE_AT("990b", HAND_BASE, "oddnotes", "duplicate", "", "0")
        HAND_NOTE_AT("990b", HAND_BASE, "oddnotes", "duplicate", "", "0"));
    HIT("oddnotes:duplicate");
    __asm__ __volatile__("990: " HAND_NOP "\n"
        HAND_NOTE_AT("990b", HAND_BASE, "oddnotes", "first_name", "", "0")
        HAND_NOTE_AT("990b", HAND_BASE, "oddnotes", "second_name", "", "0"));
    HIT("oddnotes:first_name");
    HIT("oddnotes:second_name");
}

/* As prelink leaves them: every address in the note is off by what the base is off by. */
static FX_NOINLINE void moved(void)
{
    __asm__ __volatile__("990: " HAND_NOP "\n"
        HAND_NOTE_AT("990b+0x10000", HAND_BASE "+0x10000", "oddnotes", "prelinked", "", "0"));
    HIT("oddnotes:prelinked");
    __asm__ __volatile__("990: " HAND_NOP "\n"
        HAND_NOTE_AT("990b", "0", "oddnotes", "no_base", "", "0"));
    HIT("oddnotes:no_base");
}

/* Never hit: what the linker leaves of a discarded function, and an address that is not code. */
static FX_NOINLINE void unreachable(void)
{
    __asm__ __volatile__(
        HAND_NOTE_AT("0", HAND_BASE, "oddnotes", "dead", "", "0")
        HAND_NOTE_AT("oddnotes_data", HAND_BASE, "oddnotes", "in_data", "", "0"));
}

/* A note of somebody else in the same section. */
static FX_NOINLINE void foreign(void)
{
    __asm__ __volatile__(
        ".pushsection .note.stapsdt,\"\",\"note\"\n"
        ".balign 4\n"
        ".4byte 992f-991f, 994f-993f, 1\n"
        "991: .asciz \"somebody\"\n"
        "992: .balign 4\n"
        "993: .ascii \"else\"\n"
        "994: .balign 4\n"
        ".popsection\n");
}

static FX_NOINLINE void texts(void)
{
    __asm__ __volatile__(HAND_NOTE(HAND_NOP, "oddnotes", "colon", ":", "0"));
    HIT("oddnotes:colon");
    __asm__ __volatile__(HAND_NOTE(HAND_NOP, "oddnotes", "blank", "   ", "0"));
    HIT("oddnotes:blank");
    __asm__ __volatile__(HAND_NOTE(HAND_NOP, "oddnotes", "nonsense", "not an operand", "0"));
    if (fx_begin("oddnotes:nonsense")) {
        fx_null(), fx_null(), fx_null();
        fx_end();
    }
}

/* A semaphore that nobody can count in: it lies in code. */
static FX_NOINLINE void semaphores(void)
{
    __asm__ __volatile__(HAND_NOTE(HAND_NOP, "oddnotes", "semaphore_in_code", "", "990b"));
    HIT("oddnotes:semaphore_in_code");
}

__attribute__((used)) long oddnotes_data = 1;

void fire(unsigned long round)
{
    (void)round;
    together();
    moved();
    unreachable();
    foreign();
    texts();
    semaphores();
}
