"""USDT probes for Python programs, visible to every USDT tool, with no cost until traced.

from usdt import Provider

shop = Provider("shop")
order = shop.probe("order", int, str)
shop.load()

if order.enabled:  # the probe is traced: compute the arguments only now
    order.fire(42, describe(cart))

usdt trace -p PID 'shop:order(arg0, str(arg1))'

provider, probe, span    what programs use
image, loading           the ELF file with the probes; mapping it
"""

from __future__ import annotations

from usdt.provider.probe import FiredProbe
from usdt.provider.provider import Provider, ProviderError
from usdt.provider.span import Span

__all__ = ("FiredProbe", "Provider", "ProviderError", "Span")
