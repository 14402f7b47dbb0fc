/* Probes whose note is written by hand: any operand text, any name, any semaphore.
 *
 * HAND_NOTE(instruction, provider, name, args, semaphore): strings, to be used inside asm. In an
 * asm with operands, each % that is not an operand must be doubled by the caller.
 * HAND_NOTE_AT makes the note alone, for the instruction at location.
 */
#ifndef NOTE_H
#define NOTE_H

#include <sys/sdt.h>

#define HAND_TEXT(x) HAND_TEXT_(x)
#define HAND_TEXT_(x) #x
#define HAND_NOP HAND_TEXT(_SDT_NOP)
#define HAND_BASE "_.stapsdt.base"
#define HAND_ADDRESS HAND_TEXT(_SDT_ASM_ADDR) " "

#define HAND_NOTE_AT(location, base, provider, name, args, semaphore) \
    ".pushsection .note.stapsdt,\"" _SDT_ASM_AUTOGROUP "\",\"note\"\n" \
    ".balign 4\n" \
    ".4byte 992f-991f, 994f-993f, 3\n" \
    "991: .asciz \"stapsdt\"\n" \
    "992: .balign 4\n" \
    "993: " HAND_ADDRESS location "\n" \
    HAND_ADDRESS base "\n" \
    HAND_ADDRESS semaphore "\n" \
    ".asciz \"" provider "\"\n" \
    ".asciz \"" name "\"\n" \
    ".asciz \"" args "\"\n" \
    "994: .balign 4\n" \
    ".popsection\n" \
    _SDT_ASM_BASE

#define HAND_NOTE(instruction, provider, name, args, semaphore) \
    "990: " instruction "\n" \
    HAND_NOTE_AT("990b", HAND_BASE, provider, name, args, semaphore)

#endif
