"""Network functions for CEL, by Python's ``ipaddress``: ``cidr('10.0.0.0/8').containsIP('10.1.2.3')``.

The engine lets our functions take and return plain values only. So an address is a map with a boolean key, which no
author's data has. A network is a list with one map of that kind. Neither can be the result of an expression. A text
that is no address or network is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, TypeAlias

from cel_expr_python import cel

_T = cel.Type
_IP = _T.Map(_T.BOOL, _T.STRING)
_CIDR = _T.List(_IP)
TYPE_NAME = "map<bool, string>"
"""The engine's name for the type of an address; no other value in an expression has this type."""

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
_Parsed: TypeAlias = dict[bool, str]


def _address(text: str) -> Address:
    if "%" in text:
        raise ValueError(f"{text!r} has a zone")
    found = ip_address(text)
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        raise ValueError(f"{text!r} is an IPv4 address inside an IPv6 address")
    return found


def _network(text: str) -> tuple[Address, Network]:
    """The address and the network of ``10.0.0.1/8``. The prefix length must be decimal digits, not a netmask."""
    address, slash, length = text.partition("/")
    if not slash or not (length.isascii() and length.isdecimal()) or (length != "0" and length.startswith("0")):
        raise ValueError(f"{text!r} is no network such as 10.0.0.0/8")
    return _address(address), ip_network(text, strict=False)


def _ip(address: Address) -> _Parsed:
    return {True: str(address)}


def _of_ip(parsed: _Parsed) -> Address:
    return _address(parsed[True])


def _of_cidr(parsed: list[_Parsed]) -> tuple[Address, Network]:
    return _network(parsed[0][True])


def _cidr(text: str) -> list[_Parsed]:
    address, network = _network(text)
    return [{True: f"{address}/{network.prefixlen}"}]


def _holds(read: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            read(text)
        except ValueError:
            return False
        return True

    return check


def _contains(parsed: list[_Parsed], address: Address) -> bool:
    return address in _of_cidr(parsed)[1]


def _covers(parsed: list[_Parsed], other: Network) -> bool:
    network = _of_cidr(parsed)[1]
    # If two networks share an address, the one with the shorter or equal prefix contains the other.
    return other.prefixlen >= network.prefixlen and other.network_address in network


def _unicast(found: Address) -> bool:
    broadcast = found.version == 4 and str(found) == "255.255.255.255"
    return not (found.is_unspecified or found.is_loopback or found.is_multicast or found.is_link_local or broadcast)


def _link_local_multicast(found: Address) -> bool:
    if found.version == 4:
        return found in ip_network("224.0.0.0/24")
    return found.is_multicast and int(found) >> 112 & 0xF == 2


_METHODS: dict[str, tuple[Any, Callable[[Address], Any]]] = {
    "family": (_T.INT, lambda found: found.version),
    "isUnspecified": (_T.BOOL, lambda found: found.is_unspecified),
    "isLoopback": (_T.BOOL, lambda found: found.is_loopback),
    "isGlobalUnicast": (_T.BOOL, _unicast),
    "isLinkLocalUnicast": (_T.BOOL, lambda found: found.is_link_local),
    "isLinkLocalMulticast": (_T.BOOL, _link_local_multicast),
}

_FUNCTIONS: tuple[tuple[str, list[Any], bool, Any, Callable[..., Any]], ...] = (
    ("ip", [_T.STRING], False, _IP, lambda text: _ip(_address(text))),
    ("ip", [_CIDR], True, _IP, lambda parsed: _ip(_of_cidr(parsed)[0])),
    ("isIP", [_T.STRING], False, _T.BOOL, _holds(_address)),
    ("ip.isCanonical", [_T.STRING], False, _T.BOOL, lambda text: str(_address(text)) == text),
    ("cidr", [_T.STRING], False, _CIDR, _cidr),
    ("isCIDR", [_T.STRING], False, _T.BOOL, _holds(_network)),
    ("containsIP", [_CIDR, _T.STRING], True, _T.BOOL, lambda parsed, text: _contains(parsed, _address(text))),
    ("containsIP", [_CIDR, _IP], True, _T.BOOL, lambda parsed, found: _contains(parsed, _of_ip(found))),
    ("containsCIDR", [_CIDR, _T.STRING], True, _T.BOOL, lambda parsed, text: _covers(parsed, _network(text)[1])),
    ("containsCIDR", [_CIDR, _CIDR], True, _T.BOOL, lambda parsed, other: _covers(parsed, _of_cidr(other)[1])),
    ("masked", [_CIDR], True, _CIDR, lambda parsed: _cidr(str(_of_cidr(parsed)[1]))),
    ("prefixLength", [_CIDR], True, _T.INT, lambda parsed: _of_cidr(parsed)[1].prefixlen),
    ("string", [_IP], False, _T.STRING, lambda parsed: str(_of_ip(parsed))),
    ("string", [_CIDR], False, _T.STRING, lambda parsed: parsed[0][True]),
    *((name, [_IP], True, kind, lambda parsed, ask=ask: ask(_of_ip(parsed))) for name, (kind, ask) in _METHODS.items()),
)


def extension() -> Any:
    """The functions as an extension of the engine."""
    overloads: dict[str, list[Any]] = {}
    for number, (name, parameters, member, kind, call) in enumerate(_FUNCTIONS):
        given = cel.Overload(f"counterseal_{number}", kind, parameters, member, call)
        overloads.setdefault(name, []).append(given)
    return cel.CelExtension("counterseal.net", [cel.FunctionDecl(name, found) for name, found in overloads.items()])
