/* The maps and structures of libbpf 1.7's USDT support, as far as events.bpf.c needs them.
 *
 * With -DBY_ADDRESS, as on a kernel without BPF cookies. */
#ifndef SPECS
#define SPECS 256
#endif

struct argument {
    __u64 number;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    __u32 kind : 8;
    __u16 index : 12, shift : 4;
    __u8 reserved : 8;
#else
    __u8 reserved : 8;
    __u16 index : 12, shift : 4;
    __u32 kind : 8;
#endif
    short base;
    bool is_signed;
    char unused_bits;
};

struct site {
    struct argument arguments[12];
    __u64 cookie;
    short count;
};

_Static_assert(sizeof(struct site) == 304, "the layout of libbpf 1.7");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, SPECS);
    __type(key, int);
    __type(value, struct site);
} __bpf_usdt_specs SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 4 * SPECS);
    __type(key, long);
    __type(value, __u32);
} __bpf_usdt_ip_to_spec_id SEC(".maps");

static __always_inline struct site *site_of(struct pt_regs *ctx)
{
#ifdef BY_ADDRESS
    long address = PT_REGS_IP(ctx);
    int *found = bpf_map_lookup_elem(&__bpf_usdt_ip_to_spec_id, &address);
    int id = found ? *found : -1;
#else
    int id = bpf_get_attach_cookie(ctx);
#endif
    return bpf_map_lookup_elem(&__bpf_usdt_specs, &id);
}

static __always_inline int bpf_usdt_arg_cnt(struct pt_regs *ctx)
{
    struct site *site = site_of(ctx);
    return site ? site->count : -3;
}

static __always_inline __u64 bpf_usdt_cookie(struct pt_regs *ctx)
{
    struct site *site = site_of(ctx);
    return site ? site->cookie : 0;
}

static __always_inline int bpf_usdt_arg_size(struct pt_regs *ctx, __u32 number)
{
    struct site *site = site_of(ctx);

    if (!site || number >= 12 || (int)number >= site->count)
        return -2;
    return (64 - site->arguments[number].unused_bits) >> 3;
}

static __noinline int bpf_usdt_arg(struct pt_regs *ctx, __u32 number, long *result)
{
    struct site *site = site_of(ctx);
    unsigned long value = 0, index = 0;

    if (!result)
        return -22;
    if (!site || number >= 12 || (int)number >= site->count)
        return -2;
    struct argument *argument = &site->arguments[number];
    if (argument->kind == 0) {
        value = argument->number;
    } else {
        int error = bpf_probe_read_kernel(&value, sizeof(value), (void *)ctx + argument->base);
        if (!error && argument->kind == 3)
            error = bpf_probe_read_kernel(&index, sizeof(index), (void *)ctx + argument->index);
        if (argument->kind > 3)
            error = -22;
        if (!error && argument->kind > 1)
            error = bpf_probe_read_user(
                &value, sizeof(value),
                (void *)(value + (index << argument->shift) + argument->number));
        if (error)
            return error;
    }
    value <<= argument->unused_bits & 63;
    if (argument->is_signed)
        *result = (long)value >> (argument->unused_bits & 63);
    else
        *result = value >> (argument->unused_bits & 63);
    return 0;
}
