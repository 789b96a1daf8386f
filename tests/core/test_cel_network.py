"""Addresses and networks in expressions: every kind of address, at both sides of each limit."""

from __future__ import annotations

import pytest

from core.errors import ExpressionError
from core.expressions import Environment

ENV = Environment({"a": "string", "b": "string"})
KINDS = ("isUnspecified", "isLoopback", "isGlobalUnicast", "isLinkLocalUnicast", "isLinkLocalMulticast")
ADDRESSES = {
    4: {
        "isUnspecified": ("0.0.0.0",),
        "isLoopback": ("127.0.0.0", "127.255.255.255"),
        "isLinkLocalUnicast": ("169.254.0.0", "169.254.255.255"),
        "isLinkLocalMulticast": ("224.0.0.0", "224.0.0.255"),
        "isGlobalUnicast": (
            *("0.0.0.1", "126.255.255.255", "128.0.0.0", "10.1.2.3", "169.253.255.255", "169.255.0.0"),
            *("223.255.255.255", "240.0.0.0", "255.255.255.254"),
        ),
        "none": ("224.0.1.0", "239.255.255.255", "255.255.255.255"),
    },
    6: {
        "isUnspecified": ("::",),
        "isLoopback": ("::1",),
        "isLinkLocalUnicast": ("fe80::", "febf:ffff::1"),
        "isLinkLocalMulticast": ("ff02::1", "ff12::1"),
        "isGlobalUnicast": ("::2", "fe7f::1", "fec0::", "fe02::1", "fc00::1", "2001:db8::1"),
        "none": ("ff01::1", "ff05::1", "ff00::", "ff0a::1", "ff0e::1", "ff03::1", "ff06::1", "ff00:2::1"),
    },
}


def give(source: str, a: str, b: str = "") -> object:
    return ENV.compile(source).value(ENV.bind({"a": a, "b": b}))


@pytest.mark.parametrize("family", ADDRESSES)
def test_an_address_is_of_its_kind_and_of_no_other(family: int) -> None:
    for kind, addresses in ADDRESSES[family].items():
        for address in addresses:
            assert give("ip(a).family()", address) == family
            found = [name for name in KINDS if give(f"ip(a).{name}()", address)]
            assert found == [name for name in KINDS if name == kind], address


@pytest.mark.parametrize(
    ("network", "inside", "outside"),
    [
        ("10.1.0.0/16", ("10.1.0.0", "10.1.255.255"), ("10.0.255.255", "10.2.0.0", "::10.1.0.0")),
        ("10.1.2.3/16", ("10.1.0.0", "10.1.255.255"), ("10.2.0.0",)),
        ("10.1.2.3/32", ("10.1.2.3",), ("10.1.2.2", "10.1.2.4")),
        ("10.1.2.3/31", ("10.1.2.2", "10.1.2.3"), ("10.1.2.1", "10.1.2.4")),
        ("0.0.0.0/0", ("0.0.0.0", "255.255.255.255"), ("::1",)),
        ("2001:db8::/32", ("2001:db8::", "2001:db8:ffff::1"), ("2001:db9::", "10.1.2.3")),
        ("::/0", ("::1", "ffff::"), ("0.0.0.0",)),
    ],
)
def test_a_network_holds_its_first_and_its_last_address_and_no_other(
    network: str, inside: tuple[str, ...], outside: tuple[str, ...]
) -> None:
    for address in (*inside, *outside):
        for given in ("b", "ip(b)"):
            assert give(f"cidr(a).containsIP({given})", network, address) is (address in inside), address


@pytest.mark.parametrize(
    ("network", "other", "held"),
    [
        ("10.1.0.0/16", "10.1.0.0/16", True),
        ("10.1.0.0/16", "10.1.128.0/17", True),
        ("10.1.0.0/16", "10.1.2.3/32", True),
        ("10.1.0.0/16", "10.0.0.0/15", False),
        ("10.1.0.0/16", "10.1.0.0/15", False),
        ("10.1.0.0/16", "10.2.0.0/17", False),
        ("0.0.0.0/0", "10.0.0.0/8", True),
        ("0.0.0.0/0", "::/0", False),
        ("::/0", "2001:db8::/32", True),
    ],
)
def test_a_network_covers_what_is_no_wider(network: str, other: str, held: bool) -> None:
    for given in ("b", "cidr(b)"):
        assert give(f"cidr(a).containsCIDR({given})", network, other) is held


@pytest.mark.parametrize(
    ("source", "given", "value"),
    [
        ("string(ip(a))", "2001:DB8:0::1", "2001:db8::1"),
        ("ip.isCanonical(a)", "2001:db8::1", True),
        ("ip.isCanonical(a)", "2001:DB8::1", False),
        ("ip.isCanonical(a)", "2001:db8:0::1", False),
        ("ip.isCanonical(a)", "10.1.2.3", True),
        ("string(cidr(a))", "10.9.8.7/8", "10.9.8.7/8"),
        ("string(cidr(a))", "2001:DB8::1/32", "2001:db8::1/32"),
        ("string(cidr(a).masked())", "10.9.8.7/8", "10.0.0.0/8"),
        ("string(cidr(a).ip())", "10.9.8.7/8", "10.9.8.7"),
        ("cidr(a).prefixLength()", "10.9.8.7/0", 0),
        ("cidr(a).prefixLength()", "2001:db8::/128", 128),
        *(
            ("isIP(a)", text, held)
            for text, held in (("10.1.2.3", True), ("::1", True), ("10.1.2", False), ("", False))
        ),
        *(("isIP(a)", text, False) for text in ("10.1.2.3/8", "fe80::1%eth0", "::ffff:10.0.0.1", "010.1.2.3", " ::1")),
        *(("isCIDR(a)", text, True) for text in ("10.1.2.3/8", "10.0.0.0/0", "10.0.0.0/32", "::/0", "::/128")),
        *(("isCIDR(a)", text, False) for text in ("10.1.2.3", "10.0.0.0/33", "::/129", "10.0.0.0/08", "10.0.0.0/00")),
        *(("isCIDR(a)", text, False) for text in ("10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/²", "::ffff:10.0.0.0/120")),
    ],
)
def test_forms_of_addresses_and_networks(source: str, given: str, value: object) -> None:
    found = give(source, given)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("source", "given", "words"),
    [
        ("ip(a).family()", "fe80::1%eth0", "'fe80::1%eth0' has a zone"),
        ("ip(a).family()", "::ffff:10.0.0.1", "'::ffff:10.0.0.1' is an IPv4 address inside an IPv6 address"),
        ("cidr(a).prefixLength()", "10.0.0.0", "'10.0.0.0' is no network such as 10.0.0.0/8"),
        ("cidr(a).prefixLength()", "10.0.0.0/08", "'10.0.0.0/08' is no network such as 10.0.0.0/8"),
    ],
)
def test_what_is_no_address_is_an_error_that_says_why(source: str, given: str, words: str) -> None:
    with pytest.raises(ExpressionError) as failed:
        give(source, given)
    assert words in str(failed.value)
