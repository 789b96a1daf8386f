"""The places where a log is published: a folder, or a public web address.

The address is https, or http of this machine. Each file is bounded in size and time. No redirect is followed, so that
the log is read from the very address that a person gave.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import orjson
from msgspec import Struct

from app import logbook
from core.canonical import JsonObject, clean
from core.errors import InputError, NotFoundError, TransportError
from evidence.log import tree
from evidence.log.periods import Checked
from evidence.log.published import Published, Source, read
from evidence.log.rings import Ring
from evidence.log.witness import Policy

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_SECONDS = 10.0
# The time after which reading a slow file is given up.
FILE_SECONDS = 30.0
_REDIRECTS, _GONE, _REFUSED, _BUSY = range(300, 400), {404, 410}, {401, 403}, {408, 425, 429, *range(500, 600)}
_PAGE = "answers with a web page, not with a file of a log"
_ADDRESS = "Give the address below which `checkpoint` and `tile/` lie."


class FolderLog(Struct, frozen=True):
    """A log in a folder, as `log sign` writes it or `aws s3 sync` copies it."""

    folder: Path

    @property
    def where(self) -> str:
        """See ``Source.where``."""
        return str(self.folder)

    async def read(self, path: str, most: int) -> bytes:
        """See ``Source.read``."""
        place = self.folder / path
        if not place.is_file():
            raise NotFoundError(f"{place} is not there.", remedy=_ADDRESS)
        return await asyncio.to_thread(logbook.read, place, most)


class WebLog(Struct, frozen=True):
    """A log at a web address."""

    address: str
    client: httpx.AsyncClient

    @property
    def where(self) -> str:
        """See ``Source.where``."""
        return self.address

    async def read(self, path: str, most: int) -> bytes:
        """See ``Source.read``."""
        url = f"{self.address}/{path}"
        try:
            async with asyncio.timeout(FILE_SECONDS), self.client.stream("GET", url) as answer:
                _check(answer, url)
                found = bytearray()
                async for part in answer.aiter_raw():
                    found += part
                    if len(found) > most:
                        raise InputError(f"is larger than {most} bytes", where=url)
                return bytes(found)
        except TimeoutError:
            raise TransportError(f"{url} was not read within {FILE_SECONDS:.0f} seconds.") from None
        except httpx.RemoteProtocolError:
            raise TransportError(f"{url} ended before it was whole.", remedy="Try again.") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise TransportError(f"{url} cannot be reached: {type(error).__name__}.") from None


def _check(answer: httpx.Response, url: str) -> None:
    """Refuse every answer that is not an unmodified file."""
    status, headers = answer.status_code, answer.headers
    if status in _REDIRECTS:
        target = clean(headers.get("location", "nowhere"), 200)
        raise InputError(f"redirects to {target}, which is not followed", where=url, remedy="Give that address itself.")
    if status in _GONE:
        raise NotFoundError(f"{url} is not there ({status}).", remedy=_ADDRESS)
    if status in _BUSY:
        raise TransportError(f"{url} answered {status}.", remedy="Try again later.")
    if status in _REFUSED:
        raise InputError(f"answered {status}", where=url, remedy="The log has to be public, or a copy of it local.")
    if status != httpx.codes.OK:
        raise InputError(f"answered {status}", where=url, remedy=_ADDRESS)
    if headers.get("content-type", "").partition(";")[0].strip().lower() in ("text/html", "application/xhtml+xml"):
        raise InputError(_PAGE, where=url, remedy=_ADDRESS)
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise InputError("answers in another coding than it was asked for", where=url, remedy="Serve it uncompressed.")


@asynccontextmanager
async def source_of(place: str) -> AsyncIterator[Source]:
    """The log at this place: a web address, or a folder. ``InputError`` for an address that is not safe to read."""
    if "://" not in place:
        yield FolderLog(Path(place))
        return
    async with httpx.AsyncClient(
        timeout=_SECONDS, trust_env=False, follow_redirects=False, headers={"Accept-Encoding": "identity"}
    ) as client:
        yield WebLog(_address(place), client)


def _address(place: str) -> str:
    try:
        parts = urlsplit(place)
        own, host = parts.scheme == "http" and parts.hostname in _LOOPBACK, parts.hostname
        _ = parts.port
    except ValueError:
        own, host, parts = False, None, urlsplit("")
    if not host or not (parts.scheme == "https" or own):
        remedy = "Give https://…, http:// of this machine, or a folder."
        raise InputError("is no address of a log", where=clean(place, 200), remedy=remedy)
    if parts.username is not None or parts.query or parts.fragment:
        words = "holds a name, a query or a fragment, which an address of a log has not"
        raise InputError(words, where=f"{parts.scheme}://{host}", remedy=_ADDRESS)
    return place.rstrip("/")


async def whole(place: str, ring: Ring, tenant: str) -> tuple[Published, list[str]]:
    """Read the whole log of this tenant at this place, and list each problem in words."""
    async with source_of(place) as source:
        return await read(source, ring, f"{ring.first.name}/{tenant}")


def checked(
    log: Published, problems: Sequence[str], ring: Ring, after: Sequence[Path], policy: Policy
) -> tuple[JsonObject, list[str]]:
    """The result for a log that was read: its description, and its problems, also those that kept checkpoints show."""
    found = [*problems]
    for path in after:
        old, _ = ring.opened(logbook.read(path), str(path))
        if old.origin != log.checkpoint.origin:
            found.append(f"{path}: it is of the log {old.origin}")
        elif old.size > log.checkpoint.size:
            words = f"{old.size} leaves were signed, and the published log has {log.checkpoint.size}"
            found.append(f"{path}: {words}: its end was cut off, or it is an old copy")
        elif not problems and tree.root_of(log.hashes[: old.size]) != old.root:
            found.append(f"{path}: the published log does not begin with what this checkpoint signed: it is another")
    times = policy.times(log.note)
    newest = max((str(orjson.loads(leaf)["ts"]) for leaf in log.leaves), default="") if not problems else ""
    document: JsonObject = {
        "log": log.checkpoint.origin, "size": log.checkpoint.size, "root": log.checkpoint.root.hex(),
        "newest": newest, "cosigned": len(times), "witnesses": dict(sorted(times.items())),
    }  # fmt: skip
    return document, found


async def with_period(place: str, ring: Ring, period: Checked) -> list[str]:
    """Compare the leaves of a period's files with those that are published, and return each problem in words."""
    async with source_of(place) as source:
        log, problems = await read(source, ring, period.origin)
    shorter = min(log.checkpoint.size, period.size)
    if not problems and [*log.leaves[:shorter]] != [*period.leaves[:shorter]]:
        problems.append(f"{place}: the published log has other leaves than the period: they are two histories")
    if log.checkpoint.size < period.size:
        words = f"{period.size} leaves are in the period, and {log.checkpoint.size} are published"
        problems.append(f"{place}: {words}: the copy is old, or was cut off")
    return problems
