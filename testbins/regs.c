/* Operands that compilers rarely or never choose, each with a known value behind it.
 *
 * The notes are written by hand: every register in every width, sums of displacements, an index
 * without a base, thread-local storage, xmm, constants at the edges, sizes left out. A value that
 * no tracer can know is printed as null. Machines other than x86 fire a probe of a few operands.
 */
#include <string.h>

#include "fixture.h"
#include "note.h"

#if defined __x86_64__ || defined __i386__

#if !defined __PIC__ && !defined __PIE__
#define ABSOLUTE 1 /* symbols are addresses that an instruction can hold */
#endif

#define NOTE(name, args, values) HAND_NOTE(HAND_NOP, "regs", #name, args, "0")
#define PRINT(name, args, values) \
    if (fx_begin("regs:" #name)) { \
        values \
        fx_end(); \
    }
#define U(value) fx_unsigned(value);
#define S(value) fx_signed(value);
#define D(value) fx_double(value);
#define HEX(address, size) fx_hex(address, size);
#define UNKNOWN fx_null();
#define FUNCTION(name) \
    ".text\n.balign 16\n.local " #name "\n.type " #name ", @function\n" #name ":\n"
#define END(name) ".size " #name ", .-" #name "\n"

long regs_data[8];
__thread long regs_tls[2];
long regs_dotted __asm__("regs.dotted.1");

static double as_double(const void *bytes)
{
    double value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static float as_float(const void *bytes)
{
    float value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static void put_double(void *bytes, double value)
{
    memcpy(bytes, &value, sizeof value);
}

static void put_float(void *bytes, float value)
{
    memcpy(bytes, &value, sizeof value);
}

/* What a register of this value holds in each of its parts. */
#define PARTS(v) U((uint32_t)(v)) S((int32_t)(v)) U((uint16_t)(v)) S((int16_t)(v)) \
    U((uint8_t)(v)) S((int8_t)(v))
#define HIGH(v) U((uint8_t)((v) >> 8)) S((int8_t)((v) >> 8))

#define CONSTANTS(X) \
    X(constants, "8@$18446744073709551615 -8@$-9223372036854775808 8@$-1 -1@$255 1@$-1 4@$-1 " \
                 "2@$65537 -8@$9223372036854775807 8@$9223372036854775808", \
      U(~0ULL) S(-9223372036854775807LL - 1) U(~0ULL) S(-1) U(255) U(4294967295) U(1) \
      S(9223372036854775807) U(9223372036854775808ULL)) \
    X(float_constants, "8f@$4607182418800017408 4f@$1065353216", D(1.0) D(1.0)) \
    X(many, "4@$0 4@$1 4@$2 4@$3 4@$4 4@$5 4@$6 4@$7 4@$8 4@$9 4@$10 4@$11 4@$12 4@$13 4@$14 4@$15", \
      U(0) U(1) U(2) U(3) U(4) U(5) U(6) U(7) U(8) U(9) U(10) U(11) U(12) U(13) U(14) U(15))

#if defined __x86_64__

enum { RAX, RBX, RCX, RDX, RSI, RDI, RBP, R8, R9, R10, R11, R12, R13, R14, R15, RSP, XMM0, SLOTS };

#define LEGACY(X, R, r, e, w, l, h) \
    X(r, "8@%" #r " -8@%" #r " 4@%" #e " -4@%" #e " 2@%" #w " -2@%" #w " 1@%" #l " -1@%" #l \
         " 1@%" #h " -1@%" #h, \
      U(v[R]) S((long)v[R]) PARTS(v[R]) HIGH(v[R]))
#define WITHOUT_HIGH(X, R, r, e, w, l) \
    X(r, "8@%" #r " -8@%" #r " 4@%" #e " -4@%" #e " 2@%" #w " -2@%" #w " 1@%" #l " -1@%" #l, \
      U(v[R]) S((long)v[R]) PARTS(v[R]))
#define NUMBERED(X, R, r) WITHOUT_HIGH(X, R, r, r##d, r##w, r##b)

#define REGISTERS(X) \
    LEGACY(X, RAX, rax, eax, ax, al, ah) LEGACY(X, RBX, rbx, ebx, bx, bl, bh) \
    LEGACY(X, RCX, rcx, ecx, cx, cl, ch) LEGACY(X, RDX, rdx, edx, dx, dl, dh) \
    WITHOUT_HIGH(X, RSI, rsi, esi, si, sil) WITHOUT_HIGH(X, RDI, rdi, edi, di, dil) \
    WITHOUT_HIGH(X, RBP, rbp, ebp, bp, bpl) WITHOUT_HIGH(X, RSP, rsp, esp, sp, spl) \
    NUMBERED(X, R8, r8) NUMBERED(X, R9, r9) NUMBERED(X, R10, r10) NUMBERED(X, R11, r11) \
    NUMBERED(X, R12, r12) NUMBERED(X, R13, r13) NUMBERED(X, R14, r14) NUMBERED(X, R15, r15) \
    X(no_size, "%rdi %rax -4@%eax", U(v[RDI]) U(v[RAX]) S((int)v[RAX])) \
    X(mismatch, "1@%rax 2@%eax 4@%rax -1@%rbx -4@%rbx", U((uint8_t)v[RAX]) U((uint16_t)v[RAX]) \
      U((uint32_t)v[RAX]) S((int8_t)v[RBX]) S((int)v[RBX])) \
    X(blanks, "  -4@%eax   8@%rbx ", S((int)v[RAX]) U(v[RBX])) \
    X(unknown, "-4@%eax 8@%bogus 8@%rbx 8@no_such_symbol(%rip) 8@ -4@%ecx", \
      S((int)v[RAX]) UNKNOWN U(v[RBX]) UNKNOWN UNKNOWN S((int)v[RCX])) \
    X(xmm, "8f@%xmm0 -4@%eax", D(as_double(&v[XMM0])) S((int)v[RAX])) \
    X(float_in_gpr, "8f@%r12 4f@%r13d", D(as_double(&v[R12])) D(as_float(&v[R13]))) \
    CONSTANTS(X)

/* v[RSP] is written, all others are read. */
void regs_registers(unsigned long v[SLOTS]);
__asm__(FUNCTION(regs_registers)
    "push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15\n"
    "mov %rsp, 120(%rdi); movsd 128(%rdi), %xmm0\n"
    "mov (%rdi), %rax; mov 8(%rdi), %rbx; mov 16(%rdi), %rcx; mov 24(%rdi), %rdx\n"
    "mov 32(%rdi), %rsi; mov 48(%rdi), %rbp; mov 56(%rdi), %r8; mov 64(%rdi), %r9\n"
    "mov 72(%rdi), %r10; mov 80(%rdi), %r11; mov 88(%rdi), %r12; mov 96(%rdi), %r13\n"
    "mov 104(%rdi), %r14; mov 112(%rdi), %r15; mov 40(%rdi), %rdi\n"
    REGISTERS(NOTE)
    "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp; ret\n"
    END(regs_registers));

/* b is &buffer[8], in %rbx; its address / 8 is in %rdx, 3 in %rcx, -2 in %rsi. */
#define MEMORY(X) \
    X(base, "8@(%rbx) 8@8(%rbx) -8@-8(%rbx) 8@16(%rbx)", U(b[0]) U(b[1]) S((long)b[-1]) U(b[2])) \
    X(hexadecimal, "8@0x10(%rbx) 8@$0x10 -4@$-0x10 8@$0xfedcba9876543210", U(b[2]) U(16) S(-16) \
      U(0xfedcba9876543210ULL)) \
    X(sums, "8@-8+3+5(%rbx) -4@-8+3+1+4(%rbx) 8@4+4(%rbx) 8@16-8(%rbx)", \
      U(b[0]) S((int)b[0]) U(b[1]) U(b[1])) \
    X(index, "8@(%rbx,%rcx,8) 8@8(%rbx,%rcx,8) -8@-16(%rbx,%rsi,8) -4@(%rbx,%rcx,4) 1@(%rbx,%rcx) " \
             "-2@(%rbx,%rcx,2) 1@1(%rbx,%rcx,1)", \
      U(b[3]) U(b[4]) S((long)b[-4]) S(((int *)b)[3]) U(((uint8_t *)b)[3]) S(((int16_t *)b)[3]) \
      U(((uint8_t *)b)[4])) \
    X(no_base, "8@(,%rdx,8) 8@8(,%rdx,8) -4@4(,%rdx,8) 8@(,%rbx) 8@16(,%rbx,1)", \
      U(b[0]) U(b[1]) S(((int *)b)[1]) U(b[0]) U(b[2])) \
    X(memory_no_size, "(%rbx) 8(%rbx)", U(b[0]) U(b[1])) \
    X(float_in_memory, "8f@(%rbx) 4f@8(%rbx)", D(as_double(&b[0])) D(as_float(&b[1]))) \
    X(stack, "8@(%rsp) 8@8(%rsp) -4@16(%rsp) 8@24(%rsp)", U(b[3]) U(b[2]) S((int)b[1]) U(b[0])) \
    X(big, "16@(%rsp) 24@8(%rsp) 16@16(%rbx) 32@(%rbx)", \
      HEX(((unsigned long[]){b[3], b[2]}), 16) HEX(((unsigned long[]){b[2], b[1], b[0]}), 24) \
      HEX(b + 2, 16) HEX(b, 32)) \
    X(symbol, "8@regs_data(%rip) 8@regs_data+8(%rip) 8@16+regs_data(%rip) " \
              "8@24+regs_data-8(%rip) -4@regs_data+4(%rip) -8@regs.dotted.1(%rip)", \
      U((unsigned long)regs_data[0]) U((unsigned long)regs_data[1]) U((unsigned long)regs_data[2]) \
      U((unsigned long)regs_data[2]) S(((int *)regs_data)[1]) S(regs_dotted)) \
    X(tls, "8@%fs:regs_tls@tpoff -8@%fs:regs_tls@tpoff+8 -8@%fs:8+regs_tls@tpoff 8@%fs:0 " \
           "-8@%fs:(%rdi) -8@%fs:8(%rdi)", \
      U((unsigned long)regs_tls[0]) S(regs_tls[1]) S(regs_tls[1]) \
      U((unsigned long)__builtin_thread_pointer()) S(regs_tls[0]) S(regs_tls[1])) \
    ABSOLUTES(X)

#ifdef ABSOLUTE
#define ABSOLUTES(X) \
    X(absolute, "-8@regs_data -8@regs_data+8 -8@8+regs_data 8@$regs_data 8@$regs_data+8", \
      S(regs_data[0]) S(regs_data[1]) S(regs_data[1]) U((unsigned long)regs_data) \
      U((unsigned long)(regs_data + 1))) \
    X(named_index, "-8@regs_data(,%rcx,8) -8@8+regs_data(,%rcx,8) -8@regs_data-8(,%rcx,8)", \
      S(regs_data[3]) S(regs_data[4]) S(regs_data[2]))
#else
#define ABSOLUTES(X)
#endif

/* b; the offset of regs_tls from the thread pointer */
void regs_memory(const unsigned long *b, long tls);
__asm__(FUNCTION(regs_memory)
    "push %rbx; mov %rdi, %rbx; mov %rsi, %rdi; mov %rbx, %rdx; shr $3, %rdx\n"
    "mov $3, %ecx; mov $-2, %rsi\n"
    "pushq (%rbx); pushq 8(%rbx); pushq 16(%rbx); pushq 24(%rbx)\n"
    MEMORY(NOTE)
    "add $32, %rsp; pop %rbx; ret\n"
    END(regs_memory));

static void set_registers(unsigned long *v, unsigned long round)
{
    for (unsigned i = 0; i < SLOTS; i++) /* every byte differs, high bits set in every other one */
        v[i] = 0x8182838485868700UL + 0x0101010101010101UL * i * 5 + (round << 8) + i;
    put_double(&v[XMM0], -2.5 - (double)round);
    put_double(&v[R12], 1.25 + (double)round);
    put_float(&v[R13], -0.75f - (float)round);
}

#else /* i386 */

enum { EAX, EBX, ECX, EDX, ESI, EDI, EBP, ESP, XMM0, SLOTS = XMM0 + 2 };

#define LEGACY(X, R, e, w, l, h) \
    X(e, "4@%" #e " -4@%" #e " 2@%" #w " -2@%" #w " 1@%" #l " -1@%" #l " 1@%" #h " -1@%" #h \
         " 1@%" #e " -2@%" #e, \
      PARTS(v[R]) HIGH(v[R]) U((uint8_t)v[R]) S((int16_t)v[R]))
#define WITHOUT_HIGH(X, R, e, w) \
    X(e, "4@%" #e " -4@%" #e " 2@%" #w " -2@%" #w " 1@%" #e " -1@%" #e, PARTS(v[R]))

#define REGISTERS(X) \
    LEGACY(X, EAX, eax, ax, al, ah) LEGACY(X, EBX, ebx, bx, bl, bh) \
    LEGACY(X, ECX, ecx, cx, cl, ch) LEGACY(X, EDX, edx, dx, dl, dh) \
    WITHOUT_HIGH(X, ESI, esi, si) WITHOUT_HIGH(X, EDI, edi, di) \
    WITHOUT_HIGH(X, EBP, ebp, bp) WITHOUT_HIGH(X, ESP, esp, sp) \
    X(no_size, "%edi -4@%eax", U(v[EDI]) S((int)v[EAX])) \
    X(blanks, "  -4@%eax   4@%ebx ", S((int)v[EAX]) U(v[EBX])) \
    X(pair, "8@%eax -8@%edx -4@%ecx", UNKNOWN UNKNOWN S((int)v[ECX])) \
    X(unknown, "-4@%eax 4@%bogus 4@%ebx 4@no_such_symbol 4@ -4@%ecx", \
      S((int)v[EAX]) UNKNOWN U(v[EBX]) UNKNOWN UNKNOWN S((int)v[ECX])) \
    X(xmm, "8f@%xmm0 -4@%eax", D(as_double(&v[XMM0])) S((int)v[EAX])) \
    X(float_in_gpr, "4f@%esi", D(as_float(&v[ESI]))) \
    CONSTANTS(X)

void regs_registers(unsigned long v[SLOTS]);
__asm__(FUNCTION(regs_registers)
    "push %ebp; push %ebx; push %esi; push %edi; mov 20(%esp), %edi\n"
    "mov %esp, 28(%edi); movsd 32(%edi), %xmm0\n"
    "mov (%edi), %eax; mov 4(%edi), %ebx; mov 8(%edi), %ecx; mov 12(%edi), %edx\n"
    "mov 16(%edi), %esi; mov 24(%edi), %ebp; mov 20(%edi), %edi\n"
    REGISTERS(NOTE)
    "pop %edi; pop %esi; pop %ebx; pop %ebp; ret\n"
    END(regs_registers));

#define MEMORY(X) \
    X(base, "4@(%ebx) 4@4(%ebx) -4@-4(%ebx) 4@8(%ebx)", U(b[0]) U(b[1]) S((int)b[-1]) U(b[2])) \
    X(hexadecimal, "4@0x8(%ebx) 4@$0x10 -4@$-0x10", U(b[2]) U(16) S(-16)) \
    X(wide, "8@(%ebx) -8@8(%ebx)", U(*(const uint64_t *)b) S(*(const int64_t *)(b + 2))) \
    X(sums, "4@-8+3+5(%ebx) -2@-8+3+1+4(%ebx) 4@2+2(%ebx) 4@8-4(%ebx)", \
      U(b[0]) S((int16_t)b[0]) U(b[1]) U(b[1])) \
    X(index, "4@(%ebx,%ecx,4) 4@4(%ebx,%ecx,4) -4@-8(%ebx,%esi,4) 1@(%ebx,%ecx) -2@(%ebx,%ecx,2)", \
      U(b[3]) U(b[4]) S((int)b[-4]) U(((uint8_t *)b)[3]) S(((int16_t *)b)[3])) \
    X(no_base, "4@(,%edx,4) 4@4(,%edx,4) 4@(,%ebx) 4@8(,%ebx,1)", U(b[0]) U(b[1]) U(b[0]) U(b[2])) \
    X(memory_no_size, "(%ebx) 4(%ebx)", U(b[0]) U(b[1])) \
    X(float_in_memory, "8f@(%ebx) 4f@8(%ebx)", D(as_double(&b[0])) D(as_float(&b[2]))) \
    X(stack, "4@(%esp) 4@4(%esp) -4@8(%esp) 8@8(%esp)", U(b[3]) U(b[2]) S((int)b[1]) \
      U(b[1] | (uint64_t)b[0] << 32)) \
    X(big, "16@(%esp) 12@4(%esp)", HEX(((unsigned long[]){b[3], b[2], b[1], b[0]}), 16) \
      HEX(((unsigned long[]){b[2], b[1], b[0]}), 12)) \
    X(tls, "4@%gs:regs_tls@ntpoff -4@%gs:regs_tls@ntpoff+4 -4@%gs:4+regs_tls@ntpoff 4@%gs:0 " \
           "-4@%gs:(%edi) -4@%gs:4(%edi)", \
      U((unsigned long)regs_tls[0]) S(regs_tls[1]) S(regs_tls[1]) \
      U((unsigned long)__builtin_thread_pointer()) S(regs_tls[0]) S(regs_tls[1])) \
    ABSOLUTES(X)

#ifdef ABSOLUTE
#define ABSOLUTES(X) \
    X(absolute, "-4@regs_data -4@regs_data+4 -4@4+regs_data -4@regs.dotted.1 4@$regs_data", \
      S(regs_data[0]) S(regs_data[1]) S(regs_data[1]) S(regs_dotted) U((unsigned long)regs_data)) \
    X(named_index, "-4@regs_data(,%ecx,4) -4@4+regs_data(,%ecx,4) -4@regs_data-4(,%ecx,4)", \
      S(regs_data[3]) S(regs_data[4]) S(regs_data[2]))
#else
#define ABSOLUTES(X)
#endif

void regs_memory(const unsigned long *b, long tls);
__asm__(FUNCTION(regs_memory)
    "push %ebx; push %esi; push %edi; mov 16(%esp), %ebx; mov 20(%esp), %edi\n"
    "mov %ebx, %edx; shr $2, %edx; mov $3, %ecx; mov $-2, %esi\n"
    "pushl (%ebx); pushl 4(%ebx); pushl 8(%ebx); pushl 12(%ebx)\n"
    MEMORY(NOTE)
    "add $16, %esp; pop %edi; pop %esi; pop %ebx; ret\n"
    END(regs_memory));

static void set_registers(unsigned long *v, unsigned long round)
{
    for (unsigned i = 0; i < SLOTS; i++)
        v[i] = 0x81848780UL + 0x01010101UL * i * 11 + (round << 8) + i;
    put_double(&v[XMM0], -2.5 - (double)round);
    put_float(&v[ESI], -0.75f - (float)round);
}

#endif

void fire(unsigned long round)
{
    static unsigned long v[SLOTS], buffer[16] __attribute__((aligned(16)));
    unsigned long *b = buffer + 8;
    long tls = (char *)regs_tls - (char *)__builtin_thread_pointer();
    set_registers(v, round);
    for (unsigned i = 0; i < 16; i++)
        buffer[i] = (unsigned long)-1 / 7 * (i + 3) + round;
    for (unsigned i = 0; i < 8; i++)
        regs_data[i] = -(long)(round * 1000003) - (long)i - 1;
    put_double(&b[0], 6.25 + (double)round);
    put_float(&b[8 / sizeof *b], -6.25f - (float)round);
    regs_tls[0] = -(long)round - 100;
    regs_tls[1] = -(long)round - 200;
    regs_dotted = -(long)round - 300;
    FX_BARRIER();
    regs_registers(v);
    regs_memory(b, tls);
    REGISTERS(PRINT)
    MEMORY(PRINT)
}

#else

/* Other CPUs: what one register holds, in every size, and memory by way of others. */
#if __SIZEOF_LONG__ == 8
#define WORD "8@%0 -8@%0 "
#else
#define WORD "4@%0 -4@%0 "
#endif
#if defined __aarch64__
#define MEMORY "-4@[%1] -4@[%1, 4] -4@[%1, #8] -4@[%1, -4] 1@[%1, %2] -4@[%1, %2, lsl 2] " \
    "-4@[%1, %w3, sxtw 2] -4@[%1, %w2, uxtw 2]"
#define INDEXED S(b[3]) S(b[-2]) S(b[3])
#elif defined __arm__
#define MEMORY "-4@[%1] -4@[%1, #4] -4@[%1, #8] -4@[%1, #-4] 1@[%1, %2] -4@[%1, %2, lsl #2] " \
    "8@[%1, #4]"
#define INDEXED S(b[3]) U(*(const uint64_t *)(b + 1))
#elif defined __s390x__
#define MEMORY "-4@(%1) -4@4(%1) -4@8(%1) -4@-4(%1) 1@0(%2,%1) -4@1(%1,%2)"
#define INDEXED S(b[1])
#elif defined __powerpc__
#define MEMORY "-4@0(%1) -4@4(%1) -4@8(%1) -4@-4(%1) 1@%1,%2"
#define INDEXED
#else
#define MEMORY "-4@0(%1) -4@4(%1) -4@8(%1) -4@-4(%1) 1@3(%1)"
#define INDEXED
#endif

/* A register that an address may begin with, not register 0 that stands for none. */
#if defined __s390x__
#define BASE "a"
#elif defined __powerpc__
#define BASE "b"
#else
#define BASE "r"
#endif

#define U(value) fx_unsigned(value);
#define S(value) fx_signed(value);

static FX_NOINLINE void any(unsigned long value, const int32_t *b, unsigned long index, long back)
{
    FX_BARRIER();
    __asm__ __volatile__(
        HAND_NOTE(HAND_NOP, "regs", "any", WORD "4@%0 -4@%0 2@%0 -2@%0 1@%0 -1@%0 " MEMORY, "0")
        ::"r"(value), BASE(b), BASE(index), "r"(back));
    if (fx_begin("regs:any")) {
        U(value) S((long)value) U((uint32_t)value) S((int32_t)value) U((uint16_t)value)
        S((int16_t)value) U((uint8_t)value) S((int8_t)value)
        S(b[0]) S(b[1]) S(b[2]) S(b[-1]) U(((const uint8_t *)b)[3]) INDEXED
        fx_end();
    }
}

void fire(unsigned long round)
{
    static int32_t buffer[16];
    for (int i = 0; i < 16; i++)
        buffer[i] = (int32_t)(0x81828384u + 0x01020304u * (unsigned)i + round);
    any((unsigned long)0x8182838485868788ULL + round, buffer + 8, 3, -2);
}

#endif
