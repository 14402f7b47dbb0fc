/* Writes down every hit of a probe: what usdt.bpf.h says of it.
 *
 * With -DOWN_USDT, usdt_own.bpf.h stands in for libbpf's header: the layout that libbpf has since
 * 1.7, which distributions do not have yet. */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#ifdef OWN_USDT
#include "usdt_own.bpf.h"
#else
#include <bpf/usdt.bpf.h>
#endif

#ifdef OWN_USDT
#define size_of_argument bpf_usdt_arg_size
#else
/* libbpf's own is newer than the header that distributions have: the same from the same map. */
static __always_inline int size_of_argument(struct pt_regs *ctx, __u64 number)
{
    int id = __bpf_usdt_spec_id(ctx);
    struct __bpf_usdt_spec *spec = bpf_map_lookup_elem(&__bpf_usdt_specs, &id);

    if (!spec || number >= BPF_USDT_MAX_ARG_CNT || (int)number >= spec->arg_cnt)
        return -2;
    return (64 - spec->args[number].arg_bitshift) >> 3;
}
#endif

#define MOST 12
#define ROOM 8192

struct event {
    __u64 cookie;
    __s32 pid;
    __s32 count;
    __s32 results[MOST + 1];
    __s32 sizes[MOST + 1];
    __s32 ip_low;
    __s64 values[MOST + 1];
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} hits SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, ROOM);
    __type(key, __u32);
    __type(value, struct event);
} events SEC(".maps");

SEC("usdt")
int on_hit(struct pt_regs *ctx)
{
    __u32 key = 0;
    __u64 *number = bpf_map_lookup_elem(&hits, &key);
    if (!number)
        return 0;
    key = __sync_fetch_and_add(number, 1);
    struct event *event = bpf_map_lookup_elem(&events, &key);
    if (!event)
        return 0;
    event->cookie = bpf_usdt_cookie(ctx);
    event->pid = bpf_get_current_pid_tgid() >> 32;
    event->count = bpf_usdt_arg_cnt(ctx);
    event->ip_low = PT_REGS_IP(ctx);
    for (int index = 0; index <= MOST; index++) {
        long value = 0;
        event->results[index] = bpf_usdt_arg(ctx, index, &value);
        event->values[index] = value;
        event->sizes[index] = size_of_argument(ctx, index);
    }
    return 0;
}

char LICENSE[] SEC("license") = "GPL";
