"""Help of the commands that print or aggregate hits."""

from __future__ import annotations

__all__ = ("EXAMPLES", "PROBES")

PROBES = "A probe is FUNCTION, tracepoint:CATEGORY:EVENT, rawtp:EVENT, or syscall:NAME."

EXAMPLES = {
    "trace": """
kprobe trace 'ip_send_skb(skb->len, return)'
kprobe trace 'do_sys_openat2(return < 0, dfd, filename, return)'
kprobe trace 'tracepoint:sched:sched_process_exec(filename)'
kprobe trace 'syscall:openat(filename, flags, return)' -p 1234
kprobe trace 'syscall:open*(return < 0)'
kprobe trace 'rawtp:netif_receive_skb(skb->dev->name == "lo", skb->len)'
""",
    "count": """
kprobe count 'syscall:*' -c 'ls -l'
kprobe count 'tracepoint:sched:*' -d 5 --top 10
kprobe count tracepoint:skb:kfree_skb --by 'location,reason' -i 1
""",
    "hist": """
kprobe hist 'syscall:write(count)' --by comm
kprobe hist 'tracepoint:block:block_rq_issue(bytes)' -d 10
""",
    "stats": """
kprobe stats 'syscall:read(return, return >= 0)' --by comm
kprobe stats 'tracepoint:net:net_dev_queue(len)' --by name
""",
    "latency": """
kprobe latency vfs_fsync_range --unit us --by comm
kprobe latency syscall:fsync 'syscall:fsync(return)'
kprobe latency rawtp:block_rq_issue rawtp:block_rq_complete --key rq --unit us
""",
    "heatmap": """
kprobe heatmap rawtp:block_rq_issue rawtp:block_rq_complete --key rq --unit us
kprobe heatmap 'syscall:write(count)' -i 0.5 -d 60 -o writes.svg
""",
}
