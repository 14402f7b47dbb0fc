"""Help of the commands that print or aggregate hits."""

from __future__ import annotations

__all__ = ("EXAMPLES", "PROBES")

PROBES = "A probe is provider:name, PATH:provider:name, or uprobe:TARGET:FUNCTION."

EXAMPLES = {
    "trace": """
usdt trace -p 1234 'python:gc__start(arg0)'
usdt trace -p 1234 'postgresql:query__start(str(arg0))'
usdt trace -c './server --port 80' 'myapp:request(str(arg1), arg2 > 100)'
usdt trace /usr/bin/python3.11:python:gc__start
usdt trace -p 1234 'uprobe:libc:getenv(str(arg0), return)'
""",
    "count": """
usdt count -p 1234 'postgresql:*'
usdt count -a '*:*' -d 10 --top 20
usdt count -p 1234 'postgresql:query__start' --by 'str(arg0)' --interval 1
usdt count -a uprobe:libc:malloc --by comm
""",
    "hist": """
usdt hist -p 1234 'myapp:request(arg2)'
usdt hist -p 1234 'myapp:request(arg2, arg1 == 7)' --linear 0:1000:50 --by comm
""",
    "stats": """
usdt stats -p 1234 'myapp:request(arg2)' --by 'str(arg1)'
""",
    "latency": """
usdt latency -p 1234 python:gc__start python:gc__done
usdt latency -p 1234 myapp:begin myapp:done --key arg0 --unit us --by comm
""",
    "heatmap": """
usdt heatmap -p 1234 python:gc__start python:gc__done
usdt heatmap -p 1234 'myapp:request(arg2)' -i 0.5 -d 60 -o request.svg
""",
}
