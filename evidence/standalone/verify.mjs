#!/usr/bin/env node
// Verifies evidence bundles of Counterseal (formats 3 and 4), offline, in one file. It needs Node 20 and no package.
//
//     node verify.mjs BUNDLE.zip [--key PEM]... [--fingerprint SHA256]... [--run ID] [--tenant NAME] [--sha256 HEX]
//         [--disclosed FILE]... [--log-key KEY]... [--allow-unfinished] [--json]
//
// It was written from docs/evidence-format.md, apart from the verifier in Python, so that each shows the faults of the
// other. It judges the history. It does not evaluate rules, compile texts, or recompute origins, and says so.
//
// Exit codes: 0 all checks passed, and a trusted key has signed; 1 a check failed; 2 there is nothing to verify, or it is
// not of this format; 6 nothing failed, and nobody has said that the key is to be trusted.

import { createHash, createPublicKey, verify as verifySignature } from "node:crypto";
import { existsSync, readFileSync, realpathSync, statSync } from "node:fs";
import { pathToFileURL } from "node:url";

class Fault extends Error {}
class Unusable extends Error {}

// -- canonical JSON (RFC 8785) -----------------------------------------------------------------------------------------

const DEPTH_MAX = 32;
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isText = (value) => typeof value === "string";
const sha256 = (data) => createHash("sha256").update(data).digest();
const hex = (data) => sha256(data).toString("hex");

function canonical(value) {
  if (value === undefined) return "null";
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (isObject(value)) {
    const names = Object.keys(value).sort(); // by UTF-16 units, as RFC 8785 says
    return `{${names.map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join(",")}}`;
  }
  if (isText(value) && !value.isWellFormed()) throw new Fault("a text holds half a character");
  return JSON.stringify(value);
}

const same = (one, other) => canonical(one ?? null) === canonical(other ?? null);
const digest = (value) => hex(Buffer.from(canonical(value)));

// Parses UTF-8 that has exactly one spelling: whatever is ambiguous does not survive the round trip.
function parsed(data, where) {
  let text, value;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
    value = JSON.parse(text);
  } catch {
    throw new Fault(`${where}: is no JSON`);
  }
  if (depth(value) > DEPTH_MAX) throw new Fault(`${where}: is nested deeper than ${DEPTH_MAX} levels`);
  if (canonical(value) !== text) throw new Fault(`${where}: is not spelled canonically`);
  return value;
}

function depth(value) {
  if (value === null || typeof value !== "object") return 0;
  return 1 + Object.values(value).reduce((most, each) => Math.max(most, depth(each)), 0);
}

// True for texts, booleans, null and integers below 2^53, under ASCII keys.
function plain(value) {
  if (Array.isArray(value)) return value.every(plain);
  if (isObject(value)) return Object.entries(value).every(([name, each]) => /^[\x00-\x7f]*$/.test(name) && plain(each));
  return typeof value !== "number" || Number.isSafeInteger(value);
}

// -- the container: the one zip that its files make --------------------------------------------------------------------

const NAME = /^(?:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\/)?[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/;
const FILES_MAX = 100_000;
const FILE_BYTES_MAX = 64 * 1024 ** 2;
const CRC = Uint32Array.from({ length: 256 }, (_, at) => {
  let sum = at;
  for (let bit = 0; bit < 8; bit++) sum = sum & 1 ? 0xedb88320 ^ (sum >>> 1) : sum >>> 1;
  return sum;
});

function crc32(data) {
  let sum = 0xffffffff;
  for (const byte of data) sum = CRC[(sum ^ byte) & 0xff] ^ (sum >>> 8);
  return (sum ^ 0xffffffff) >>> 0;
}

// The 30 bytes before a file, or the 46 bytes about it in the list at the end.
function header(name, data, offset) {
  const inList = offset !== undefined;
  const made = Buffer.alloc(inList ? 46 : 30);
  made.writeUInt32LE(inList ? 0x02014b50 : 0x04034b50, 0);
  let at = 4;
  if (inList) {
    made.writeUInt8(20, 4);
    made.writeUInt8(3, 5); // Unix
    at = 6;
  }
  made.writeUInt16LE(20, at);
  made.writeUInt16LE(0x21, at + 8); // the first of January 1980
  made.writeUInt32LE(crc32(data), at + 10);
  made.writeUInt32LE(data.length, at + 14);
  made.writeUInt32LE(data.length, at + 18);
  made.writeUInt16LE(name.length, at + 22);
  if (inList) {
    made.writeUInt32LE((0o100644 << 16) >>> 0, 38); // a plain file
    made.writeUInt32LE(offset, 42);
  }
  return Buffer.concat([made, Buffer.from(name)]);
}

function packed(files) {
  const parts = [], list = [];
  let at = 0;
  for (const name of [...files.keys()].sort()) {
    const data = files.get(name), before = header(name, data);
    list.push(header(name, data, at));
    parts.push(before, data);
    at += before.length + data.length;
  }
  const entries = Buffer.concat(list), end = Buffer.alloc(22);
  end.writeUInt32LE(0x06054b50, 0);
  end.writeUInt16LE(files.size, 8);
  end.writeUInt16LE(files.size, 10);
  end.writeUInt32LE(entries.length, 12);
  end.writeUInt32LE(at, 16);
  return Buffer.concat([...parts, entries, end]);
}

function unpacked(data) {
  const files = new Map(), folded = new Set();
  let at = 0;
  while (data.length >= at + 30 && data.readUInt32LE(at) === 0x04034b50) {
    const size = data.readUInt32LE(at + 18), length = data.readUInt16LE(at + 26);
    const from = at + 30 + length + data.readUInt16LE(at + 28);
    const name = data.subarray(at + 30, at + 30 + length).toString("latin1");
    if (!NAME.test(name)) throw new Fault(`container: has the name ${JSON.stringify(name.slice(0, 100))}`);
    if (folded.has(name.toLowerCase())) throw new Fault(`container: has two files named ${name}`);
    if (!STREAMS.has(name) && size > FILE_BYTES_MAX) throw new Fault(`container: ${name} is too long`);
    if (files.size >= FILES_MAX) throw new Fault("container: has too many files");
    folded.add(name.toLowerCase());
    files.set(name, data.subarray(from, from + size));
    at = from + size;
  }
  if (!files.size) throw new Fault("container: is no zip");
  if (!packed(files).equals(data)) throw new Fault("container: is another zip than its files make");
  return files;
}

// -- the files and the vocabulary --------------------------------------------------------------------------------------

// Bundles of the third format hold their values; since the fourth they are in a sidecar, which the statement names.
const FORMATS = new Map([3, 4].map((number) => [`https://counterseal.dev/evidence-bundle/v${number}`, number]));
const ENVELOPE = "bundle.intoto.dsse.json";
const STREAMS = new Set([
  "events.jsonl", "approvals.jsonl", "receipts.jsonl", "attempts.jsonl", "checkpoints.jsonl", "disclosures.jsonl",
]);
const ALWAYS = [
  ENVELOPE, "SHA256SUMS", "events.jsonl", "README.txt", "run.json", "run-head.json", "costs.json", "public-key.pem",
  "definition.json", "tenant.jsonl", "approvals.jsonl", "receipts.jsonl", "attempts.jsonl", "checkpoints.jsonl",
  "disclosures.jsonl",
];
const OTHERS = /^(?:(?:workflow|policy)\/[^/]+\.yaml|(?:policy|directory)\/[^/]+\.json)$/;
// The lengths of the five pieces of README.txt around what differs, and the SHA-256 of the pieces.
const README_PIECES = [21, 9, 40, 1656, 4244];
const README_SHA256 = "c9d8eabf162015463bacb14ab24b8eac3cf4e9055f5f2ffbeba6dae98bd1a65a";
const OPENSSL = {
  ed25519: "openssl pkeyutl -verify -pubin -inkey public-key.pem -rawin -in ../pae -sigfile ../sig",
  "ecdsa-p256-sha256": "openssl dgst -sha256 -verify public-key.pem -signature ../sig ../pae",
};
const STATEMENT = new Set(["_type", "subject", "predicateType", "predicate"]);
const PREDICATE = [
  "tenant", "run", "status", "workflow", "policies", "first_seq", "last_seq", "count", "head", "final", "redaction",
  "producer",
];
// What the data of a line holds, by its type: a text, or `:i` an integer, `:b` a boolean, `:l` a list, `:o` an object.
// `?`: it may be null. `!`: it is never missing.
const LINES = {
  "action.doubt_resolved": "receipt! resolution! altered:l by approval",
  "action.failed": "receipt! class code secrets:l",
  "action.held": "receipt!",
  "action.in_doubt": "receipt! secrets:l",
  "action.intended": "receipt! action! operation! attempt:i! decision! approval?! replaces shared:b directory grant " +
    "covers reverses stop:i gate",
  "action.late": "receipt! attempt:i! epoch:i! known! sent! answered code secrets:l",
  "action.recalled": "receipt! run",
  "action.succeeded": "receipt! altered:l secrets:l ran",
  "action.unneeded": "receipt! action! operation! decision!",
  "agent.answered": "came! calls:l!",
  "agent.began": "model! tools:l!",
  "approval.consumed": "approval! directory",
  "approval.decided": "approval! outcome!",
  "approval.delivered": "approval! channel! message!",
  "approval.edited": "approval! fields:l! channel! directory identity:o",
  "approval.escalated": "approval! wait rung:i due:i",
  "approval.expired": "approval! undelivered:b",
  "approval.reassigned": "approval! to! channel! directory identity:o",
  "approval.reminded": "approval! wait rung:i due:i",
  "approval.requested": "approval! action?! card! kind tier committed:l directory secret:b",
  "approval.said": "approval! said! channel! directory identity:o",
  "approval.superseded": "approval! why directory",
  "approval.vote_refused": "approval! code! channel",
  "approval.voted": "approval! choice! channel reason_given:b separation_waived:b committed:l grant:o groups:l " +
    "directory identity:o on_behalf glass:b",
  "checkpoint.committed": "number:i! digest! halted:b",
  "decision.made": "decision! action! operation! outcome! policies:l! rules:l errors:l",
  "grant.ended": "grant! why! directory",
  "grant.given": "grant! approval! covers! uses:i! until!",
  "grant.revoked": "grant! committed:l",
  "hold.answered": "wait! kind! choice! channel! reason_given:b",
  "lease.expired": "epoch:i owner",
  "preflight.failed": "check! operation directory",
  "run.canceled": "reason_given:b committed:l",
  "run.closed": "status! error:o? count:i!",
  "run.continued": "run! workflow!",
  "run.extended": "number:i! steps:l! committed:l early:l",
  "run.forked": "origin! line:i! digest! checkpoint:i! steps:l! receipts:l! reason_given:b again:l committed:l",
  "run.migrated": "number:i! workflow:o! definition! before! reason_given:b committed:l",
  "run.opened": "workflow:o! definition trigger workspace committed:l inherited:l open:i tenant parent",
  "run.paused": "reason_given:b committed:l stop:i",
  "run.reference_set": "committed:l",
  "run.reopened": "bundle?! steps:l! reason_given:b committed:l",
  "run.resumed": "reason_given:b committed:l",
  "run.sealed": "reason_given:b committed:l",
  "run.started": "",
  "step.canceled": "",
  "step.failed": "class code usage:o released:b",
  "step.held": "wait! group! class code usage:o",
  "step.parked": "wait kind known:b",
  "step.resumed": "invocation",
  "step.retry_scheduled": "wait attempt:i seconds:i usage:o waits",
  "step.set_back": "setbacks:i",
  "step.started": "operation attempt:i epoch:i",
  "step.succeeded": "writes:l usage:o",
  "wait.canceled": "wait! kind! why",
  "wait.completed": "wait! kind! committed:l",
  "wait.opened": "wait! kind!",
  "wait.postponed": "wait! kind! due:i setbacks:i",
  "wait.timed_out": "wait! kind!",
};
const EVERYWHERE = "values receipt_digest stored state clock_behind:i count:i";
const KINDS = {
  s: isText, i: Number.isInteger, b: (value) => typeof value === "boolean", l: Array.isArray, o: isObject,
};
const WITHIN = {
  workflow: ["name", "version", "digest"],
  policies: ["name", "version", "digest"],
  usage: ["provider", "model", "input_tokens", "output_tokens", "cost_usd"],
  identity: ["named", "by", "token", "session", "slack", "step_up"],
  step_up: ["at", "by"],
  slack: ["team", "user", "channel", "message"],
  grant: ["uses", "seconds", "agent"],
  error: ["class", "code", "step"],
};
const OF_TENANT = ["name", "version", "digest", "author", "approver", "by", "consequences", "stop", "paused", "reason"];
const TENANT_AREAS = /^(?:signal|task|request|evidence|token|session|policy|workflow|directory|pause|glass|schedule|operation|tenant|message)\./;
const TENANT_OTHERS = new Set(["run.purged", "hold.refused", "approval.vote_refused", "action.late"]);
const STOPPING = new Set(["pause.set", "pause.lifted", "policy.activated", "policy.retired", "directory.published"]);

const MEMBERS = new Map(Object.entries(LINES).map(([type, text]) => [type, new Map(
  `${text} ${EVERYWHERE}`.split(" ").filter(Boolean).map((each) => {
    const [, name, kind = "s", more] = /^(\w+)(?::(\w))?([?!]*)$/.exec(each);
    return [name, { fits: KINDS[kind], empty: more.includes("?"), needed: more.includes("!") }];
  }).reverse(), // what a type says of a member comes before what all types have
)]));

function onlyMembers(where, value, known) {
  const strange = isObject(value) ? Object.keys(value).filter((name) => !known.includes(name)).sort() : [];
  if (strange.length) throw new Fault(`${where}: has the member '${strange[0].slice(0, 100)}', which no bundle has`);
}

function checkLine(event) {
  const where = `event ${event.seq}`;
  for (const [name, value] of Object.entries(event.data)) {
    const member = MEMBERS.get(event.type).get(name);
    if (!member) throw new Fault(`${where}: has the member '${name.slice(0, 100)}', which no bundle has`);
    if (!(member.fits(value) || (value === null && member.empty))) {
      throw new Fault(`${where}: has '${name}' as what it never is`);
    }
  }
  checkWithin(where, event.data);
}

function checkWithin(where, holder) {
  for (const [name, value] of Object.entries(holder)) {
    for (const each of objectsIn(value)) {
      if (!Object.hasOwn(WITHIN, name)) throw new Fault(`${where}: has an object as '${name}', where no line has one`);
      onlyMembers(where, each, WITHIN[name]);
      checkWithin(where, each);
      const texts = name !== "identity" && name !== "slack";
      if (!texts && !Object.values(each).every((one) => isText(one) || isObject(one))) {
        throw new Fault(`${where}: has '${name}' with what is no text`);
      }
    }
  }
}

function* objectsIn(value) {
  if (isObject(value)) yield value;
  else if (Array.isArray(value)) for (const each of value) yield* objectsIn(each);
}

// -- the statement -----------------------------------------------------------------------------------------------------

function keyOf(pem, where) {
  let key;
  try {
    key = createPublicKey(pem);
  } catch {
    throw new Fault(`${where}: is not a PEM public key`);
  }
  const curve = key.asymmetricKeyDetails?.namedCurve;
  const algorithm = key.asymmetricKeyType === "ed25519" ? "ed25519" : curve === "prime256v1" ? "ecdsa-p256-sha256" : null;
  if (pem.includes("PRIVATE") || algorithm === null) throw new Fault(`${where}: is neither an Ed25519 nor a P-256 key`);
  const id = hex(key.export({ type: "spki", format: "der" }));
  return { key, algorithm, id, pem: key.export({ type: "spki", format: "pem" }) };
}

function signedBy(key, data, signature) {
  return verifySignature(key.algorithm === "ed25519" ? null : "sha256", data, key.key, signature);
}

function opened(envelope, key) {
  const told = parsed(envelope, "envelope");
  const payload = Buffer.from(String(told.payload), "base64"), one = told.signatures?.[0] ?? {};
  const signature = Buffer.from(String(one.sig), "base64");
  const spelled = {
    payload: payload.toString("base64"), payloadType: "application/vnd.in-toto+json",
    signatures: [{ keyid: key.id, sig: signature.toString("base64") }],
  };
  if (!same(told, spelled)) throw new Fault("envelope: is not one signature of this key in DSSE");
  const kind = Buffer.from(spelled.payloadType);
  const pae = Buffer.concat([Buffer.from(`DSSEv1 ${kind.length} ${kind} ${payload.length} `), payload]);
  if (!signedBy(key, pae, signature)) throw new Fault(`envelope: has a signature that is not of the key ${key.id}`);
  return payload;
}

function readStatement(payload) {
  const told = parsed(payload, "statement");
  const number = FORMATS.get(told.predicateType);
  if (!number) throw new Unusable(`it is of the format ${told.predicateType}, not of ${[...FORMATS.keys()].join(" or ")}`);
  onlyMembers("statement", told, [...STATEMENT]);
  onlyMembers("statement", told.predicate, number > 3 ? [...PREDICATE, "sidecar"] : PREDICATE);
  const subjects = new Map();
  if (told._type !== "https://in-toto.io/Statement/v1" || !Array.isArray(told.subject) || !isObject(told.predicate)) {
    throw new Fault("statement: is not an evidence bundle's in-toto statement");
  }
  for (const one of told.subject) {
    const sum = one?.digest?.sha256;
    if (!isText(one?.name) || !isText(sum) || subjects.has(one.name) ||
      !same(one, { name: one.name, digest: { sha256: sum } })) {
      throw new Fault("statement: lists a file twice, or says more of it than its SHA-256");
    }
    subjects.set(one.name, sum);
  }
  const names = [...subjects.keys()];
  if (!same(names, [...names].sort())) throw new Fault("statement: lists the files in another order");
  return { subjects, predicate: told.predicate, number };
}

// -- the chain ---------------------------------------------------------------------------------------------------------

const LINE_BYTES_MAX = 256 * 1024;
const MOMENT = /^\d{4}-(?:0\d|1[0-2])-[0-3]\dT[0-2]\d:[0-5]\d:[0-6]\d\.\d{6}Z$/;

function linesOf(data, where) {
  const lines = [];
  let at = 0;
  while (at < data.length) {
    const end = data.indexOf(10, at);
    if (end < 0) throw new Fault(`${where}: does not end with a newline`);
    lines.push(data.subarray(at, end));
    at = end + 1;
  }
  return lines;
}

function readLine(line, where) {
  if (line.length > LINE_BYTES_MAX) throw new Fault(`${where}: it is longer than ${LINE_BYTES_MAX} bytes`);
  const event = parsed(line, where);
  const fits = isObject(event) && same(Object.keys(event).sort(), ["actor", "data", "step", "ts", "type", "v"]) &&
    event.v === 2 && isText(event.ts) && MOMENT.test(event.ts) && isObject(event.data) && isObject(event.actor) &&
    same(Object.keys(event.actor).sort(), ["id", "kind"]) && isText(event.actor.id) && isText(event.actor.kind) &&
    (event.step === null || isText(event.step)) && plain(event);
  if (!fits) throw new Fault(`${where}: is no line of a run`);
  if (!MEMBERS.has(event.type)) {
    throw new Fault(`${where}: its type ${event.type} is unknown: it is newer than this verifier, or none of ours`);
  }
  for (const [name, member] of MEMBERS.get(event.type)) {
    if (member.needed && !Object.hasOwn(event.data, name)) throw new Fault(`${where}: lacks ${name}`);
  }
  return event;
}

function followChain(told, data, observe) {
  const lines = linesOf(data, "events.jsonl"), last = new Map();
  let head = sha256(`run:${told.run}`), at = 0, final = false, back = 0;
  for (const size of told.appends) {
    if (!Number.isInteger(size) || size < 1) throw new Fault(`line ${at + 1}: an append cannot have ${size} lines`);
    const own = lines.slice(at, at + size);
    if (own.length < size) throw new Fault(`line ${at + 1}: not all ${size} lines of its append are here`);
    for (const line of own) {
      const where = `line ${at + 1}`, event = readLine(line, where);
      const reopened = event.type === "run.reopened";
      if (final && !reopened && event.type !== "action.late") throw new Fault(`${where}: it follows run.closed`);
      if (reopened && !final) throw new Fault(`${where}: it does not follow run.closed`);
      if ((at === 0) !== (event.type === "run.opened")) throw new Fault(`${where}: a run starts with run.opened, once`);
      if (event.type === "run.closed" && event.data.count !== at + 1) throw new Fault(`${where}: it counts other lines`);
      final = event.type === "run.closed" || (final && !reopened);
      if (event.ts < (last.get(event.step) ?? "")) back += 1;
      last.set(event.step, event.ts);
      observe({ ...event, seq: at });
      at += 1;
    }
    head = sha256(Buffer.concat([head, sha256(Buffer.concat(own.flatMap((line, n) => n ? [NEWLINE, line] : [line])))]));
  }
  if (at !== lines.length || at === 0) throw new Fault(`line ${at + 1}: it is in no append`);
  if (at !== told.count || head.toString("hex") !== told.head) throw new Fault("the appends do not come to the head");
  return { run: told.run, count: at, head: told.head, final, back };
}

const NEWLINE = Buffer.from("\n");

// -- what is opened ----------------------------------------------------------------------------------------------------

const ADDED = new Set(["values", "receipt_digest", "stored", "state", "clock_behind", "count"]);
const pathOf = (...parts) => parts.map((part) => `/${String(part).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");
const reasonPath = (event) =>
  pathOf("approval", event.data.approval, "vote", event.actor.id, event.ts, "reason");

function digestOf(event) {
  const { seq, data, ...told } = event;
  return digest({ ...told, data: Object.fromEntries(Object.entries(data).filter(([name]) => !ADDED.has(name))) });
}

// The prefixes of the paths under which a line itself may commit to values.
function placesOf({ type, data, step, ...event }) {
  switch (type) {
    case "run.opened": return ["/trigger/", "/reference"];
    case "run.reference_set": return [`${step}/reference`];
    case "approval.requested": return [`${pathOf("approval", data.approval)}/`];
    case "approval.voted": return [reasonPath({ data, ...event })];
    case "run.canceled": return ["/cancel/reason"];
    case "wait.completed": return [`${pathOf("wait", data.wait)}/`];
    case "grant.revoked": return [`${pathOf("grant", data.grant)}/`];
    case "run.extended": return [`${pathOf("mutation", data.number)}/`];
    case "run.migrated": return [`${pathOf("migrated", data.number)}/`];
    case "run.paused": case "run.resumed": case "run.sealed": case "run.reopened": case "run.forked": return [`/${type.split(".")[1]}`];
    default: return [];
  }
}

function pairsOf(event) {
  const pairs = new Map(), own = placesOf(event);
  for (const pair of event.data.committed ?? []) {
    const fits = Array.isArray(pair) && pair.length === 2 && pair.every(isText);
    if (!fits || !own.some((place) => pair[0].startsWith(place))) {
      throw new Fault(`event ${event.seq}: it commits to what is not its own`);
    }
    pairs.set(pair[0], pair[1]);
  }
  if (event.type === "approval.requested" && isText(event.data.card)) {
    pairs.set(pathOf("approval", event.data.approval, "card"), event.data.card);
  }
  return pairs;
}

class Opened {
  constructor(data, where = "disclosures.jsonl") {
    this.where = where;
    this.count = 0;
    this.problem = null;
    this.bySeq = new Map();
    let last = -1;
    try {
      for (const line of linesOf(data, "disclosures.jsonl")) {
        const told = parsed(line, "disclosures.jsonl");
        const listed = told.values === null || (Array.isArray(told.values) && told.values.every(
          (pair) => Array.isArray(pair) && pair.length === 2 && pair.every(isText),
        ));
        const shown = Array.isArray(told.opened) && told.opened.every(
          (one) => Array.isArray(one) && one.length === 3 && isText(one[0]) && one[0].length === 32 && isText(one[1]),
        );
        if (!same(Object.keys(told).sort(), ["opened", "seq", "values"]) || !Number.isInteger(told.seq) || !listed ||
          !shown || !(told.opened.length || told.values?.length)) {
          throw new Fault("a line has other members than such lines have, or opens nothing");
        }
        if (told.seq <= last) throw new Fault(`it opens values of event ${told.seq}, which came before`);
        last = told.seq;
        this.bySeq.set(told.seq, told);
      }
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      this.problem = error.message;
    }
  }

  // The opened values of an event by their paths.
  of(event) {
    const told = this.bySeq.get(event.seq), values = new Map();
    this.listed = Boolean(told && told.values !== null);
    if (!told) return values;
    this.bySeq.delete(event.seq);
    try {
      const bound = pairsOf(event);
      if (told.values !== null) {
        const own = `/${digestOf(event)}`, listed = told.values.map(([path, commitment]) => [own + path, commitment]);
        if (digest(listed) !== event.data.values) throw new Fault("it lists other values than its line binds");
        for (const [path, commitment] of listed) bound.set(path, commitment);
      }
      for (const [salt, path, value] of told.opened) {
        if (values.has(path)) throw new Fault(`it opens ${path.slice(0, 80)} twice`);
        if (bound.get(path) !== digest([salt, path, value])) {
          throw new Fault(`nothing in its line commits to what is opened at ${path.slice(0, 80)}`);
        }
        values.set(path, value);
      }
      this.count += values.size;
      return values;
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      this.problem ??= `event ${event.seq}: ${error.message}`;
      return new Map();
    }
  }

  row() {
    const [left] = this.bySeq.keys();
    if (this.problem === null && left !== undefined) {
      this.problem = `it opens values of event ${left}, which there is not, or which came before`;
    }
    if (this.problem !== null) throw new Fault(`${this.where}: ${this.problem}`);
    return `${this.count} values are opened, each as its event's line commits to it`;
  }
}

