"""How metrics are written: for scrapers, and for a collector of OpenTelemetry.

families   values → families of samples, as Prometheus has them
text       families → the text formats
protobuf   families → messages in the format of Prometheus, with native histograms
exposition the format that a scraper prefers
otlp       messages to a collector of OpenTelemetry
"""
