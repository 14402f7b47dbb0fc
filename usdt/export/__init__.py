"""Standing questions: probes to metrics for good, ``usdt export``.

config     the TOML file → metrics; checks everything that can be checked without tracing
table      access to a table of the file, with errors that say what to write
endpoints  where the exporter listens, and where it sends
attached   probes in the processes that targets select, as these start and end
group      metrics that one session can compute
spans      spans that are sent as traces
buckets    those of a histogram
values     rows of the kernel → values by label; bounded labels
formats/   how metrics are written: text, protobuf, OpenTelemetry
server     HTTP: /metrics and /-/healthy
exporter   the loop: attach, look for new processes and files, reload, end
systemd    messages to the service manager

This package imports no other module at import time.
"""