// Checks the values that further files open, together. The error names the file that does not fit.
function moreOpened(further) {
  further.forEach((each, number) => {
    try {
      each.row();
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      const words = `${each.problem}. It is of another run or tenant, of a later edition, or was changed: leave it out`;
      throw new Fault(`--disclosed: file ${number + 1}: ${words}`);
    }
  });
  const count = further.reduce((sum, each) => sum + each.count, 0);
  return `${count} values are opened, each as its event's line commits to it`;
}

// -- the sidecar -------------------------------------------------------------------------------------------------------

const ASKED = /^\/approval\/[^/]+\/asked$/;
const MOVE = "move this file away, and the values are withheld";
const LEAF_BYTES_MAX = 64 * 1024, PROOF_BYTES_MAX = 1024 * 1024;

// The values in a bundle's sidecar: disclosed if the sidecar is here, erased if a leaf of the log proves it.
class Apart {
  constructor(predicate, number, { sidecar, disclosed, leaf, proof, "log-key": keys }) {
    this.since = number > 3;
    const named = this.since ? predicate.sidecar : null;
    this.named = isText(named) && /^[0-9a-f]{64}$/.test(named) ? named : null;
    this.here = null;
    this.problem = null;
    this.erased = null;
    this.unproven = false;
    this.run = predicate.run ?? null;
    this.further = [];
    if (this.since && sidecar !== null) this.take(sidecar);
    for (const data of disclosed) {
      if (this.here === null && this.named !== null && hex(data) === this.named) this.here = new Opened(data, "sidecar");
      else this.further.push(new Opened(data));
    }
    try {
      if (this.named !== null && leaf !== null) this.erasure(predicate, leaf, proof ?? Buffer.alloc(0), keys);
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      this.problem ??= `its erasure is not proven: ${error.message}`;
    }
  }

  take(data) {
    if (this.named === null) this.problem = `there is one, and the statement names none: ${MOVE}`;
    else if (hex(data) !== this.named) {
      const words = `the statement names ${this.named}, and beside the bundle is ${hex(data)}: that of another edition,`;
      const more = `\`counterseal evidence get ${this.run}\` writes a bundle with its own beside it, or ${MOVE}`;
      this.problem = `${words} or of another run or tenant, or a changed one. ${more}`;
    } else this.here = new Opened(data, "sidecar");
  }

  get withheld() {
    return this.named !== null && this.here === null;
  }

  erasure(predicate, leaf, proof, keys) {
    if (leaf.length > LEAF_BYTES_MAX) throw new Fault(".leaf.json: is too long");
    const told = parsed(leaf, ".leaf.json");
    if (!isObject(told)) throw new Fault(".leaf.json: is no object");
    if (told.kind !== "erased") return;
    if (!same(told.tenant ?? null, predicate.tenant) || !same(told.run ?? null, predicate.run)) {
      throw new Fault(".leaf.json: is not the leaf of this run");
    }
    if (same(told.count ?? null, predicate.count) && !same(told.head ?? null, predicate.head)) {
      throw new Fault(".leaf.json: is of another history of this run");
    }
    this.unproven = !keys.length;
    if (this.unproven) return;
    if (proof.length > PROOF_BYTES_MAX) throw new Fault(".tlog-proof: is too long");
    const { place, origin } = provenLeaf(proof, leaf, keys.map((key) => renamed(key, `${key.name}/${predicate.tenant}`)));
    this.erased = `leaf ${place} of the log ${origin} says that retention erased them (${told.ts})`;
  }

  // The status and the words of the row.
  row() {
    if (this.problem !== null) throw new Fault(`sidecar: ${this.problem}`);
    if (this.named === null) return ["ok", "nothing was opened, so there is no sidecar"];
    if (this.here !== null) {
      this.here.row();
      const words = `disclosed: ${this.here.count} values, each as its event's line commits to it`;
      return ["ok", this.erased === null ? words : `${words}. This is a copy: ${this.erased}`];
    }
    if (this.erased !== null) return ["ok", `erased: ${this.erased}`];
    const words = `withheld: the sidecar ${this.named} is not here, so cards and reasons are neither shown nor judged`;
    const more = "; a leaf says that it is erased, which only `--log-key`, the key of the log, proves";
    return ["not_proven", words + (this.unproven ? more : "")];
  }
}

// -- leaves of a log (C2SP signed-note, tlog-checkpoint, tlog-proof) ---------------------------------------------------

const SPKI_ED25519 = Buffer.from("302a300506032b6570032100", "hex");

function canonicalBase64(text) {
  const data = Buffer.from(text, "base64");
  return data.toString("base64") === text ? data : null;
}

function renamed(key, name) {
  const id = createHash("sha256").update(`${name}\n`).update(Buffer.from([1])).update(key.raw).digest().subarray(0, 4);
  return { ...key, name, id };
}

function logKey(text) {
  const [name, id, ...rest] = text.trim().split("+"), data = canonicalBase64(rest.join("+"));
  if (!name || /\s/.test(name) || data === null || data.length !== 33 || data[0] !== 1) {
    throw new Unusable("--log-key: is no Ed25519 key of a log: name+id+key");
  }
  const raw = data.subarray(1), found = renamed({ raw }, name);
  if (found.id.toString("hex") !== id) throw new Unusable("--log-key: its parts do not fit each other");
  const key = createPublicKey({ key: Buffer.concat([SPKI_ED25519, raw]), format: "der", type: "spki" });
  return { ...found, key };
}

// The text of a note that one of these keys has signed; every signature that names one of them must be good.
function signedText(note, keys) {
  const text = note.toString("utf8"), end = text.lastIndexOf("\n\n");
  if (!Buffer.from(text).equals(note) || end < 0 || /[\x00-\x09\x0b-\x1f]/.test(text)) {
    throw new Fault(".tlog-proof: has no signed note");
  }
  const body = text.slice(0, end + 1), lines = text.slice(end + 2).split("\n"), [origin] = body.split("\n");
  let signed = 0;
  if (lines.pop() !== "" || !lines.length || lines.length > 100) throw new Fault(".tlog-proof: has no signed note");
  for (const line of lines) {
    const [, name, coded] = /^\u2014 ([^\s+]+) ([A-Za-z0-9+/]+={0,2})$/.exec(line) ?? [];
    const data = coded === undefined ? null : canonicalBase64(coded);
    if (data === null || data.length <= 4) throw new Fault(".tlog-proof: has a line that is no signature");
    for (const key of keys.filter((one) => one.name === name && one.id.equals(data.subarray(0, 4)))) {
      const good = verifySignature(null, Buffer.from(body), key.key, data.subarray(4));
      if (!good || key.name !== origin) throw new Fault(".tlog-proof: has a false signature, or one of another log");
      signed += 1;
    }
  }
  if (!signed) throw new Fault(`.tlog-proof: is not signed by a key of the log ${origin} that you named`);
  return body;
}

function hashOf(text) {
  const data = canonicalBase64(text);
  if (data === null || data.length !== 32) throw new Fault(".tlog-proof: is no proof of a log");
  return data;
}

// The place of a leaf in the log whose checkpoint one of these keys has signed (RFC 6962, RFC 9162 section 2.1.3.2).
function provenLeaf(proof, leaf, keys) {
  const end = proof.indexOf("\n\n"), NUMBER = /^(?:0|[1-9][0-9]{0,18})$/;
  const lines = proof.subarray(0, Math.max(end, 0)).toString("latin1").split("\n");
  const rows = lines.slice(lines[1]?.startsWith("extra ") ? 2 : 1), [word, index] = (rows[0] ?? "").split(" ");
  if (end < 0 || lines[0] !== "c2sp.org/tlog-proof@v1" || word !== "index" || !NUMBER.test(index ?? "") ||
    rows[0] !== `index ${index}`) {
    throw new Fault(".tlog-proof: is no proof of a log");
  }
  const [origin, count, root] = signedText(proof.subarray(end + 2), keys).split("\n");
  if (!origin || !NUMBER.test(count ?? "")) throw new Fault(".tlog-proof: is no checkpoint of a log");
  const path = rows.slice(1).map(hashOf), joined = (...parts) => createHash("sha256").update(Buffer.concat(parts)).digest();
  let at = BigInt(index), last = BigInt(count) - 1n, hash = joined(Buffer.from([0]), leaf), fits = at <= last;
  for (const one of path) {
    fits &&= last > 0n;
    if (at & 1n || at === last) {
      hash = joined(Buffer.from([1]), one, hash);
      while (!(at & 1n) && at > 0n) [at, last] = [at >> 1n, last >> 1n];
    } else hash = joined(Buffer.from([1]), hash, one);
    [at, last] = [at >> 1n, last >> 1n];
  }
  if (!fits || last > 0n || !hash.equals(hashOf(root ?? ""))) {
    throw new Fault(".tlog-proof: does not show that this leaf is in the log");
  }
  return { place: index, origin };
}

