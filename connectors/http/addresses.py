"""The hosts that may be called, and their addresses (OWASP: server-side request forgery).

A name is resolved once, every address is checked, and the connection goes to a checked address. So DNS rebinding (a
name that later resolves to another address) has no effect.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from connectors.hosts import AllowedHost
from connectors.port import NotSent, Refused

if TYPE_CHECKING:
    import httpx

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

SETTING = "COUNTERSEAL_HTTP_HOSTS"
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# Tunnels, where somebody's relay decides on the destination (6to4, RFC 7526; Teredo). Some Pythons call them global.
_TUNNELS = (ipaddress.IPv6Network("2002::/16"), ipaddress.IPv6Network("2001::/32"))
# Networks that some Python versions call global, although they are private: addresses compatible with IPv4, local
# translation (RFC 8215), site-local ones (RFC 3879), and addresses that a cloud serves only to its own machines.
_INSIDE = tuple(
    map(ipaddress.ip_network, ("::/96", "64:ff9b:1::/48", "fec0::/10", "169.254.0.0/16", "168.63.129.16/32"))
)


class Destination(Struct, frozen=True):
    """A URL that may be called, and its checked addresses."""

    url: httpx.URL
    addresses: tuple[Address, ...]


async def destination(
    text: str, allowed: Iterable[AllowedHost], *, timeout_seconds: float, setting: str = SETTING
) -> Destination | Refused | NotSent:
    """The destination of a request to the URL ``text``; ``Refused`` names the setting or the remedy."""
    found = permitted(text, allowed, setting)
    if isinstance(found, Refused):
        return found
    url, rule = found
    name, addresses = _name(url), await _resolve(url, timeout_seconds)
    if isinstance(addresses, NotSent):
        return addresses
    closed = [address for address in addresses if not is_public(address)]
    if closed and not rule.allow_private:
        return Refused(
            "private_address",
            f"{name} resolves to {closed[0]}, which is not a public address; allow private addresses for this "
            f"host in {setting} if it is meant to be inside your network",
        )
    return Destination(url, addresses)


def permitted(
    text: str, allowed: Iterable[AllowedHost], setting: str = SETTING
) -> tuple[httpx.URL, AllowedHost] | Refused:
    """The URL and the rule that allows its host, without resolving the host; ``Refused`` names the remedy."""
    import httpx  # imported here, because the import is slow and commands that only read settings do not need it

    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, TypeError):
        return Refused("invalid_url", "the URL cannot be read")
    if url.scheme not in {"http", "https"} or not url.host:
        return Refused("invalid_url", "the URL must start with http:// or https:// and name a host")
    if url.userinfo:
        return Refused("invalid_url", "the URL must not hold a user name or password; use a header")
    name = _name(url)
    rule = next((rule for rule in allowed if rule.host.lower().strip("[]") == name and rule.port == url.port), None)
    if rule is None:
        place = name + (f":{url.port}" if url.port else "")
        return Refused("host_not_allowed", f"{place} is not among the allowed hosts; add it to {setting}")
    return url, rule


def is_public(address: Address) -> bool:
    """True if the address, and any IPv4 address embedded in it, is reachable from the whole Internet."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if any(address in tunnel for tunnel in _TUNNELS) or (inner is not None and not is_public(inner)):
            return False
    inside = any(address in network for network in _INSIDE)
    return address.is_global and not address.is_multicast and not inside


def _name(url: httpx.URL) -> str:
    """The host as sent on the wire: lower case, IDNA."""
    return url.raw_host.decode("ascii").lower().strip("[]")


async def _resolve(url: httpx.URL, timeout_seconds: float) -> tuple[Address, ...] | NotSent:
    name = _name(url)
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        async with asyncio.timeout(timeout_seconds):
            found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except TimeoutError:
        return NotSent(f"{name} was not resolved in time")
    except (OSError, UnicodeError) as error:
        return NotSent(f"{name} does not resolve: {error}")
    addresses = tuple(dict.fromkeys(ipaddress.ip_address(str(entry[4][0]).split("%")[0]) for entry in found))
    return addresses or NotSent(f"{name} has no address")
