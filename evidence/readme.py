"""The README.txt of every bundle: how to check it without us, and what that does not prove."""

from __future__ import annotations

README = """\
Evidence of one run: {run}
Tenant: {tenant}
Signing key (SHA-256 of its DER form): {key_id}

This archive says what an automation proposed, what policy decided, who approved what, what was
performed, and what came of it. It holds names, times, digests and salted commitments. Values are in it
only where disclosures.txt opens a commitment, or a card or a reason is shown.


CHECK IT

With Counterseal's verifier, offline, with a key that you got on another way than this archive:

    counterseal evidence verify THIS.zip --key the-key-you-trust.pem
    python -m evidence.verify THIS.zip --key the-key-you-trust.pem

Without any software of ours, in the directory into which you extracted it:

1. The files are the files that the checksums name.

    sha256sum -c SHA256SUMS

2. The statement is signed. It lists every other file with its SHA-256, SHA256SUMS included.

    python3 - <<'END'
    import base64, hashlib, json, pathlib
    envelope = json.loads(pathlib.Path("bundle.intoto.dsse.json").read_bytes())
    kind, body = envelope["payloadType"].encode(), base64.b64decode(envelope["payload"], validate=True)
    pathlib.Path("../pae").write_bytes(b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(body), body))
    pathlib.Path("../sig").write_bytes(base64.b64decode(envelope["signatures"][0]["sig"], validate=True))
    listed = {{s["name"]: s["digest"]["sha256"] for s in json.loads(body)["subject"]}}
    found = {{str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in pathlib.Path(".").rglob("*") if p.is_file()}}
    del found["bundle.intoto.dsse.json"]
    print("files match the statement" if found == listed else "FILES DIFFER FROM THE STATEMENT")
    END
    {openssl}

   Use your own copy of the key. public-key.pem in this archive says only which key was used; whoever
   can replace the archive can replace that file too.

3. The events are one unbroken chain. run-head.json says how many lines each append has; an append makes
   the head the SHA-256 of the head before and of the SHA-256 of its lines.

    python3 - <<'END'
    import hashlib, json
    told = json.load(open("run-head.json"))
    head, count = hashlib.sha256(b"run:" + told["run"].encode()).digest(), 0
    with open("events.jsonl", "rb") as events:
        for size in told["appends"]:
            lines = b"".join(events.readline() for _ in range(size))
            head = hashlib.sha256(head + hashlib.sha256(lines[:-1]).digest()).digest()
            count += lines.count(b"\\n")
        whole = not events.read(1) and (told["count"], told["head"]) == (count, head.hex())
    print("chain ok" if whole else "CHAIN DOES NOT END AT ITS HEAD")
    END

4. A line of disclosures.txt, and a text named "..._disclosure", is base64url without padding of
   [salt, path, value]. The SHA-256 of the decoded bytes is the commitment, and stands beside the same
   path in events.jsonl; that of a card stands as "card" in its approval.requested.


FILES

bundle.intoto.dsse.json    the signed statement (DSSE v1 around an in-toto Statement v1)
SHA256SUMS                 checksums of all other files but that statement
events.jsonl               the audit chain, one canonical JSON line (RFC 8785) per fact
run-head.json              the chain's length and head, and the number of lines of each append
run.json                   the run: ids, times, status, by whom and why it was canceled, names of inputs
                           and outputs with commitments
workflow/ policy/          the exact texts whose SHA-256 the events name
approvals/                 the question as people saw it, for whom and of whom it was asked, and their votes
                           with the reasons; what has a disclosure beside it is what the events commit to
receipts/                  one per side effect: what was attempted, what came of it, how to reverse it; and what
                           was learned of it too late (action.late), also after the run had closed: then this
                           is a later edition of an archive whose events are the beginning of these
decisions.json             every policy decision; derived from the events
costs.json                 model use per provider and model; derived from the events
checkpoints.json           the run's checkpoints with digests; derived from the events
disclosures.txt            opened commitments
public-key.pem             the key that the statement claims


WHAT THIS DOES NOT PROVE

- That everything was recorded. It is tamper evident from the moment of recording; an operator who
  never recorded something, or invented it at the time, is not found by cryptography.
- That the times are true: they are those of the runtime's database.
- That this is the only or the newest version of the run's history. This archive holds no proof from a
  transparency log.
- What happened inside the target systems. A receipt holds what they answered; ask them for their own log.
- Who a person is beyond the identity that the runtime or Slack established.
"""

_OPENSSL = {
    "ed25519": "openssl pkeyutl -verify -pubin -inkey public-key.pem -rawin -in ../pae -sigfile ../sig",
    "ecdsa-p256-sha256": "openssl dgst -sha256 -verify public-key.pem -signature ../sig ../pae",
}


def readme(*, run: str, tenant: str, key_id: str, algorithm: str) -> str:
    """The text for one bundle."""
    return README.format(run=run, tenant=tenant, key_id=key_id, openssl=_OPENSSL[algorithm])