// -- what follows from the events --------------------------------------------------------------------------------------

const MOVES = {
  "intended succeed": "succeeded", "intended fail": "failed", "intended doubt": "in_doubt",
  "failed retry": "intended", "in_doubt retry": "intended",
  "in_doubt applied": "succeeded", "in_doubt failed": "failed",
};
const SETTLES = { "action.succeeded": "succeed", "action.failed": "fail", "action.in_doubt": "doubt" };
const NOT_OF_THE_CALL = new Set(["receipt", "receipt_digest", "values", "stored", "state", "clock_behind"]);

const committed = (data, path) => (Array.isArray(data.committed) ? data.committed : []).find(
  (pair) => Array.isArray(pair) && pair.length === 2 && pair[0] === path && isText(pair[1]),
)?.[1] ?? null;

// The fold of the events: files are derived from it, and each effect needs its decision or approval.
class History {
  constructor() {
    this.workflow = this.tenant = this.status = this.canceled = null;
    this.run = { opened_at: null, closed_at: null, trigger: null, workspace: null };
    for (const name of ["decisions", "policies", "approvals", "receipts", "grants", "costs"]) this[name] = new Map();
    this.attempts = [];
    this.movedTo = [];
    this.checkpoints = [];
    this.faults = [];
    this.problems = [];
    this.after = 0;
    this.made = { source: "input", writes: [], versions: {} };
  }

  fault(event, words) {
    this.faults.push(`event ${event.seq}: ${words}`);
  }

  observe(event) {
    const { type, data } = event;
    if (Object.hasOwn(data, "usage") && !this.spend(data.usage)) {
      this.problems.push(`event ${event.seq}: its usage is malformed`);
    }
    this.checkpoint(event);
    if (type === "run.opened") {
      this.workflow = data.workflow;
      this.tenant = data.tenant ?? null;
      this.run = {
        opened_at: event.ts, closed_at: null, trigger: data.trigger ?? null, workspace: data.workspace ?? null,
      };
    } else if (type === "run.migrated") {
      this.movedTo.push(data.workflow);
    } else if (type === "run.canceled") {
      this.canceled ??= { by: event.actor.id, reason: committed(data, "/cancel/reason") };
    } else if (type === "run.closed") {
      this.status = data.status;
      this.run.closed_at = event.ts;
    } else if (type === "run.reopened") {
      this.status = null;
      this.after = 0;
    } else if (type === "decision.made") this.decide(event);
    else if (type.startsWith("approval.")) this.approval(event);
    else if (type.startsWith("grant.")) this.grant(event);
    else if (type === "action.intended") this.intend(event);
    else if (type === "action.unneeded") this.unneeded(event);
    else if (type.startsWith("action.") && type !== "action.recalled") this.settle(event);
  }

  spend(usage) {
    const { provider, model, input_tokens: first, output_tokens: second, cost_usd: price } = usage ?? {};
    const tokens = Number.isInteger(first) && Number.isInteger(second);
    if (!isText(provider) || !isText(model) || !tokens || !(price === null || isText(price))) return false;
    const amount = price === null ? null : money(price);
    if (amount === undefined) return false;
    const key = canonical([provider, model]);
    const cost = this.costs.get(key) ?? { provider, model, calls: 0, first: 0, second: 0, unpriced: 0, sum: 0n };
    this.costs.set(key, cost);
    cost.calls += 1;
    cost.first += first;
    cost.second += second;
    if (amount === null) cost.unpriced += 1;
    else cost.sum += amount;
    return true;
  }

  checkpoint(event) {
    const { type, data } = event, made = this.made;
    if (type === "step.succeeded" && data.writes?.length) {
      if (data.writes.every(isText)) made.writes.push({ seq: event.seq, step: event.step, channels: data.writes });
      else this.problems.push(`event ${event.seq}: its writes are no names of channels`);
    } else if (type === "run.reopened") made.source = "retry";
    else if (["run.extended", "run.migrated"].includes(type) && made.source === "loop") made.source = "extension";
    else if (type === "checkpoint.committed") {
      for (const write of made.writes) for (const name of write.channels) made.versions[name] = data.number;
      const { source, writes } = made;
      this.checkpoints.push({ ...data, seq: event.seq, ts: event.ts, source, writes, versions_seen: { ...made.versions } });
      this.made = { source: "loop", writes: [], versions: made.versions };
    }
  }

  decide(event) {
    const { data } = event;
    if (this.decisions.has(data.decision)) this.fault(event, `the decision ${data.decision} was made before`);
    this.decisions.set(data.decision, data);
    if (!Array.isArray(data.policies) || !data.policies.every((one) => isObject(one) && isText(one.digest))) {
      this.fault(event, "its policies are no list of what has a digest");
      return;
    }
    if (!data.policies.length && data.outcome !== "deny") {
      this.fault(event, "a decision names no policy and is not a denial");
    }
    for (const policy of data.policies) {
      if (!this.policies.has(policy.digest)) this.policies.set(policy.digest, policy);
      if (!same(this.policies.get(policy.digest), policy)) {
        this.fault(event, "it names a policy otherwise than an event before");
      }
    }
  }

  approval(event) {
    const { type, data } = event, known = this.approvals.get(data.approval);
    if (type === "approval.requested") {
      if (known) return this.fault(event, `the approval ${data.approval} was requested before`);
      this.approvals.set(data.approval, {
        approval: data.approval, action: data.action, status: "requested", votes: [], card: data.card,
        asked: committed(data, pathOf("approval", data.approval, "asked")), kind: data.kind ?? null,
        tier: data.tier ?? null, secret: data.secret ?? null, step: event.step, requested_at: event.ts,
      });
      return;
    }
    if (!/\.(?:voted|decided|superseded|expired)$/.test(type)) return;
    if (!known) return this.fault(event, `the approval ${data.approval} was never requested`);
    if (type === "approval.voted") {
      const vote = { voter: event.actor.id, choice: data.choice, at: event.ts };
      for (const name of ["channel", "grant"]) if (Object.hasOwn(data, name)) vote[name] = data[name];
      known.votes.push({ ...vote, reason: committed(data, reasonPath(event)) });
    } else if (type === "approval.decided") {
      if (known.status !== "requested") this.fault(event, `the approval was ${known.status} already`);
      known.status = data.outcome;
    } else known.status = type.split(".")[1];
  }

  grant(event) {
    const { type, data } = event, known = this.grants.get(data.grant);
    if (type !== "grant.given") {
      if (known) known.over = true;
      else this.fault(event, `the grant ${data.grant.slice(0, 40)} was never given`);
      return;
    }
    const approval = this.approvals.get(data.approval), last = new Map();
    for (const vote of approval?.votes ?? []) last.set(vote.voter, vote);
    const given = [...last.values()].filter((vote) => vote.choice === "approve" && isObject(vote.grant));
    const fits = given.length && given.every((vote) => Number.isInteger(vote.grant.uses) && data.uses <= vote.grant.uses);
    if (approval?.status !== "approved" || !fits || known) {
      this.fault(event, `the grant ${data.grant.slice(0, 40)} is not what the voters of an approval have given`);
      return;
    }
    this.grants.set(data.grant, { covers: data.covers, uses: data.uses, until: data.until, used: 0, over: false });
  }

  intend(event) {
    const { data, seq, step, ts } = event, { receipt, operation, attempt, decision } = data;
    this.attempts.push({ receipt, operation, attempt, decision, approval: data.approval, seq, step, ts });
    const why = this.whyNot(data, ts);
    if (why) this.fault(event, `${operation} was let out ${why}`);
    const known = this.receipts.get(receipt);
    if (!known) {
      this.receipts.set(receipt, {
        receipt, operation, action: data.action, status: "intended", attempt, step, intended_at: ts, settled_at: null,
        events: [seq], reverses: data.reverses, late: [],
        ...((data.gate ?? null) !== null && { carried_out_by: "the agent, outcome as it reported" }),
      });
      return;
    }
    if (known.action !== data.action || known.operation !== operation) {
      this.fault(event, `the receipt ${receipt} is of another action`);
    }
    this.move(known, "retry", event);
    Object.assign(known, { attempt, intended_at: ts, settled_at: null });
    known.events.push(seq);
  }

  whyNot(intent, at) {
    const decision = this.decisions.get(intent.decision);
    if (!decision) return "without a decision";
    if (decision.action !== intent.action || decision.operation !== intent.operation) {
      return "by a decision about another action";
    }
    if (decision.outcome === "allow") return null;
    if (decision.outcome !== "needs_approval") return `although the decision was ${decision.outcome}`;
    if (intent.grant !== undefined) return this.byGrant(intent, at);
    const approval = this.approvals.get(intent.approval);
    if (!approval) return "without the approval that policy asked for";
    if (approval.action === null || approval.action !== intent.action) return "by an approval of another action";
    if (approval.status !== "approved") return `by an approval that was ${approval.status}`;
    if (!approval.votes.some((vote) => vote.choice === "approve")) return "by an approval that nobody voted for";
    if (approval.consumed !== undefined && approval.consumed !== intent.receipt) {
      return "by an approval that another action had consumed";
    }
    Object.defineProperty(approval, "consumed", { value: intent.receipt, writable: true });
    return null;
  }

  byGrant(intent, at) {
    const grant = this.grants.get(intent.grant);
    if (!grant) return "by a grant that nobody gave";
    if (grant.over || grant.used >= grant.uses) return "by a grant that was over";
    if (intent.covers !== grant.covers) return "by a grant of something else";
    if (at > grant.until) return "by a grant that had expired";
    grant.used += 1;
    return null;
  }

  unneeded(event) {
    const { data, seq, step, ts } = event, decision = this.decisions.get(data.decision);
    if (!decision || decision.action !== data.action || decision.operation !== data.operation) {
      this.fault(event, `${data.operation} had nothing to do by no decision about it`);
    } else if (decision.outcome === "deny") {
      this.fault(event, `${data.operation} counts as done although it was denied`);
    }
    if (this.receipts.has(data.receipt)) return this.fault(event, `the receipt ${data.receipt} was of an attempt`);
    this.receipts.set(data.receipt, {
      receipt: data.receipt, operation: data.operation, action: data.action, status: "succeeded", attempt: 0, step,
      intended_at: ts, settled_at: ts, events: [seq], late: [],
    });
  }

  settle(event) {
    const { type, data } = event, receipt = this.receipts.get(data.receipt);
    if (!receipt) return this.fault(event, "an outcome is recorded for an action that was never intended");
    receipt.altered = data.altered ?? receipt.altered;
    receipt.events.push(event.seq);
    if (type === "action.late") {
      this.after += this.status !== null;
      receipt.late.push(Object.fromEntries(Object.entries(data).filter(([name]) => !NOT_OF_THE_CALL.has(name))));
    } else if (SETTLES[type]) this.move(receipt, SETTLES[type], event);
    else if (type === "action.held") {
      if (receipt.status !== "in_doubt") this.fault(event, "an action is held that is not in doubt");
    } else if (["applied", "failed"].includes(data.resolution)) this.move(receipt, data.resolution, event);
    else if (data.resolution !== "not_applied" || receipt.status !== "in_doubt") {
      this.fault(event, `'${data.resolution.slice(0, 40)}' resolves nothing`);
    }
  }

  move(receipt, how, event) {
    const next = MOVES[`${receipt.status} ${how}`];
    if (!next) return this.fault(event, `a receipt that is ${receipt.status} cannot ${how}`);
    receipt.status = next;
    receipt.settled_at = next === "succeeded" || next === "failed" ? event.ts : null;
  }

  // Late answers that contradict their receipts.
  contradictions() {
    return [...this.receipts.values()].flatMap((receipt) => receipt.late.filter(({ known, attempt }) =>
      (known === "succeeded" && receipt.status === "failed") ||
      (known === "succeeded" && receipt.status === "succeeded" && attempt !== receipt.attempt) ||
      (known === "failed" && receipt.status === "succeeded" && attempt === receipt.attempt)
    ).map((late) => `attempt ${late.attempt} of ${receipt.operation}: ${late.known}`));
  }

  // The files that follow from the events: the lines of each.
  files(report, tenant, appends) {
    const { run, count, head, final } = report, status = final ? this.status : "open";
    const receipts = [...this.receipts.values()].map(({ action, late, altered, reverses, ...facts }) => ({
      ...facts, ...(late.length && { late }), ...(altered?.length && { altered }), ...(reverses && { reverses }),
    }));
    const costs = [...this.costs.values()].sort((a, b) =>
      a.provider === b.provider ? (a.model < b.model ? -1 : 1) : a.provider < b.provider ? -1 : 1);
    const priced = costs.map((cost) => ({
      provider: cost.provider, model: cost.model, calls: cost.calls, input_tokens: cost.first,
      output_tokens: cost.second, cost_usd: spelledMoney(cost.sum), unpriced_calls: cost.unpriced,
    }));
    return {
      "run.json": [{ tenant, run, workflow: this.workflow, status, ...this.run, canceled: this.canceled }],
      "run-head.json": [{ v: 2, tenant, run, count, head, final, appends }],
      "approvals.jsonl": [...this.approvals.values()],
      "receipts.jsonl": receipts,
      "attempts.jsonl": this.attempts,
      "checkpoints.jsonl": this.checkpoints,
      "costs.json": [priced],
    };
  }
}

const DIGITS = 15; // amounts are integers of this many digits behind the point

// An amount as an integer; undefined if it is malformed.
function money(text) {
  const found = /^\+?(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d{1,4}))?$/.exec(text);
  if (!found || text.length > 30 || !(found[1] || found[2])) return undefined;
  const fraction = found[2] ?? "", exponent = Number(found[3] ?? 0) - fraction.length;
  if (exponent < -DIGITS || exponent > 30) return undefined;
  const amount = BigInt(found[1] + fraction) * 10n ** BigInt(exponent + DIGITS);
  return amount < 10n ** BigInt(9 + DIGITS) ? amount : undefined;
}

function spelledMoney(sum) {
  const text = sum.toString().padStart(DIGITS + 1, "0");
  return `${text.slice(0, -DIGITS)}.${text.slice(-DIGITS)}`.replace(/\.?0+$/, "");
}

// -- the case: what a history is judged by -----------------------------------------------------------------------------

const EXPIRES_SECONDS = 7 * 24 * 3600;
const CLOCK_SECONDS = 10;
const CROSSED_SECONDS = 60;
const ROLES = new Set([
  "requester", "updater", "step_adder", "form_filler", "signal_sender", "editor", "token_owner", "agent_owner", "retrier",
  "source_requester", "outside_writer", "subject", "answerer",
]);
const SOURCES = new Set(["group", "slack_group", "manager_of", "person"]);
const TERMS = [
  "tier", "approvers", "two_person", "allow", "unresolved", "expires_seconds", "remind_seconds", "escalate",
  "fresh_seconds", "rejection_seconds", "questions", "channel", "grants", "step_up_seconds", "break_glass",
];
const STEP = {
  operation: isText, needs: textList, within: isText, branch: isText, loops: KINDS.b, branches: textList, terms: isObject,
  tools: isObject, workflow: isText, model: isText,
};
const COMPOSITES = new Set(["if", "foreach", "while"]);

function textList(value) {
  return Array.isArray(value) && value.every(isText);
}

const micros = (ts) => {
  const [, whole, fraction = "", zone] = /^(.*?)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)$/.exec(ts);
  return Date.parse(`${whole}${zone}`) * 1000 + Number(fraction.padEnd(6, "0").slice(0, 6));
};
const secondsBetween = (first, last) => (micros(last) - micros(first)) / 1e6;
const word = (value) => value === undefined || value === null ? "None" : String(value);

// Splits a step's key: the iterations around it with their last dot, its node, the turn and call of an agent.
function parted(key) {
  const slash = key.indexOf("/"), outer = slash < 0 ? key : key.slice(0, slash), dot = outer.lastIndexOf(".");
  return [outer.slice(0, dot + 1), outer.slice(dot + 1), slash < 0 ? "" : key.slice(slash + 1)];
}

function quorumOf(one) {
  const { group, of = 1, source = "group" } = one ?? {};
  if (!isText(group) || !Number.isInteger(of) || of < 1 || !SOURCES.has(source)) throw new Fault("has no such quorum");
  return { group, of, source };
}

const keyOfGroup = (one) => `${one.source}:${one.group}`;

function termsOf(told) {
  if (!isObject(told) || !["low", "medium", "high"].includes(told.tier) || !Array.isArray(told.approvers)) {
    throw new Fault("has no terms");
  }
  const { two_person = false, allow = [], expires_seconds = null, fresh_seconds = 24 * 3600, escalate = null } = told;
  const { step_up_seconds = null, break_glass = null } = told;
  const whole = (value) => value === null || Number.isInteger(value);
  if (typeof two_person !== "boolean" || !textList(allow) || !allow.every((role) => ROLES.has(role)) ||
    !whole(expires_seconds) || !Number.isInteger(fresh_seconds) || !whole(step_up_seconds)) {
    throw new Fault("has other terms than there are");
  }
  if (break_glass !== null && !(isObject(break_glass) && textList(break_glass.by) && textList(break_glass.review) &&
    Number.isInteger(break_glass.seconds))) {
    throw new Fault("has another way to break the glass than there is");
  }
  let later = null;
  if (escalate !== null) {
    if (!isObject(escalate) || !Number.isInteger(escalate.after_seconds) || !textList(escalate.covers ?? [])) {
      throw new Fault("has another escalation than there is");
    }
    const covers = [...(escalate.covers ?? [])].sort();
    later = { after_seconds: escalate.after_seconds, to: quorumOf(escalate.to), covers };
  }
  const { tier } = told, approvers = told.approvers.map(quorumOf);
  const own = { tier, approvers, two_person, allow, expires_seconds, fresh_seconds, escalate: later };
  return { ...own, step_up_seconds, break_glass };
}

function questionOf(asked, card) {
  for (const name of ["kind", "requester"]) if (!Object.hasOwn(asked, name)) throw new Fault(`has no ${name}`);
  const shaped = asked.contributors ?? null;
  if (shaped !== null && !(Array.isArray(shaped) && shaped.every((one) => isObject(one) && ROLES.has(one.role) &&
    isText(one.principal) && Object.hasOwn(one, "person") && (one.person === null || isText(one.person))))) {
    throw new Fault("has contributors that are none");
  }
  return {
    kind: word(asked.kind), requester: word(asked.requester), terms: termsOf(asked.terms), contributors: shaped,
    card: isObject(card) ? card : null,
  };
}

function mergedGroups(groups) {
  const merged = new Map();
  for (const one of groups) {
    const known = merged.get(keyOfGroup(one));
    merged.set(keyOfGroup(one), !known || one.of > known.of ? one : known);
  }
  return [...merged.values()];
}

// The keys of the groups to which whoever breaks the glass must belong, all of them; null if nobody may.
const glassKeys = (terms) => terms.break_glass === null ? null : terms.break_glass.by.map((name) => `group:${name}`);

// The reason why this vote may not use emergency access (break-glass); null if it may.
function noGlass(kind, terms, data, groups) {
  const keys = glassKeys(terms);
  if (kind !== "action" || keys === null) return "no rule lets anybody";
  if (data.choice !== "approve" || data.on_behalf || data.grant) return "it is no approval of one's own, of this alone";
  if (data.reason_given !== true) return "it gives no reason";
  const fits = new Set(keys).size === groups.size && keys.every((key) => groups.has(key));
  return fits ? null : "not as one of those who may";
}

// The reason why a vote lacks the fresh login that the terms of its question ask for; null if it has one.
function notAnew(event, askedAt, seconds) {
  const { data, ts } = event, voter = event.actor.id;
  if (seconds === null || data.choice !== "approve") return null;
  const told = isObject(data.identity) && isObject(data.identity.step_up) ? data.identity.step_up : {};
  const zoned = isText(told.at) && /^\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)$/.test(told.at);
  if (!["oidc", "token"].includes(told.by) || data.channel !== "console" || !zoned || Number.isNaN(micros(told.at))) {
    return `its terms ask for a login anew, and ${voter} approved without one`;
  }
  if (secondsBetween(askedAt, told.at) < -CLOCK_SECONDS) return `${voter} logged in before the question was asked`;
  const age = secondsBetween(told.at, ts);
  return -CLOCK_SECONDS <= age && age <= seconds + CLOCK_SECONDS ? null : `the login of ${voter} was too old for this`;
}

function plansOf(terms, escalated) {
  const plans = [mergedGroups(terms.approvers)];
  if (escalated && terms.escalate) {
    const { covers, to } = terms.escalate;
    const covered = new Set(covers.length ? covers : terms.approvers.map(keyOfGroup));
    plans.push(mergedGroups([...terms.approvers.filter((one) => !covered.has(keyOfGroup(one))), to]));
  }
  return plans.filter((plan) => plan.length);
}

const keysOf = (terms, escalated) => new Set(plansOf(terms, escalated).flat().map(keyOfGroup));

function planMet(terms, plan, people) {
  if (!terms.two_person) {
    return plan.every((group) => people.filter((theirs) => theirs.has(keyOfGroup(group))).length >= group.of);
  }
  const keys = plan.map(keyOfGroup), seated = people.filter((theirs) => keys.some((key) => theirs.has(key)));
  return seated.length >= 2 && eachHasASeat(plan, seated);
}

// True if each seat can have a different person: bipartite matching by augmenting paths.
function eachHasASeat(plan, people) {
  const seats = plan.flatMap((group) => Array(group.of).fill(keyOfGroup(group))), holder = new Map();
  if (seats.length > people.length) return false;
  const place = (seat, tried) => people.some((theirs, person) => {
    if (!theirs.has(seats[seat]) || tried.has(person)) return false;
    tried.add(person);
    if (holder.has(person) && !place(holder.get(person), tried)) return false;
    holder.set(person, seat);
    return true;
  });
  return seats.every((_, seat) => place(seat, new Set()));
}

const mayBeDelegated = (key) => !key.startsWith("slack_group:") && key !== "group:policy_approvers";

// The declarations that `run.opened` names, and the steps at first and after each extension.
class Definition {
  constructor(told, named, text) {
    onlyMembers("definition.json", told, ["operations", "editions", "added", "migrated"]);
    const { operations, editions, added = {}, migrated = [] } = told;
    if (!isObject(operations) || !Array.isArray(editions) || !isObject(added) || !editions.every(isObject) ||
      ![...Object.values(operations), ...Object.values(added)].every(isObject)) {
      throw new Fault("definition.json: cannot be read");
    }
    if (!Array.isArray(migrated) || !migrated.every((one) => isObject(one) && Number.isInteger(one.edition) &&
      isText(one.text) && textList(one.operations))) {
      throw new Fault("definition.json: cannot be read");
    }
    for (const one of migrated) onlyMembers("definition.json", one, ["edition", "text", "operations"]);
    for (const step of editions.flatMap((edition) => Object.values(edition))) {
      onlyMembers("definition.json", step, Object.keys(STEP));
      const empty = ["within", "branch", "terms", "tools", "workflow", "model"];
      const fits = isObject(step) && isText(step.operation) && Object.entries(step).every(([name, value]) =>
        STEP[name](value) || (value === null && empty.includes(name)));
      if (!fits) throw new Fault("definition.json: has a step that cannot be read");
      onlyMembers("definition.json: terms", step.terms, TERMS);
    }
    this.operations = operations;
    this.added = added;
    this.migrated = migrated;
    this.editions = editions.map((edition) => new Map(Object.entries(edition)));
    const declared = [...Object.values(operations), ...Object.values(added)];
    const withheld = declared.filter((one) => Object.hasOwn(one, "withheld"));
    for (const one of withheld) {
      onlyMembers("declaration", one, ["name", "connector", "side_effects", "in_doubt", "withheld"]);
    }
    this.withheld = withheld.length;
    if (this.digestOf(text, Object.keys(operations)) !== named) {
      throw new Fault("definition.json: has other declarations than the definition that run.opened names");
    }
    if (!editions.length) throw new Fault("definition.json: has no steps");
  }

  // The digest of the definition with this text and the declarations with these names.
  digestOf(text, names) {
    const parts = Object.fromEntries(names.map((name) => {
      const one = this.declared(name) ?? {};
      return [name, Object.hasOwn(one, "withheld") ? one.withheld : digest(one)];
    }));
    return digest([isText(text) ? text : null, parts]);
  }

  declared(operation) {
    return [this.operations, this.added].map((all) => Object.hasOwn(all, operation) ? all[operation] : null)
      .find(Boolean) ?? null;
  }

  // True if the operation changes something outside; null if it is not declared.
  effect(operation) {
    const declared = this.declared(operation);
    return declared === null ? null : declared.side_effects !== "none";
  }

  // True if agents carry it out themselves, by permits; null if its declaration is withheld.
  atAgents(operation) {
    const { handler } = this.declared(operation) ?? {};
    return isText(handler) ? handler.startsWith("agent:") : null;
  }

  staysInside(operation) {
    const declared = this.declared(operation) ?? {};
    const handler = String(declared.handler || declared.connector || operation);
    return handler.split(/[.:]/)[0] === "transform" && this.effect(operation) === false;
  }
}

function extractOf(told, name) {
  onlyMembers(name, told, ["people", "principals"]);
  const { people, principals } = told;
  const fits = isObject(people) && isObject(principals) && Object.values(principals).every(textList) &&
    Object.values(people).every((one) => {
      onlyMembers(name, one, ["groups", "standing", "delegate"]);
      const record = one?.delegate ?? null;
      return isObject(one) && textList(one.groups) && isText(one.standing) && (record === null ||
        (isText(record.to) && [record.begins, record.ends].every((at) => isText(at) && !Number.isNaN(micros(at)))));
    });
  if (!fits) throw new Fault(`${name}: cannot be read`);
  return {
    people: new Map(Object.entries(people).map(([who, one]) => [who, { ...one, groups: new Set(one.groups) }])),
    principals: new Map(Object.entries(principals)),
  };
}

// -- judges ------------------------------------------------------------------------------------------------------------

class Judge {
  constructor(kase) {
    this.case = kase;
    this.faults = [];
  }

  get whole() {
    return this.case.whole;
  }

  fault(event, words) {
    this.faults.push(`event ${event.seq}: ${words}`);
  }

  end() {}
}

const CHOICES = {
  action: ["approve", "reject"], gate: ["approve", "reject"], in_doubt: ["happened", "again", "fail"],
};
const CHOICE_OF = { approved: "approve", rejected: "reject" };

function mayMean(principal, person) {
  const form = (text) => text.normalize("NFKC").replace(/\p{Cf}/gu, "").split(/\s+/u).filter(Boolean).join(" ");
  const folded = (text) => text.toUpperCase().toLowerCase();
  const colon = principal.indexOf(":"), kind = colon < 0 ? "" : folded(form(principal.slice(0, colon)));
  const kinds = ["person", "slack", "token", "os", "servicenow", "email", "oidc"];
  if (colon >= 0 && kinds.includes(kind) && principal.slice(colon + 1)) {
    return (kind === "person" || kind === "token") && folded(form(principal.slice(colon + 1))) === folded(person);
  }
  return folded(form(principal)) === folded(person);
}

const barredBy = (kase, question, voter, directory) =>
  partOf(kase, question, voter, directory, (role) => !question.terms.allow.includes(role));

// True if this person has asked for it, or filled in a form that it comes from: they may correct it.
const gave = (kase, question, who, directory) =>
  partOf(kase, question, who, directory, (role) => role === "requester" || role === "form_filler") !== null;

function partOf(kase, question, voter, directory, counts) {
  const extract = kase.extracts.get(word(directory));
  const every = question.contributors ?? [{ role: "requester", principal: question.requester, person: null }];
  for (const one of every) {
    if (!counts(one.role)) continue;
    if (one.person === voter || extract?.principals.get(one.principal)?.includes(voter)) return one.role;
    if (!extract && one.person === null && mayMean(one.principal, voter)) return one.role;
  }
  return null;
}

function decidesFor(extract, voter, behalf, at) {
  const whose = extract.people.get(behalf), record = whose?.delegate ?? null;
  if (whose?.standing !== "person" || record === null || voter === behalf || record.to !== voter) return false;
  return micros(record.begins) <= micros(at) && micros(at) < micros(record.ends);
}

function holds(key, voter, person) {
  const colon = key.indexOf(":"), source = key.slice(0, colon), group = key.slice(colon + 1);
  if (source === "group") return person.groups.has(group);
  return (source === "person" || source === "manager_of") && group.split("/")[0] === voter;
}

class People extends Judge {
  constructor(kase) {
    super(kase);
    this.asked = new Map();
    this.votes = 0;
    this.unproven = new Set();
    this.editors = new Map();
    this.movers = new Set();
    this.requester = "";
  }

  observe(event) {
    const { type, data } = event;
    const does = {
      "approval.requested": this.requested, "approval.said": this.said, "approval.reassigned": this.handed,
      "approval.edited": this.edited, "approval.voted": this.voted, "approval.decided": this.decided,
      "approval.escalated": this.escalated, "approval.expired": this.expired, "approval.superseded": this.superseded,
      "approval.consumed": this.consumed, "action.intended": this.intended,
    }[type];
    if (type === "run.migrated" && event.actor.kind === "person") this.movers.add(event.actor.id);
    if (!does || (data.approval ?? null) === null) return;
    const asked = this.asked.get(data.approval);
    if (!asked && type !== "approval.requested") this.fault(event, "nobody was asked this");
    else if (asked && event.step !== asked.step && event.step !== null) {
      this.fault(event, `the question was asked at the step ${asked.step}`);
    } else does.call(this, event, asked);
  }

  requested(event) {
    const { data } = event, question = this.case.question(data.approval), kind = word(data.kind);
    this.asked.set(data.approval, {
      at: event.ts, step: event.step, action: data.action, kind, question, status: "requested", decidedAt: "",
      escalated: false, seq: event.seq, votes: new Map(), answered: new Set(), edited: false, used: 0,
    });
    if (!CHOICES[kind] || (data.action === null) !== (kind === "gate")) {
      this.fault(event, "it asks about nothing that can be asked");
    }
    if (question === null) {
      if (this.whole) this.fault(event, "its terms are withheld, so nothing shows that its answers meet them");
      return;
    }
    this.requester ||= question.requester;
    if (question.requester !== this.requester) {
      this.fault(event, `its requester is '${question.requester}', and that of another '${this.requester}'`);
    }
    if (question.kind !== kind || question.terms.tier !== data.tier) {
      this.fault(event, "its kind or its tier is not that of what was put");
    }
    if (!question.terms.approvers.length) this.fault(event, "its terms name nobody who may approve");
    const shaped = new Set((question.contributors ?? []).filter((one) => one.role === "editor").map((one) => one.person));
    const strange = [...(this.editors.get(word(event.step)) ?? [])].filter((one) => !shaped.has(one)).sort();
    if (kind !== "gate" && strange.length) {
      this.fault(event, `${strange[0]} edited it, and is not among those who shaped it`);
    }
  }

  said(event, asked) {
    const { said } = event.data;
    if (!["asks", "answers", "comments"].includes(said)) this.fault(event, `'${said}' is nothing that is said`);
    this.talks(event, asked, said === "asks");
    if (said === "answers") asked.answered.add(event.actor.id);
  }

  handed(event, asked) {
    this.talks(event, asked, true);
    const { to, directory } = event.data, { question } = asked;
    if (question === null || keysOf(question.terms, asked.escalated).has(to)) return;
    if (!this.eligible(question, to, directory, asked)) {
      this.fault(event, `it was handed to ${to.slice(0, 100)}, who may not decide it`);
    }
  }

  edited(event, asked) {
    const who = event.actor.id, { question } = asked, { directory } = event.data, step = word(event.step);
    this.talks(event, asked, false);
    if (asked.kind !== "action") this.fault(event, "an answer to another question than about an action was edited");
    asked.edited = true;
    this.editors.set(step, (this.editors.get(step) ?? new Set()).add(who));
    if (question === null || this.eligible(question, who, directory, asked)) return;
    if (!gave(this.case, question, who, directory)) {
      this.fault(event, `${who} may not decide this and has not asked for it, and edited it`);
    }
  }

  talks(event, asked, decides) {
    const { id: who, kind } = event.actor;
    if (asked.status !== "requested") this.fault(event, `${who} spoke after the question was ${asked.status}`);
    if (kind !== "person") this.fault(event, `${kind}:${who} is no person, and spoke`);
    if (decides && asked.question !== null && !this.eligible(asked.question, who, event.data.directory, asked)) {
      this.fault(event, `${who} may not decide this, and asked for more or handed it on`);
    }
  }

  eligible(question, who, directory, asked) {
    const extract = this.case.extracts.get(word(directory));
    if (!extract) {
      this.unproven.add(word(directory));
      return true;
    }
    const person = extract.people.get(who);
    if (person?.standing !== "person" || barredBy(this.case, question, who, directory) !== null) return false;
    return [...keysOf(question.terms, asked.escalated)].some(
      (key) => key.startsWith("slack_group:") || holds(key, who, person));
  }

  carried(asked, votes, choice) {
    const { question } = asked, counts = question?.terms.allow.includes("answerer") ?? false;
    const own = [...votes].filter((vote) => counts || vote.glass || !vote.people.some((one) => asked.answered.has(one)))
      .filter((vote) => vote.choice === choice);
    if (question === null) return own.length > 0;
    const keys = glassKeys(question.terms);
    if (choice === "approve" && keys && own.some((vote) => vote.glass && keys.every((key) => vote.groups.has(key)))) {
      return true;
    }
    return plansOf(question.terms, asked.escalated).some(
      (plan) => planMet(question.terms, plan, own.map((vote) => vote.groups)));
  }

  voted(event, asked) {
    const { data } = event, { id: voter, kind } = event.actor, { question } = asked;
    this.votes += 1;
    if (asked.status !== "requested") this.fault(event, `the vote of ${voter} came after the question was ${asked.status}`);
    if (asked.edited) this.fault(event, `${voter} voted on what was edited since`);
    if (kind !== "person") this.fault(event, `${kind}:${voter} is no person, and voted`);
    if (!(CHOICES[asked.kind] ?? []).includes(data.choice)) this.fault(event, `'${data.choice}' is no answer to this`);
    else if ((data.choice === "reject" || asked.kind === "in_doubt") && data.reason_given !== true) {
      this.fault(event, "it gives no reason");
    }
    const told = (data.groups ?? []).map(word), behalf = data.on_behalf || "";
    if (question !== null) this.may(event, asked, question, new Set(told), behalf);
    const every = this.whole || question === null ? new Set() : keysOf(question.terms, asked.escalated);
    const groups = told.length ? new Set(told) : every, people = behalf ? [voter, behalf] : [voter];
    // A vote for somebody else speaks for both people: it replaces the earlier vote of either.
    for (const [one, before] of [...asked.votes]) {
      if (before.people.some((each) => people.includes(each))) asked.votes.delete(one);
    }
    const glass = data.glass === true;
    asked.votes.set(voter, { voter, choice: data.choice, groups, behalf, people, at: event.ts, glass });
  }

  may(event, asked, question, groups, behalf) {
    const { data, ts } = event, voter = event.actor.id, { terms } = question, { directory } = data;
    if (secondsBetween(asked.at, ts) >= (terms.expires_seconds || EXPIRES_SECONDS) + CLOCK_SECONDS) {
      this.fault(event, `the vote of ${voter} came after the question had expired`);
    }
    if (this.whole && !groups.size) this.fault(event, `the vote of ${voter} counts for no group`);
    const glass = data.glass === true, broken = glass ? noGlass(asked.kind, terms, data, groups) : null;
    if (broken !== null) this.fault(event, `${voter} broke the glass, and ${broken}`);
    const keys = keysOf(terms, asked.escalated), strange = [...groups].filter((key) => !keys.has(key)).sort();
    if (!glass && strange.length) {
      this.fault(event, `the vote of ${voter} counts for ${strange[0]}, which was not asked`);
    }
    for (const who of behalf ? [voter, behalf] : [voter]) {
      const role = barredBy(this.case, question, who, directory);
      if (role !== null && !glass) this.fault(event, `${who} shaped this as ${role}, and voted on it`);
      if (this.movers.has(who) && role === null && !terms.allow.includes("editor") && !glass) {
        this.fault(event, `${who} moved the run to another version, and voted on what comes`);
      }
      if (asked.answered.has(who) && !terms.allow.includes("answerer") && !glass) {
        this.fault(event, `${who} answered a question about this, and voted on it`);
      }
    }
    if (behalf) this.delegated(event, asked, behalf, groups);
    this.member(event, directory, voter, groups, behalf);
    if (this.whole && !(isObject(data.identity) && Object.keys(data.identity).length)) {
      this.fault(event, `nothing says how ${voter} was known`);
    }
    const login = asked.kind === "action" ? notAnew(event, asked.at, terms.step_up_seconds) : null;
    if (login !== null) this.fault(event, login);
  }

  member(event, directory, voter, groups, behalf) {
    const extract = this.case.extracts.get(word(directory));
    if (!extract) {
      this.unproven.add(word(directory));
      return;
    }
    const person = extract.people.get(voter);
    if (person?.standing !== "person") {
      return this.fault(event, `${voter} could not vote by the directory of that time`);
    }
    const whose = behalf || voter, holder = extract.people.get(whose);
    const strange = [...groups].filter((key) => !key.startsWith("slack_group:") && !(holder && holds(key, whose, holder)));
    if (strange.length) this.fault(event, `${whose} was not in ${strange.sort()[0]} by the directory of that time`);
  }

  delegated(event, asked, behalf, groups) {
    const voter = event.actor.id, own = asked.votes.get(behalf);
    const extract = this.case.extracts.get(word(event.data.directory));
    if (own && !own.behalf) this.fault(event, `${voter} voted for ${behalf}, who had voted`);
    if (![...groups].every(mayBeDelegated)) this.fault(event, `${voter} voted as what nobody does for another`);
    if (extract && !decidesFor(extract, voter, behalf, event.ts)) {
      this.fault(event, `${voter} voted for ${behalf}, whose record did not say so at that time`);
    }
  }

  decided(event, asked) {
    const { outcome } = event.data, choice = CHOICE_OF[outcome] ?? outcome, votes = [...asked.votes.values()];
    if (asked.status !== "requested") this.fault(event, `the question was ${asked.status} already`);
    asked.status = outcome;
    asked.decidedAt = event.ts;
    if (outcome === "canceled") {
      if (event.actor.kind === "person") this.fault(event, "people do not cancel questions");
      return;
    }
    if (!(CHOICES[asked.kind] ?? []).includes(choice)) this.fault(event, `'${outcome}' answers no such question`);
    else if (choice === "reject") {
      if (!votes.some((vote) => vote.choice === choice)) this.fault(event, "nobody rejected it");
    } else if (!this.carried(asked, votes, choice)) {
      this.fault(event, `the votes do not meet its terms for '${choice}'`);
    }
    const last = votes.at(-1);
    if (last?.voter !== event.actor.id || last?.choice !== choice) this.fault(event, "no vote decided it");
  }

  escalated(event, asked) {
    const escalation = asked.question?.terms.escalate ?? null;
    if (asked.status !== "requested") this.fault(event, `it is escalated although it was ${asked.status}`);
    if (asked.question !== null && escalation === null) this.fault(event, "its terms know no escalation");
    else if (escalation !== null && secondsBetween(asked.at, event.ts) + CLOCK_SECONDS < escalation.after_seconds) {
      this.fault(event, "it is escalated before its time");
    }
    asked.escalated = true;
  }

  expired(event, asked) {
    if (asked.status !== "requested") this.fault(event, `it expires although it was ${asked.status}`);
    asked.status = "expired";
  }

  superseded(event, asked) {
    if (!["requested", "approved", "happened", "again"].includes(asked.status)) {
      this.fault(event, `it is superseded although it was ${asked.status}`);
    } else if (asked.used && asked.kind !== "action") this.fault(event, "it is superseded although it was used");
    asked.status = "superseded";
  }

  consumed(event, asked) {
    if (asked.kind === "action" || !["approved", "happened", "again"].includes(asked.status)) {
      this.fault(event, `an answer is used that was ${asked.status}`);
    }
    if (asked.used) this.fault(event, "the answer was used before");
    this.still(event, asked);
  }

  intended(event, asked) {
    if (asked.kind !== "action") this.fault(event, "an action was let out by the answer to another question");
    this.still(event, asked);
  }

  // Judges that an answer is still valid when it is used: it is fresh, and its voters may still vote.
  still(event, asked) {
    const { question } = asked, first = !asked.used, { directory } = event.data;
    if (asked.edited) this.fault(event, "an approval of something else is used: it was edited since");
    asked.used += 1;
    if (question === null || !asked.decidedAt) return;
    if (first && secondsBetween(asked.decidedAt, event.ts) - question.terms.fresh_seconds > CLOCK_SECONDS) {
      this.fault(event, "the approval was too old when it was used");
    }
    const glass = question.terms.break_glass, open = secondsBetween(asked.decidedAt, event.ts);
    if (glass !== null && [...asked.votes.values()].some((vote) => vote.glass) && open > glass.seconds + CLOCK_SECONDS) {
      this.fault(event, "the glass was closed again when it was used");
    }
    const choice = CHOICE_OF[asked.status] ?? asked.status, extract = this.case.extracts.get(word(directory));
    if (!extract || choice === "reject" || choice === "fail") return;
    const kept = [];
    for (const vote of asked.votes.values()) {
      if (extract.people.get(vote.voter)?.standing !== "person") continue;
      if (!vote.glass && vote.people.some((one) => barredBy(this.case, question, one, directory) !== null)) continue;
      if (vote.behalf && !decidesFor(extract, vote.voter, vote.behalf, vote.at)) continue;
      const whose = vote.behalf || vote.voter, holder = extract.people.get(whose);
      const groups = [...vote.groups].filter((key) => key.startsWith("slack_group:") || holds(key, whose, holder));
      kept.push({ ...vote, groups: new Set(groups) });
    }
    if (!this.carried(asked, kept, choice)) {
      this.fault(event, "by the directory of that time, the votes did not meet its terms any more");
    }
  }
}

// -- actions -----------------------------------------------------------------------------------------------------------

const DENIALS = "counterseal-deny.";
const STRICTEST = ["deny", "needs_approval", "allow"];
const DOUBTS = { applied: "happened", not_applied: "again", failed: "fail" };
const listOf = (value) => Array.isArray(value) ? value : [];

// The rule with the fresh login that its policy asks for in the rule's tier, unless the rule has its own.
function withTiers(policy, rule) {
  const named = isObject(policy.step_up) ? policy.step_up[rule.tier ?? "medium"] : undefined;
  return (named ?? null) !== null && (rule.step_up ?? null) === null ? { ...rule, step_up: named } : rule;
}

const DURATION = new RegExp("^P(?=[0-9T])(?:([0-9]+)W)?(?:([0-9]+)D)?(?:T(?=[0-9])(?:([0-9]+)H)?(?:([0-9]+)M)?" +
  "(?:([0-9]+(?:\\.[0-9]+)?)S)?)?$");

// The seconds of a duration; null without one, and -1 if it cannot be read, which no terms meet.
function secondsOf(duration) {
  if (!isText(duration)) return null;
  const found = duration.length <= 64 ? DURATION.exec(duration) : null;
  if (!found) return -1;
  const [weeks, days, hours, minutes, seconds] = found.slice(1).map((part) => Number(part ?? 0));
  const whole = (((weeks * 7 + days) * 24 + hours) * 60 + minutes) * 60 + seconds;
  return whole > 0 && whole <= 3660 * 86400 ? Math.trunc(whole) : -1;
}

// The rules of policies by their ids; null if the bundle lacks one of the policies.
function rulesOf(kase, policies) {
  const found = new Map();
  for (const sum of policies) {
    const policy = kase.policies.get(sum);
    if (!policy) return null;
    for (const rule of listOf(policy.rules).filter(isObject)) {
      const told = withTiers(policy, rule);
      found.set(word(rule.id), told);
      found.set(`${word(policy.policy)}/${word(rule.id)}`, told);
    }
  }
  return found;
}

const outcomesOf = (rule) => new Set([rule?.outcome, rule?.otherwise].filter((one) => (one ?? null) !== null).map(String));

function misjudged(outcome, fired) {
  const place = STRICTEST.indexOf(outcome);
  let reached = false;
  for (const rule of fired) {
    const mays = outcomesOf(rule);
    if (mays.size && [...mays].every((one) => STRICTEST.includes(one) && STRICTEST.indexOf(one) < place)) {
      return `the rule ${rule.id} comes to ${[...mays].sort().join(", ")}, and it is ${outcome}`;
    }
    reached ||= mays.has(outcome);
  }
  return reached ? null : `no rule that it names comes to ${outcome}`;
}

function globMatches(glob, name) {
  return new RegExp(`^${glob.split("*").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join(".*")}$`, "s")
    .test(name);
}

function* alwaysFire(kase, policies, operation) {
  for (const sum of policies) {
    const policy = kase.policies.get(sum) ?? {};
    for (const rule of listOf(policy.rules).filter(isObject)) {
      if ((rule.when ?? null) !== null || !isObject(rule.match) || !Object.keys(rule.match).length) continue;
      const connector = kase.definition?.declared(operation)?.connector || operation.split(".")[0];
      if ((rule.match.connector ?? null) !== null && rule.match.connector !== connector) continue;
      const glob = rule.match.operation ?? null;
      if (glob === null || globMatches(String(glob), operation)) {
        yield [word(rule.id), `${word(policy.policy)}/${word(rule.id)}`];
      }
    }
  }
}

function* groupsOf(approvers) {
  for (const one of listOf(approvers).filter(isObject)) {
    const kind = [...SOURCES].find((each) => (one[each] ?? null) !== null) ?? "slack_group";
    const name = kind === "group" || kind === "slack_group" ? word(one[kind]) : "";
    yield [`${kind}:${name}`, Number.isInteger(one.of) ? one.of : 1];
  }
}

const isOf = (key, named) => key === named || (named.endsWith(":") && key.startsWith(named));

function* weaker(terms, fired) {
  const asked = new Map(terms.approvers.map((group) => [keyOfGroup(group), group.of]));
  for (const rule of fired) {
    const mays = outcomesOf(rule);
    if (mays.size !== 1 || !mays.has("needs_approval")) continue;
    for (const [key, of] of groupsOf(rule.approvers)) {
      const named = asked.get(key) || Math.max(0, ...[...asked].filter(([one]) => isOf(one, key)).map(([, each]) => each));
      if (named < of) yield `the rule ${rule.id} asks for ${of} of ${key}, and ${named} were asked for`;
    }
    if (rule.two_person === true && !terms.two_person) yield `the rule ${rule.id} asks for two people`;
    const anew = secondsOf(rule.step_up), asks = terms.step_up_seconds || -1;
    if (anew !== null && !(asks >= 0 && asks <= anew)) {
      yield `the rule ${rule.id} asks for a login anew, good for ${anew} seconds`;
    }
    const glass = terms.break_glass, told = isObject(rule.break_glass) ? rule.break_glass : {};
    const longest = secondsOf(told.for) || -1;
    if (glass !== null && !(glass.by.includes(told.by) && glass.review.includes(told.review) && glass.seconds <= longest)) {
      yield `the rule ${rule.id} does not let them break the glass so`;
    }
    const allowed = new Set(listOf(rule.allow).map(String));
    const strange = terms.allow.filter((role) => !allowed.has(role)).sort();
    if (strange.length) yield `the rule ${rule.id} does not let a ${strange[0]} decide`;
  }
}

function otherGate(terms, gate) {
  const given = gate.terms ?? {};
  for (const name of ["approvers", "two_person", "tier", "expires_seconds", "fresh_seconds", "escalate"]) {
    if (!same(terms[name], given[name])) return name;
  }
  const allowed = new Set(listOf(given.allow).map(String));
  return terms.allow.every((role) => allowed.has(role)) ? null : "allow";
}

class Actions extends Judge {
  constructor(kase, people) {
    super(kase);
    this.people = people;
    this.steps = null;
    this.done = new Set();
    this.allowed = new Map();
    this.effects = new Map();
    this.decisions = new Map();
    this.newest = new Map();
    this.workflow = {};
    this.canceled = false;
  }

  observe(event) {
    const { type, data, step } = event;
    const status = { "action.succeeded": "succeeded", "action.failed": "failed", "action.in_doubt": "in_doubt" }[type];
    if (type === "run.opened") this.workflow = data.workflow;
    else if (type === "run.canceled") this.canceled = true;
    else if (type === "run.reopened") {
      this.canceled = false;
      for (const pair of data.steps) if (Array.isArray(pair) && pair.length) this.done.delete(word(pair[0]));
    } else if (type === "action.recalled") this.done.add(word(step));
    else if (type === "decision.made") this.decide(event);
    else if (type === "approval.requested") this.ask(event);
    else if (type === "action.intended") this.intend(event);
    else if (type === "action.doubt_resolved") this.resolve(event);
    else if (type === "action.unneeded") {
      this.decision(event, null);
      this.done.add(word(step));
    } else if (status && this.effects.has(data.receipt)) {
      const effect = this.effects.get(data.receipt);
      effect.status = status;
      if (step !== effect.step && step !== null) this.fault(event, `the effect was let out at the step ${effect.step}`);
      if (status === "succeeded") {
        this.done.add(word(effect.step));
        if ((data.ran ?? null) !== effect.gate) {
          this.fault(event, "it counts as done, and its agent does not report that just this call ran");
        }
      }
    }
  }

  decide(event) {
    const { data, step } = event, { outcome, operation } = data;
    const rules = listOf(data.rules).map(word);
    const policies = data.policies.filter(isObject).map((one) => word(one.digest));
    const made = { seq: event.seq, step, operation, outcome, rules, policies, used: false };
    this.decisions.set(data.decision, made);
    this.newest.set(step, data.decision);
    this.allowed.set(step, outcome);
    if (event.actor.kind !== "policy") this.fault(event, `${event.actor.kind} is no policy, and decided`);
    if (!STRICTEST.includes(outcome)) return this.fault(event, `no policy comes to '${outcome}'`);
    const known = rulesOf(this.case, policies);
    if (known === null) {
      if (outcome !== "deny") this.fault(event, "it is no denial, and one of its policies cannot be read");
      return;
    }
    if (outcome === "deny") return; // also by caps, by an account that is off, by no rule at all
    if (data.errors?.length) this.fault(event, "rules could not be evaluated, and it is no denial");
    const strange = rules.find((rule) => !known.has(rule));
    if (strange !== undefined) this.fault(event, `no policy has a rule '${strange}'`);
    for (const names of alwaysFire(this.case, policies, operation)) {
      if (!names.some((name) => rules.includes(name))) {
        this.fault(event, `the rule ${names[0]} has no condition, and the decision leaves it out`);
      }
    }
    const why = strange === undefined ? misjudged(outcome, rules.map((rule) => known.get(rule))) : null;
    if (why) this.fault(event, why);
  }

  ask(event) {
    const asked = this.people.asked.get(event.data.approval);
    if (asked?.seq !== event.seq) return;
    const decision = this.decisions.get(this.newest.get(event.step)) ?? null;
    if (asked.kind === "action") {
      if (decision?.outcome !== "needs_approval") this.fault(event, "people are asked what no decision has left to them");
    } else if (asked.kind === "in_doubt" && !this.about(asked.action).some((one) => one.status === "in_doubt")) {
      this.fault(event, "people are asked about an action that is not in doubt");
    }
    if (asked.question !== null) this.terms(event, asked, decision);
    this.card(event, asked, asked.kind === "action" ? decision : null);
  }

  about(action) {
    return [...this.effects.values()].filter((one) => one.action === action);
  }

  terms(event, asked, decision) {
    const { terms } = asked.question;
    if (asked.kind === "action" && decision) {
      const rules = rulesOf(this.case, decision.policies) ?? new Map();
      for (const why of weaker(terms, decision.rules.filter((rule) => rules.has(rule)).map((rule) => rules.get(rule)))) {
        this.fault(event, why);
      }
    } else if (asked.kind === "gate" && this.steps) {
      const gate = this.steps().get(parted(word(event.step))[1]), name = gate ? otherGate(terms, gate) : null;
      if (gate?.operation !== "approve") this.fault(event, `${event.step} is no gate of the workflow`);
      else if (name !== null) this.fault(event, `its ${name} is not that of the workflow's gate`);
    } else if (asked.kind === "in_doubt") {
      const before = [...this.people.asked.values()].filter((one) => one.question && one.action === asked.action);
      const known = ["group:operators", ...before.slice(0, -1).flatMap((one) => one.question.terms.approvers.map(keyOfGroup))];
      for (const rule of (rulesOf(this.case, decision?.policies ?? []) ?? new Map()).values()) {
        if (isObject(rule.in_doubt)) known.push(...[...groupsOf(rule.in_doubt.approvers)].map(([key]) => key));
      }
      const strange = terms.approvers.map(keyOfGroup).find((key) => !known.some((name) => isOf(key, name)));
      if (strange) this.fault(event, `nothing lets ${strange} decide about this doubt`);
    }
  }

  card(event, asked, decision) {
    const { question } = asked, card = question?.card ?? null;
    if (card === null) {
      if (this.whole && question !== null && event.data.secret !== true && !this.case.apart) {
        this.fault(event, "its card is withheld although nothing on it is secret");
      }
      return;
    }
    const { name, version } = this.workflow;
    const wanted = { step: event.step, workflow: name, workflow_version: version };
    if (asked.kind === "gate") wanted.operation = "approve";
    else wanted.tier = event.data.tier;
    if (asked.kind === "in_doubt") {
      const last = this.about(asked.action).at(-1);
      if (last) wanted.operation = last.operation;
    } else if (decision) {
      wanted.operation = decision.operation;
      this.shownRules(event, listOf(card.rules).filter(isObject).map((one) => word(one.id)), decision);
    }
    for (const [what, value] of Object.entries(wanted)) {
      if (Object.hasOwn(card, what) && !same(card[what], value)) {
        this.fault(event, `the card shows another ${what} than what was judged`);
      }
    }
  }

  shownRules(event, shown, decision) {
    const strange = shown.find((one) => !decision.rules.includes(one));
    if (strange !== undefined) {
      return this.fault(event, `the card names the rule '${strange}', which the decision does not`);
    }
    const rules = rulesOf(this.case, decision.policies) ?? new Map();
    for (const name of decision.rules) {
      const mays = outcomesOf(rules.get(name)), asks = mays.has(decision.outcome);
      if (shown.includes(name) ? mays.size && !asks : mays.size === 1 && asks) {
        this.fault(event, `the card names other rules than those that ask: '${name}'`);
      }
    }
  }

  intend(event) {
    const { data, step } = event, effect = this.effects.get(data.receipt), before = effect?.attempt ?? 0;
    this.decision(event, data.approval);
    if (data.attempt !== before + 1) this.fault(event, `attempt ${data.attempt} follows attempt ${before}`);
    if (effect?.status === "in_doubt" && !effect.retried) {
      this.fault(event, "it is sent again although nothing has ended the doubt");
    }
    if (effect && effect.step !== step) this.fault(event, `the effect was let out at the step ${effect.step} before`);
    if (this.canceled) this.fault(event, "it was let out after the run was canceled");
    if (this.case.definition && this.case.definition.effect(data.operation) !== true) {
      this.fault(event, `${data.operation} is declared to have no effect, or not at all`);
    }
    if (this.whole && !Number.isInteger(data.stop)) {
      this.fault(event, "it does not name the stop number under which it was let out");
    }
    const { action, operation, attempt } = data, gate = this.gate(event, effect);
    this.effects.delete(data.receipt); // the order is that of the newest attempts
    this.effects.set(data.receipt, { action, operation, step, attempt, status: "intended", retried: false, gate });
  }

  // The call that an agent carries out by its one permit; null if the runtime carries it out.
  gate(event, effect) {
    const { definition } = this.case, { operation } = event.data, gate = (effect ? effect.gate : event.data.gate) ?? null;
    if (gate !== null && [...this.effects.values()].some((one) => one.gate && one.step === event.step)) {
      this.fault(event, "a permit had gone out for it before, and there is no second one");
    }
    if (definition && definition.atAgents(operation) === (gate === null)) {
      this.fault(event, `${operation} is declared to be carried out by another than the line says`);
    }
    return gate;
  }

  decision(event, approval) {
    const { data } = event, made = this.decisions.get(data.decision);
    if (!made) return; // the row "authority" says so
    if (made.step !== event.step || this.newest.get(event.step) !== data.decision) {
      this.fault(event, `the decision ${data.decision} is not the newest at this step`);
    }
    if (made.used) this.fault(event, `the decision ${data.decision} has let out something before`);
    made.used = true;
    if (this.people.asked.get(approval)?.seq > event.seq) this.fault(event, "people were asked afterwards");
  }

  resolve(event) {
    const { receipt, resolution, by, approval } = event.data, effect = this.effects.get(receipt);
    if (!effect) return;
    effect.retried = resolution === "not_applied";
    effect.status = { applied: "succeeded", failed: "failed" }[resolution] ?? effect.status;
    if (resolution === "applied") this.done.add(word(effect.step));
    if (by === undefined && !this.whole) return;
    if (!["probe", "again", "people", "none"].includes(by)) this.fault(event, "nothing says who ended the doubt");
    else if (by === "people") this.byPeople(event, effect, resolution);
    else if ((approval ?? null) !== null) this.fault(event, "it names an answer of people, who did not end it");
    else if (by === "none" && resolution !== "failed") this.fault(event, `nobody found out, and it counts as ${resolution}`);
    else if (by !== "none" && this.case.definition) {
      const declared = this.case.definition.declared(effect.operation)?.in_doubt;
      if (declared !== { probe: "probe", again: "idempotent" }[by]) {
        this.fault(event, `${effect.operation} is declared to leave a doubt to '${declared}'`);
      }
    }
  }

  byPeople(event, effect, resolution) {
    const asked = this.people.asked.get(event.data.approval);
    if (!asked || asked.action !== effect.action || asked.step !== effect.step) {
      return this.fault(event, "no question about this action ended the doubt");
    }
    const doubt = asked.kind === "in_doubt", wanted = doubt ? DOUBTS[resolution] : "approved";
    if (doubt && resolution !== "failed" && !asked.used) {
      this.fault(event, "the answer that ended the doubt was not used up");
    }
    const ordered = resolution === "failed" && ["again", "approved"].includes(asked.status);
    if (asked.status !== wanted && !ordered) {
      this.fault(event, `people said ${asked.status}, and it counts as ${resolution}`);
    }
  }
}

// -- steps -------------------------------------------------------------------------------------------------------------

const OVER = new Set(["succeeded", "failed", "canceled"]);
const LIFE = {
  "step.started": ["running", ["", "resumed", "expired"]],
  "step.succeeded": ["succeeded", ["running"]],
  "step.failed": ["failed", ["running", "parked"]],
  "step.parked": ["parked", ["running"]],
  "step.retry_scheduled": ["retry", ["running"]],
  "step.held": ["held", ["running", "parked"]],
  "step.resumed": ["resumed", ["parked", "retry", "held"]],
  "step.set_back": ["set back", ["running"]],
  "lease.expired": ["expired", ["running", "set back"]],
  "step.canceled": ["canceled", ["", "running", "parked", "retry", "held", "resumed", "set back", "expired"]],
};

class Steps extends Judge {
  constructor(kase, actions) {
    super(kase);
    this.actions = actions;
    if (kase.definition) actions.steps = () => this.steps;
    this.lives = new Map();
    this.extensions = 0;
    this.checkpoint = -1;
    this.canceled = false;
    this.definition = null;
    this.migrations = 0;
    this.waits = new Map();
  }

  get steps() {
    const editions = this.case.definition?.editions;
    return editions ? editions[Math.min(this.extensions, editions.length - 1)] : null;
  }

  observe(event) {
    const { type, data, step } = event;
    if (LIFE[type]) this.move(event);
    else if (type === "approval.consumed" && this.lives.has(step)) this.lives.get(step).consumed = true;
    else if (type === "checkpoint.committed") {
      if (data.number !== this.checkpoint + 1) this.fault(event, `checkpoint ${data.number} follows ${this.checkpoint}`);
      this.checkpoint = data.number;
    } else if (type === "run.extended") this.extend(event);
    else if (type === "run.migrated") this.migrate(event);
    else if (type === "run.forked") this.fork(event);
    else if (type === "run.opened") this.definition = data.definition ?? null;
    else if (type === "run.canceled") this.canceled = true;
    else if (type === "run.reopened") this.reopen(event);
    else if (type === "run.closed") this.close(event);
    else if (type.startsWith("wait.")) this.wait(event);
    else if (type === "hold.answered") this.answer(event);
  }

  move(event) {
    const { type, data, step: key } = event, [state, allowed] = LIFE[type];
    if (!isText(key)) return this.fault(event, "it names no step");
    const life = this.lives.get(key) ?? { state: "", operation: "", consumed: false, answer: "", released: false };
    this.lives.set(key, life);
    if (!allowed.includes(life.state)) {
      this.fault(event, `${key} is ${life.state || "not begun"}, and ${type.split(".")[1]} follows`);
    }
    life.state = state;
    if (type === "step.started") {
      life.operation = word(data.operation);
      life.consumed = false;
      this.mayBegin(event, key, life);
    } else if (type === "step.parked" || type === "step.held") this.wait(event);
    else if (type === "step.succeeded") this.maySucceed(event, key, life);
    else if (type === "step.failed" && data.released) {
      life.released = true;
      if (life.answer !== "without") this.fault(event, `nobody has said that the run goes on without ${key}`);
    }
  }

  mayBegin(event, key, life) {
    const [prefix, node, inner] = parted(key), { steps } = this;
    if (!steps) return;
    if (!steps.has(node)) return this.fault(event, `${key} is no step of the workflow, and no extension has added it`);
    if (inner) return;
    const { operation } = steps.get(node);
    if (operation !== life.operation) this.fault(event, `${key} is ${operation} in the workflow, and ${life.operation} here`);
    const late = this.notOver(steps, prefix, node);
    if (late !== null) this.fault(event, `${key} begins before ${late} is over, which it needs`);
  }

  notOver(steps, prefix, node) {
    for (let at = node; at !== null;) {
      const step = steps.get(at), around = step.within ?? null;
      for (const need of step.needs ?? []) if (steps.has(need) && !this.isOver(steps, prefix, need)) return prefix + need;
      if (around !== null && steps.get(around).branches?.includes(step.branch) &&
        this.lives.get(prefix + around)?.state !== "failed") {
        return prefix + around;
      }
      at = around;
      if (at !== null && steps.get(at).loops) prefix = prefix.slice(0, prefix.slice(0, -1).lastIndexOf(".") + 1);
    }
    return null;
  }

  isOver(steps, prefix, node) {
    if (!COMPOSITES.has(steps.get(node).operation) && !OVER.has(this.lives.get(prefix + node)?.state)) return false;
    const within = new Set([...steps.keys()].filter((name) => name !== node && aroundOf(steps, name).includes(node)));
    return [...this.lives].every(([key, life]) => OVER.has(life.state) || key.includes("/") ||
      !within.has(parted(key)[1]) || !key.startsWith(prefix));
  }

  maySucceed(event, key, life) {
    const { definition } = this.case, { operation } = life;
    if (operation === "approve" && !life.consumed) this.fault(event, `the gate ${key} was passed without an approval`);
    if (!definition || definition.declared(operation) === null) return;
    if (definition.effect(operation) && !this.actions.done.has(key)) {
      this.fault(event, `${operation} has an effect, and no line says that it was let out and happened`);
    }
    const outcome = this.actions.allowed.get(key);
    if (!definition.staysInside(operation) && (outcome === undefined || outcome === "deny")) {
      this.fault(event, `${key} succeeded, and policy did not let it`);
    }
  }

  answer(event) {
    const { choice } = event.data, life = this.lives.get(word(event.step));
    this.wait(event);
    if (event.actor.kind !== "person") this.fault(event, "no person has answered");
    if (!life || !["held", "retry"].includes(life.state)) this.fault(event, `${event.step} waits for no such answer`);
    else if (!["again", "without", "cancel"].includes(choice) || (life.state === "retry" && choice !== "again")) {
      this.fault(event, `'${choice}' is no answer to this`);
    } else life.answer = choice;
  }

  wait(event) {
    const { type, data, step } = event, wait = word(data.wait);
    if (["wait.opened", "step.parked", "step.held"].includes(type)) {
      if (data.known && !this.waits.has(wait)) this.fault(event, "it waits for what was never opened");
      this.waits.set(wait, step);
      return;
    }
    if (!this.waits.has(wait)) this.fault(event, "it ends what nobody waited for");
    else if (this.waits.get(wait) !== step) this.fault(event, `the wait is that of ${this.waits.get(wait)}`);
    if (type === "wait.completed" && data.kind === "task" && event.actor.kind !== "person") {
      this.fault(event, "no person has completed the task");
    }
  }

  extend(event) {
    const { number, steps } = event.data, editions = this.case.definition?.editions;
    this.extensions += 1;
    if (number !== this.extensions) this.fault(event, `extension ${number} is number ${this.extensions}`);
    if (!editions) return;
    if (editions.length <= this.extensions) return this.fault(event, "the definition has no such edition");
    const now = editions[this.extensions], before = editions[this.extensions - 1];
    const added = [...now.keys()].filter((name) => !before.has(name) && (now.get(name).within ?? null) === null);
    if (!same(added.sort(), [...new Set(steps.map(word))].sort())) {
      this.fault(event, "the definition has other steps added than it says");
    }
  }

  fork(event) {
    const { steps } = this;
    if (event.seq !== 1) this.fault(event, "a run is begun from another one at its opening, or not at all");
    for (const one of event.data.steps) {
      const [key, operation, state] = Array.isArray(one) && one.length === 3 ? one : [];
      if (!isText(key) || !isText(operation) || !["succeeded", "failed"].includes(state) || this.lives.has(key)) {
        this.fault(event, "it takes over what is no step that is over");
        continue;
      }
      this.lives.set(key, { state, operation, consumed: false, answer: "", released: true });
      if (operation === "approve") this.fault(event, `it takes over the gate ${key}: its answer let another run go on`);
      if (steps && steps.get(parted(key)[1])?.operation !== operation) {
        this.fault(event, `it takes over ${key}, which is no such step of the workflow`);
      }
    }
  }

  migrate(event) {
    const { number, workflow, definition: named, before } = event.data, was = this.steps, told = this.case.definition;
    this.extensions += 1;
    this.migrations += 1;
    if (number !== this.extensions) this.fault(event, `migration ${number} is number ${this.extensions}`);
    if (before !== this.definition) this.fault(event, "the run was of another definition before");
    this.definition = named;
    for (const [key, life] of [...this.lives].sort()) {
      if (["running", "resumed", "set back", "expired"].includes(life.state)) {
        this.fault(event, `${key} is in the middle of its work`);
      }
    }
    if (!told || !was) return;
    const moved = told.migrated.find((one) => one.edition === this.extensions), text = workflow?.digest;
    if (!moved || moved.text !== text || told.digestOf(text, moved.operations) !== named) {
      return this.fault(event, "the definition that it names is not the one that is here");
    }
    if (told.editions.length <= this.extensions) return this.fault(event, "the definition has no such edition");
    for (const problem of lost(was, told.editions[this.extensions], this.lives)) this.fault(event, problem);
  }

  reopen(event) {
    this.canceled = false;
    for (const pair of event.data.steps) {
      const key = Array.isArray(pair) && pair.length ? word(pair[0]) : "";
      if (!["failed", "canceled"].includes(this.lives.get(key)?.state)) {
        this.fault(event, `${key || "no step"} begins again although it had not failed`);
      }
      for (const one of [...this.lives.keys()]) if (one === key || one.startsWith(`${key}/`)) this.lives.delete(one);
    }
  }

  close(event) {
    const { status, error } = event.data, { steps } = this;
    if (!["succeeded", "failed_terminal", "canceled"].includes(status)) this.fault(event, `no run ends as '${status}'`);
    if (status === "canceled" && !this.canceled) this.fault(event, "it ends as canceled, and nobody canceled it");
    const open = [...this.lives].filter(([, life]) => !OVER.has(life.state)).map(([key]) => key).sort();
    if (open.length) this.fault(event, `${open[0]} is not over`);
    if (status !== "succeeded") {
      if (status === "failed_terminal" && !(error && Object.keys(error).length)) {
        this.fault(event, "it failed, and nothing says why");
      }
      return;
    }
    for (const [key, life] of this.lives) {
      const [, node, inner] = parted(key), step = steps?.get(node);
      if (inner) continue;
      const handled = life.released || step?.branches?.length > 0;
      if ((life.state === "failed" && steps && !handled) || life.state === "canceled") {
        this.fault(event, `it succeeded although ${key} was ${life.state}`);
      }
    }
    for (const [name, step] of steps ?? []) {
      if ((step.within ?? null) === null && !COMPOSITES.has(step.operation) && !this.lives.has(name)) {
        this.fault(event, `it succeeded without ${name}`);
      }
    }
  }

  // The finding in words; of a moved run with the part that only the texts of both versions show.
  said() {
    const words = `${this.lives.size} steps in the order of the workflow`;
    const more = "not evaluated: that nothing behind a passed gate is another, and nothing is done twice; compare the texts";
    return this.migrations ? `${words}; moved ${this.migrations} times, ${more}` : words;
  }

  end() {
    const editions = this.case.definition?.editions;
    if (editions && editions.length !== this.extensions + 1) {
      this.faults.push("the definition has more editions than the events tell extensions");
    }
    if (editions && this.case.definition.migrated.length !== this.migrations) {
      this.faults.push("the definition has more migrations than the events tell");
    }
  }
}

// The faults of a migration: it repeats or leaves out a step that has begun, or leaves out a gate.
function* lost(before, after, lives) {
  const begun = new Set([...lives.keys()].map((key) => parted(key)[1]));
  const placeOf = (step) => step && canonical([step.operation, step.within ?? null, step.branch ?? null]);
  for (const name of [...begun].sort()) {
    if (before.has(name) && placeOf(before.get(name)) !== placeOf(after.get(name))) {
      yield `${name} has begun, and the new version does not have it there`;
    }
  }
  for (const [name, step] of before) {
    const ahead = step.operation === "approve" && (step.within ?? null) === null && !begun.has(name);
    if (ahead && after.get(name)?.operation !== "approve") {
      yield `the gate ${name} was still ahead, and the new version has none`;
    }
  }
  for (const name of [...begun].sort()) {
    for (const need of after.get(name)?.needs ?? []) {
      const within = (before.get(name) ?? after.get(name)).within ?? null;
      if (!after.has(need)) yield `${name} needs ${need}, which the new version does not have`;
      if (after.get(need)?.operation === "approve" && !begun.has(need) && within === null) {
        yield `${name} has begun, and comes after the gate ${need} in the new version`;
      }
    }
  }
}

function aroundOf(steps, name) {
  const around = [];
  for (let at = steps.get(name).within ?? null; at !== null; at = steps.get(at).within ?? null) around.push(at);
  return around;
}

// -- agents, and runs within -------------------------------------------------------------------------------------------

class Inner extends Judge {
  constructor(kase, steps) {
    super(kase);
    this.steps = steps;
    this.calls = 0;
    this.agents = new Map();
    this.started = new Set();
  }

  observe(event) {
    const { type, data, step: key } = event;
    if (type === "agent.began") {
      const tools = new Set(data.tools.map(word)), step = this.steps.steps?.get(parted(word(key))[1]);
      this.agents.set(word(key), { model: word(data.model), tools, answers: new Map(), turns: new Set() });
      if (step && (data.model !== step.model || !same([...tools].sort(), Object.keys(step.tools ?? {}).sort()))) {
        this.fault(event, `${key} has another model, or other tools, in the workflow`);
      }
    } else if (type === "agent.answered") this.answered(event, word(key));
    else if (type === "step.started" && key?.includes("/")) this.began(event, key);
    else if (type === "step.succeeded" && isText(key)) this.succeeded(event, key);
    else if (type === "run.continued") this.continued(event, word(key));
    else if (type === "run.reopened") {
      for (const pair of data.steps) if (Array.isArray(pair) && pair.length) this.started.delete(word(pair[0]));
    }
  }

  at(key) {
    const [prefix, node, inner] = parted(key), [turn, call = ""] = inner.split("/");
    const number = (text) => /^\d+$/.test(text) ? Number(text) : 0;
    return [this.agents.get(prefix + node), number(turn), number(call)];
  }

  began(event, key) {
    const [agent, turn, call] = this.at(key), operation = word(event.data.operation);
    if (!agent) return this.fault(event, `${key} begins, and its agent has not`);
    if (!call) {
      const before = agent.answers.get(turn - 1);
      if (agent.turns.size && !agent.turns.has(turn) && !before) {
        this.fault(event, `turn ${turn} begins without the answer of the turn before`);
      } else if (before?.came === "answer") this.fault(event, `turn ${turn} begins after the agent had given its result`);
      agent.turns.add(turn);
      return;
    }
    this.calls += 1;
    const pair = agent.answers.get(turn)?.calls[call - 1];
    if (!Array.isArray(pair) || pair.length !== 2 || pair[1] !== "") {
      this.fault(event, `no model has made the call ${key}`);
    } else if (!this.isOf(word(pair[0]), key, operation)) {
      this.fault(event, `the model called ${pair[0]}, and ${operation} begins`);
    }
  }

  isOf(source, key, operation) {
    if (!this.steps.steps) return [source, "task", "run"].includes(operation);
    const tools = this.steps.steps.get(parted(key)[1])?.tools ?? {};
    return Object.hasOwn(tools, source) && tools[source] === operation;
  }

  answered(event, key) {
    const [agent, turn] = this.at(key), { came, calls } = event.data;
    if (!agent || !agent.turns.has(turn) || this.steps.lives.get(key)?.state !== "succeeded") {
      this.fault(event, `the answer of ${key} is told, and the model has given none`);
    }
    if (!agent) return;
    if (agent.answers.has(turn)) this.fault(event, `${key} was answered before`);
    for (const call of calls) {
      if (Array.isArray(call) && call.at(-1) === "" && !agent.tools.has(call[0])) {
        this.fault(event, `the model may not call ${call[0]}`);
      }
    }
    agent.answers.set(turn, { came, calls });
  }

  succeeded(event, key) {
    const life = this.steps.lives.get(key), [agent, turn, call] = this.at(key), { usage } = event.data;
    if (["run", "continue_with"].includes(life?.operation) && !this.started.has(key)) {
      this.fault(event, `${key} succeeded, and no line names the run that it started`);
    }
    if (agent && turn && !call && isObject(usage) && usage.model !== agent.model) {
      this.fault(event, `the model ${usage.model} answered, and the agent is that of ${agent.model}`);
    }
  }

  continued(event, key) {
    const life = this.steps.lives.get(key), step = this.steps.steps?.get(parted(key)[1]);
    if (!["run", "continue_with"].includes(life?.operation) || life.state !== "running") {
      this.fault(event, "a run is started by no step that runs another");
    }
    this.started.add(key);
    if (step && !key.includes("/") && step.workflow !== event.data.workflow) {
      this.fault(event, `${key} runs ${step.workflow}, and ${event.data.workflow} was started`);
    }
  }
}

// -- the tenant's state ------------------------------------------------------------------------------------------------

class Standing extends Judge {
  constructor(kase, run) {
    super(kase);
    this.run = run;
    this.compared = 0;
    this.workflow = "";
    this.paused = null;
    this.last = 0;
    this.decisions = new Map();
    const lines = kase.tenant ?? [];
    this.published = lines.filter((line) => line.type === "directory.published");
    this.lines = lines.filter((line) => STOPPING.has(line.type) && Number.isInteger(line.data.stop))
      .sort((a, b) => a.data.stop - b.data.stop);
  }

  observe(event) {
    const { type, data } = event;
    if (type === "run.opened") this.workflow = word(data.workflow?.name);
    else if (type === "run.paused") this.paused = Number.isInteger(data.stop) ? data.stop : null;
    else if (type === "run.resumed") this.paused = null;
    else if (type === "decision.made") this.decisions.set(data.decision, data.policies);
    if (["approval.voted", "action.intended", "approval.consumed"].includes(type) && isText(data.directory)) {
      this.people(event, data.directory);
    }
    if (type === "action.intended" && Number.isInteger(data.stop)) this.intended(event, data.stop);
  }

  people(event, sum) {
    if (!this.published.some((line) => line.data.digest === sum)) return;
    const before = this.published.filter((line) => line.ts <= event.ts);
    const crossed = this.published.filter((line) => Math.abs(secondsBetween(line.ts, event.ts)) < CROSSED_SECONDS);
    const earlier = before.slice(Math.max(0, before.length - 1 - crossed.length), -1);
    if (![...before.slice(-1), ...crossed, ...earlier].some((line) => line.data.digest === sum)) {
      this.fault(event, "another directory was in use at that time");
    }
  }

  intended(event, stop) {
    const { data } = event, pauses = new Set(), policies = new Map();
    if (stop < this.last) this.fault(event, "its stop number is below that of an earlier one");
    this.last = Math.max(stop, this.last);
    if (this.paused !== null && stop <= this.paused) this.fault(event, "it was let out while the run was paused");
    if (!this.case.tenant) return;
    this.compared += 1;
    for (const { type, data: told } of this.lines.filter((line) => line.data.stop < stop)) {
      if (type === "pause.set") pauses.add(word(told.paused));
      else if (type === "pause.lifted") pauses.delete(word(told.paused));
      else if (type === "policy.activated") policies.set(word(told.name), word(told.digest));
      else if (type === "policy.retired") policies.set(word(told.name), "");
    }
    const connector = data.operation.split(".")[0];
    const held = ["suspended", "tenant", `workflow:${this.workflow}`, `connector:${connector}`, `run:${this.run}`];
    for (const key of held.filter((one) => pauses.has(one))) {
      this.fault(event, `it was let out while ${key} was paused`);
    }
    for (const { name, digest: sum } of (this.decisions.get(data.decision) ?? []).filter(isObject)) {
      if (policies.has(word(name)) && policies.get(word(name)) !== sum) {
        const words = policies.get(word(name)) ? "was in force in another version" : "was retired";
        this.fault(event, `the policy ${name} judged it, and ${words}`);
      }
    }
    const denial = `${DENIALS}${data.operation}`;
    const named = (this.decisions.get(data.decision) ?? []).filter(isObject).some(({ name }) => word(name) === denial);
    if (policies.get(denial) && !named) this.fault(event, `the policy ${denial} was in force, and did not judge it`);
  }
}

// The judgement of one bundle. Whatever cannot be read becomes a fault of the row "what it is judged by".
class Judged {
  constructor(files, run, apart) {
    this.files = files;
    this.problems = [];
    this.directories = new Set();
    this.policies = new Set();
    this.case = {
      whole: false, apart, definition: null, extracts: new Map(), policies: new Map(), tenant: null,
      question: (approval) => this.question(approval),
    };
    this.run = run;
    this.parts = null;
  }

  attempt(read, where = "") {
    try {
      return read();
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      this.problems.push(where + error.message);
      return null;
    }
  }

  observe(event, opened) {
    const { type, data } = event;
    this.opened = opened;
    if (!this.parts) {
      const text = data.workflow?.digest ?? null, kase = this.case;
      kase.definition = this.attempt(() => new Definition(objectIn(this.files, "definition.json"), data.definition, text));
      kase.tenant = this.attempt(() => this.tenant());
      kase.whole = (data.tenant ?? null) !== null;
      this.people = new People(kase);
      this.actions = new Actions(kase, this.people);
      this.steps = new Steps(kase, this.actions);
      this.inner = new Inner(kase, this.steps);
      this.standing = new Standing(kase, this.run);
      this.parts = [this.people, this.actions, this.steps, this.inner, this.standing];
    }
    if (type === "decision.made") for (const policy of listOf(data.policies)) this.readPolicy(policy);
    const named = ["approval.requested", "approval.voted", "action.intended", "approval.consumed", "approval.superseded"];
    if (named.includes(type) && isText(data.directory)) this.readPeople(data.directory);
    try {
      for (const part of this.parts) part.observe(event);
    } catch (error) {
      if (!(error instanceof TypeError) && !(error instanceof Fault)) throw error;
      this.problems.push(`event ${event.seq}: cannot be judged: ${error.message}`);
    }
  }

  question(approval) {
    const [asked, card] = ["asked", "card"].map((what) => this.opened.get(pathOf("approval", approval, what)));
    return isObject(asked) ? this.attempt(() => questionOf(asked, card), `the question ${approval}: `) : null;
  }

  tenant() {
    let before = -1;
    return linesOf(this.files.get("tenant.jsonl"), "tenant.jsonl").map((line) => {
      const told = parsed(line, "tenant.jsonl"), own = told?.line;
      const fits = Number.isInteger(told?.seq) && isObject(own) && isText(own.type) && isObject(own.data) &&
        isObject(own.actor) && isText(own.ts) && told.seq > before &&
        (TENANT_AREAS.test(own.type) || TENANT_OTHERS.has(own.type));
      if (!fits) throw new Fault("tenant.jsonl: holds what is no line of a tenant, or is out of order");
      onlyMembers("tenant.jsonl", told, ["seq", "line"]);
      onlyMembers("tenant.jsonl", own, ["v", "ts", "type", "actor", "step", "data"]);
      onlyMembers("tenant.jsonl", own.actor, ["kind", "id"]);
      onlyMembers("tenant.jsonl", own.data, OF_TENANT);
      before = told.seq;
      return own;
    });
  }

  readPolicy(policy) {
    const { name, version, digest: sum } = policy ?? {}, file = `policy/${name}-${version}.json`;
    if (!isText(name) || !isText(sum) || this.policies.has(sum)) return;
    this.policies.add(sum);
    if (!this.files.has(file)) return; // a text that is no document: whatever it judges is denied
    const found = this.attempt(() => objectIn(this.files, file));
    if (found) this.case.policies.set(sum, found);
  }

  readPeople(sum) {
    const file = `directory/${sum}.json`;
    if (this.directories.has(sum)) return;
    this.directories.add(sum);
    if (!this.files.has(file)) return; // an older release kept no text of it
    const found = this.attempt(() => extractOf(objectIn(this.files, file), file));
    if (found) this.case.extracts.set(sum, found);
  }

  material() {
    for (const name of this.files.keys()) {
      if (name.startsWith("directory/") && !this.directories.has(name.slice(10, -5))) {
        this.problems.push(`${name} is of a directory that no event names`);
      }
    }
    orFaults(this.problems);
    const { policies, extracts, tenant } = this.case;
    return `the declarations that run.opened names, ${policies.size} policies, ${extracts.size} directories, ` +
      `${tenant.length} lines of the tenant`;
  }
}

function objectIn(files, name) {
  const data = files.get(name);
  if (data === undefined) throw new Fault(`${name}: is missing`);
  if (data.at(-1) !== 10) throw new Fault(`${name}: is not spelled canonically`);
  const told = parsed(data.subarray(0, -1), name);
  if (!isObject(told)) throw new Fault(`${name}: is no object`);
  return told;
}

function orFaults(faults, words = "") {
  const more = faults.length > 5 ? ` (and ${faults.length - 5} more)` : "";
  if (faults.length) throw new Fault(faults.slice(0, 5).join("; ") + more);
  return words;
}

// -- the table ---------------------------------------------------------------------------------------------------------

const NOT_PROVEN = [
  ["recorded in full", "tamper evident after recording; nothing shows that everything was recorded"],
  ["transparency log", "this bundle holds no proof from a log, so another history of this run could exist"],
  ["time", "asserted by the runtime's database; no independent time stamp"],
  ["target systems", "receipts hold what the targets answered; compare with the targets' own logs"],
  ["texts", "not compiled: that steps and rules are those of the texts is checked by `counterseal evidence verify`"],
  ["origins", "origins not recomputed: `counterseal evidence verify` does, as far as their values are opened"],
  ["rules", "rules not evaluated: this verifier has no evaluator"],
];

class Table {
  constructor() {
    this.rows = [];
    this.trusted = false;
  }

  add(check, status, detail) {
    this.rows.push({ check, status, detail });
  }

  check(name, make) {
    try {
      this.add(name, "ok", make());
      return true;
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      this.add(name, "failed", error.message);
      return false;
    }
  }

  // A row that says its own status.
  said(name, make) {
    try {
      this.add(name, ...make());
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      this.add(name, "failed", error.message);
    }
  }

  get failed() {
    return this.rows.some((row) => row.status === "failed");
  }
}

function checkSignature(table, files, options) {
  const key = keyOf(String(files.get("public-key.pem")), "public-key.pem");
  const trusted = options.key.some((one) => one.id === key.id) || options.fingerprint.includes(key.id);
  if (!files.has(ENVELOPE)) throw new Fault(`${ENVELOPE}: is missing`);
  const payload = opened(files.get(ENVELOPE), key);
  if ((options.key.length || options.fingerprint.length) && !trusted) {
    throw new Fault(`it is signed by the key ${key.id}, which is none of those that you trust`);
  }
  table.trusted = trusted;
  const words = `the key came inside the bundle; compare its fingerprint ${key.id} with one that you got on another way`;
  if (trusted) table.add("signature", "ok", `by your key ${key.id} (${key.algorithm})`);
  else table.add("signature", "warning", words);
  return { payload, key };
}

function checkIntegrity(files, subjects) {
  const present = [...files.keys()].filter((name) => name !== ENVELOPE);
  const wrong = present.filter((name) => subjects.get(name) !== hex(files.get(name)));
  const missing = [...subjects.keys()].filter((name) => !files.has(name));
  if (wrong.length || missing.length) throw new Fault(`changed, missing or extra: ${[...wrong, ...missing].slice(0, 5)}`);
  const absent = ALWAYS.filter((name) => !files.has(name));
  const unknown = [...files.keys()].filter((name) => !ALWAYS.includes(name) && !OTHERS.test(name));
  if (absent.length || unknown.length) throw new Fault(`not what a bundle holds: ${[...absent, ...unknown].slice(0, 5)}`);
  return `all ${subjects.size} files are as signed; none is missing or extra`;
}

function checkReadme(data, key, pem, run, tenant) {
  if (key.pem !== String(pem)) throw new Fault("public-key.pem: holds more than a key");
  const varied = [run, tenant, key.id, OPENSSL[key.algorithm], ""], fixed = [];
  let at = 0;
  for (const [number, length] of README_PIECES.entries()) {
    const own = Buffer.from(varied[number]);
    fixed.push(data.subarray(at, at + length));
    at += length;
    if (!data.subarray(at, at + own.length).equals(own)) throw new Fault("README.txt: is of another run, tenant or key");
    at += own.length;
  }
  if (at !== data.length || hex(Buffer.concat(fixed)) !== README_SHA256) {
    throw new Fault("README.txt: is not the text that every bundle has");
  }
  return "the text that every bundle has";
}

function checkTexts(files, history) {
  const expected = new Set(), documents = [...history.policies.values()].map((one) => ["policy", one]);
  const workflows = [history.workflow, ...history.movedTo].map((one) => ["workflow", one]);
  for (const [kind, one] of [...workflows, ...documents]) {
    const { name, version, digest: sum } = one ?? {};
    if (!isText(name) || !(isText(version) || Number.isInteger(version)) || !isText(sum)) {
      throw new Fault("an event names a workflow or policy without name, version and digest");
    }
    const file = `${kind}/${name}-${version}.yaml`;
    if (!files.has(file) || hex(files.get(file)) !== sum) {
      throw new Fault(`${file}: is not the text whose digest the events name`);
    }
    expected.add(file);
    if (kind === "policy") expected.add(`policy/${name}-${version}.json`);
  }
  const extra = [...files.keys()].filter((name) => /^(?:workflow|policy)\//.test(name) && !expected.has(name));
  if (extra.length) throw new Fault(`${extra[0]}: is not named by any event`);
  return `the workflow and ${documents.length} policies are the texts that the events name`;
}

function checkPredicate(predicate, history, report, apart) {
  const { tenant, producer } = predicate;
  if (!isText(tenant) || !isText(producer) || !/^(?:counterseal )?[0-9A-Za-z.+-]{0,64}$/.test(producer)) {
    throw new Fault("statement: names no tenant, or no release as releases are named");
  }
  const order = (one) => [word(one.name), word(one.version), one.digest];
  const policies = [...history.policies.values()].sort((a, b) => {
    const at = order(a).findIndex((each, n) => each !== order(b)[n]);
    return at < 0 ? 0 : order(a)[at] < order(b)[at] ? -1 : 1;
  });
  const wanted = {
    tenant, producer, policies, run: report.run, status: report.final ? history.status : "open",
    workflow: history.workflow, first_seq: 0, last_seq: report.count - 1, count: report.count, head: report.head,
    final: report.final, redaction: "metadata", ...(apart.since ? { sidecar: apart.named } : {}),
  };
  for (const name of Object.keys(wanted)) {
    if (!Object.hasOwn(predicate, name) || !same(predicate[name], wanted[name])) {
      throw new Fault(`statement: ${name} differs between the signed statement and the events`);
    }
  }
  return "what it says of the run is what the events tell";
}

function checkRun(history, predicate, derived) {
  if (history.tenant !== null && history.tenant !== predicate.tenant) {
    throw new Fault(`run.json: the run was opened in the tenant '${history.tenant}'`);
  }
  derived("run.json");
  derived("run-head.json");
  return `run ${predicate.run} of tenant ${predicate.tenant}`;
}

function checkQuestion(options, predicate) {
  for (const name of ["run", "tenant"]) {
    if (options[name] !== undefined && predicate[name] !== options[name]) {
      throw new Fault(`it is of the ${name} ${word(predicate[name]).slice(0, 100)}, not of ${options[name]}`);
    }
  }
  return "it is of the run and tenant that you named";
}

function claimed(files) {
  const told = objectIn(files, "run-head.json");
  if (!isText(told.run) || !Number.isInteger(told.count) || !isText(told.head) || !Array.isArray(told.appends)) {
    throw new Fault("run-head.json: does not name a run, its head and its appends");
  }
  return told;
}

function verify(data, options) {
  const table = new Table();
  let files, signed;
  if (!table.check("container", () => `${(files = unpacked(data)).size} plain files`)) return table;
  if (options.sha256 !== undefined) {
    table.check("file", () => orFaults(hex(data) === options.sha256 ? [] : [`the file's SHA-256 is ${hex(data)}`],
      "the file is the one with the SHA-256 that you named"));
  }
  try {
    signed = checkSignature(table, files, options);
    signed.statement = readStatement(signed.payload);
  } catch (error) {
    if (!(error instanceof Fault)) throw error;
    table.add("signature", "failed", error.message);
    return table;
  }
  const { subjects, predicate, number } = signed.statement;
  table.check("integrity", () => checkIntegrity(files, subjects));
  table.check("checksums", () => {
    const wanted = [...subjects].filter(([name]) => name !== "SHA256SUMS").map(([name, sum]) => `${sum}  ${name}\n`);
    return orFaults(String(files.get("SHA256SUMS")) === wanted.join("") ? [] : ["SHA256SUMS: differs from the signed list"],
      "SHA256SUMS agrees with the signed list");
  });
  if (table.failed) return table;
  contents(table, files, predicate, signed.key, options, new Apart(predicate, number, options));
  return table;
}

function contents(table, files, predicate, key, options, apart) {
  const history = new History(), disclosed = new Opened(files.get("disclosures.jsonl")), lines = [];
  const { further } = apart, besides = apart.here === null ? further : [apart.here, ...further];
  let judged, report, told;
  const followed = table.check("chain", () => {
    told = claimed(files);
    judged = new Judged(files, told.run, apart.withheld);
    report = followChain(told, files.get("events.jsonl"), (event) => {
      try {
        checkLine(event);
        pairsOf(event);
      } catch (error) {
        if (!(error instanceof Fault)) throw error;
        lines.push(error.message);
      }
      history.observe(event);
      const within = disclosed.of(event);
      if (apart.since && (disclosed.listed || ![...within.keys()].every((path) => ASKED.test(path)))) {
        disclosed.problem ??= `event ${event.seq}: values stand in the sidecar, and the bundle itself opens more than terms`;
      }
      judged.observe(event, new Map([...within, ...besides.flatMap((each) => [...each.of(event)])]));
    });
    return `${report.count} events in ${told.appends.length} appends, unbroken, head ${report.head}`;
  });
  if (!followed) return;
  if (report.final) table.add("completeness", "ok", `the run is closed; ${report.count} events, and all are here`);
  else table.add("completeness", options["allow-unfinished"] ? "warning" : "failed", "the run had not closed");
  table.check("statement", () => checkPredicate(predicate, history, report, apart));
  if (options.run !== undefined || options.tenant !== undefined) {
    table.check("question", () => checkQuestion(options, predicate));
  }
  const wanted = history.files(report, predicate.tenant, told.appends);
  const derived = (name, words) => {
    const text = wanted[name].map((one) => `${canonical(one)}\n`).join("");
    return orFaults(files.get(name).equals(Buffer.from(name === "costs.json" ? text.trimEnd() + "\n" : text)) ? [] :
      [`${name}: is not what the events tell`], words);
  };
  table.check("run", () => checkRun(history, predicate, derived));
  table.check("lines", () => orFaults(lines, "every line has the members of its type, and commits to what is its own"));
  const pem = files.get("public-key.pem");
  table.check("readme", () => checkReadme(files.get("README.txt"), key, pem, report.run, predicate.tenant));
  table.check("workflow and policies", () => checkTexts(files, history));
  table.check("authority", () => orFaults(history.faults,
    `each of ${history.attempts.length} attempts was let out by a decision 'allow' or an approval of exactly that action`));
  table.check("attempts", () => derived("attempts.jsonl", `${history.attempts.length} attempts, as the events tell`));
  table.check("approvals", () => derived("approvals.jsonl", `${history.approvals.size} approvals agree with the events`));
  table.check("receipts", () => derived("receipts.jsonl", `${history.receipts.size} receipts agree with the events`));
  const summed = (name, words) => orFaults(history.problems) || derived(name, words);
  table.check("checkpoints", () => summed("checkpoints.jsonl", `${history.checkpoints.length} checkpoints`));
  table.check("costs", () => summed("costs.json", `${history.costs.size} models' costs, as the events add up to`));
  table.check("disclosures", () => disclosed.row());
  if (further.length) table.check("further disclosures", () => moreOpened(further));
  if (apart.since) table.said("values", () => apart.row());
  judgement(table, judged, history, report);
}

function judgement(table, judged, history, report) {
  for (const part of judged.parts) part.end();
  const { people, actions, steps, inner, standing } = judged, { definition, whole } = judged.case;
  table.check("what it is judged by", () => judged.material());
  const met = `${people.votes} votes on ${people.asked.size} questions meet their terms`;
  table.check("authority of people", () => orFaults(people.faults, met));
  table.check("actions", () => orFaults(actions.faults, "every effect follows its newest decision and its attempts"));
  table.check("order of steps", () => orFaults(steps.faults, steps.said()));
  table.check("agents and runs within", () => orFaults(inner.faults, `${inner.calls} calls, each made by its model`));
  const compared = `${standing.compared} intents compared with ${standing.lines.length} lines of the tenant`;
  table.check("pauses and policies in force", () => orFaults(standing.faults, compared));
  const warn = (check, detail) => table.add(check, "warning", detail);
  if (!whole) warn("judged", "the run began under an earlier release, whose lines tell less: judged as far as they do");
  if (definition?.withheld) warn("declarations", `${definition.withheld} are withheld: what they say of effects is not bound`);
  if (people.unproven.size) warn("membership", `who was in which group is not shown for ${people.unproven.size} directories`);
  const altered = [...history.receipts.values()].filter((receipt) => receipt.altered?.length);
  if (altered.length) warn("altered effects", `${altered.length} done, but not as asked`);
  const late = [...history.receipts.values()].flatMap((receipt) => receipt.late), odds = history.contradictions();
  if (late.length) table.add("late answers", odds.length ? "warning" : "ok", odds.join("; ") || `${late.length}`);
  if (report.back) warn("clock", `${report.back} events are dated before the event above them`);
  for (const [check, detail] of NOT_PROVEN) table.add(check, "not_proven", detail);
}

// -- the command line --------------------------------------------------------------------------------------------------

function read(path) {
  try {
    return readFileSync(path);
  } catch (error) {
    throw new Unusable(`${path}: cannot be read: ${error.code}`);
  }
}

const isFile = (path) => existsSync(path) && statSync(path).isFile();

function optionsOf(words) {
  const options = { key: [], fingerprint: [], disclosed: [], "log-key": [] }, flags = ["allow-unfinished", "json"], one = ["run", "tenant", "sha256"];
  while (words.length) {
    const word = words.shift(), name = word.replace(/^--/, "");
    if (!word.startsWith("--")) options.bundle = word;
    else if (flags.includes(name)) options[name] = true;
    else if (![...one, "key", "fingerprint", "disclosed", "log-key"].includes(name) || !words.length) throw new Unusable(`unknown: ${word}`);
    else if (name === "key") options.key.push(trustedKey(words.shift()));
    else if (name === "log-key") options["log-key"].push(logKey(words.shift()));
    else if (name === "disclosed") options.disclosed.push(read(words.shift()));
    else if (name === "fingerprint") options.fingerprint.push(words.shift().toLowerCase().replaceAll(":", ""));
    else options[name] = words.shift();
  }
  if (options.bundle === undefined) throw new Unusable("usage: node verify.mjs BUNDLE.zip [--key PEM]...");
  const beside = (end) => (isFile(options.bundle + end) ? read(options.bundle + end) : null);
  [options.sidecar, options.leaf, options.proof] = [".values.jsonl", ".leaf.json", ".tlog-proof"].map(beside);
  return options;
}

function trustedKey(path) {
  const pem = read(path);
  try {
    if (pem.includes(0)) throw new Fault(`${path}: is not a PEM public key`);
    return keyOf(String(pem), path);
  } catch (error) {
    throw new Unusable(error.message);
  }
}

function printed({ rows, failed, trusted }) {
  const wide = Math.max(...rows.map((row) => row.check.length));
  const lines = rows.map(({ check, status, detail }) =>
    `${check.padEnd(wide)}  ${status.padEnd(10)}  ${detail.replace(/[^\x20-\x7e]/gu, (char) => JSON.stringify(char))}`);
  const words = failed ? "VERIFICATION FAILED" : trusted ? "no check failed" :
    "intact, but NOBODY HAS SAID THAT ITS KEY IS TO BE TRUSTED";
  return [...lines, "", words].join("\n");
}

// Verifies one bundle by the arguments of a command line: the exit code, the output and the complaint.
export function run(words) {
  try {
    const options = optionsOf([...words]), table = verify(read(options.bundle), options);
    const { rows, failed, trusted } = table;
    const said = options.json ? JSON.stringify({ ok: !failed, trusted, rows }, null, 2) : printed(table);
    return { code: failed ? 1 : trusted ? 0 : 6, said };
  } catch (error) {
    // An unforeseen error fails the bundle: nothing is proven.
    const unusable = error instanceof Unusable;
    return { code: unusable ? 2 : 1, problem: unusable ? error.message : `cannot be verified: ${error.message}` };
  }
}

if (process.argv[1] && import.meta.url === pathToFileURL(realpathSync(process.argv[1])).href) {
  const { code, said, problem } = run(process.argv.slice(2));
  if (said !== undefined) console.log(said);
  else console.error(problem);
  process.exitCode = code;
}
