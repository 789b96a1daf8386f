"""Tells a run: the sentences and rows of its report, each with the numbers of the events that it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from evidence.judging.people import ACTION, IN_DOUBT
from evidence.receipts import ReceiptStatus
from evidence.report import words
from evidence.report.folding import ALLOW, DENY, Effect, End, Judged, Outcome, Plot, Question, Vote
from evidence.report.marks import plain, q, soft, value, withheld
from evidence.report.reading import ReadBundle
from evidence.report.ruling import Claim, Row
from evidence.report.words import bold, count, italic, joined

QUESTIONS_TOLD = 5
NOT_DISCLOSED = "not disclosed"


class Teller:
    """The words of one report."""

    def __init__(self, bundle: ReadBundle, plot: Plot) -> None:
        self._read = bundle
        self._plot = plot
        self._day = str(plot.opened["ts"])

    @property
    def reference(self) -> str:
        """The reference of what the run is about, as a card names it; "" if no card is disclosed."""
        return next((str(card["reference"]) for card in map(self._card, self._plot.asked) if card.get("reference")), "")

    @property
    def workflow(self) -> str:
        """The name of the workflow."""
        return str(self._plot.opened["data"]["workflow"]["name"])

    def title(self) -> Markup:
        """The heading: a sentence."""
        done = [one for one in self._plot.effects.values() if one.approval and one.status == ReceiptStatus.SUCCEEDED]
        card = self._card(done[0].approval) if len(done) == 1 else {}
        changes = card.get("changes") or []
        if len(changes) == 1 and self.reference and isinstance(changes[0], Mapping):
            one = changes[0]
            name = str(one.get("label") or one["field"]).lower()
            return Markup("How the {} of {} came to be changed from {} to {}").format(
                plain(name), q(self.reference), _brief(one, "before"), _brief(one, "after")
            )
        about = Markup(" for {}").format(q(self.reference)) if self.reference else Markup()
        if not self._plot.wrote and (self._plot.asked or self._denied):
            return Markup("What {} wanted to do{}, and why it was not done").format(italic(self.workflow), about)
        return Markup("What {} did{}, and who had the say").format(italic(self.workflow), about)

    def verdict(self) -> list[tuple[str, str, Markup | str]]:
        """The line below the heading: symbol, colour and words."""
        plot = self._plot
        sign, colour, end = words.ERRORS.get(plot.error) or words.ENDS.get(plot.status, words.ENDS[End.OPEN])
        approved = [one for one in plot.wrote if one.approval]
        if plot.status == End.SUCCEEDED and approved and all(map(plot.seal, approved)):
            end = "Done as approved"
        listed = [(sign, colour, end)]
        people = {vote.who for asked in plot.asked.values() for vote in asked.votes if not vote.refused}
        if people:
            listed.append(("approved", "green", count(len(people), "person decided", "people decided")))
        for outcome, icon, tone, label in (
            (ALLOW, "allowed", "petrol", "allowed by rules"), (DENY, "denied", "red", "denied by rules"),
        ):  # fmt: skip
            if number := sum(one.outcome == outcome for one in plot.judged.values()):
                listed.append((icon, tone, f"{number:,} {label}"))
        doubts = sum(one.status in (ReceiptStatus.IN_DOUBT, ReceiptStatus.INTENDED) for one in plot.effects.values())
        if doubts:
            listed.append(("in-doubt", "violet", f"{doubts:,} in doubt"))
        refused = sum(bool(vote.refused) for asked in plot.asked.values() for vote in asked.votes)
        if refused:
            listed.append(("canceled", "slate", count(refused, "click not counted", "clicks not counted")))
        return listed

    def lead(self) -> list[Claim]:
        """The paragraph about what happened."""
        plot = self._plot
        claims = [] if plot.wrote else [Claim(Markup("Nothing was changed."))]
        version = plot.opened["data"]["workflow"]["version"]
        began = Markup("On {} at {} UTC, {} started the workflow {}, version {}.").format(
            words.date(self._day), words.clock(self._day), words.actor(plot.opened["actor"]), italic(self.workflow),
            plain(version),
        )  # fmt: skip
        claims.append(Claim(began, (0,)))
        claims += self._allowed()
        asked = [*plot.asked.values()]
        for one in asked[:QUESTIONS_TOLD]:
            claims += self._question_claims(one)
        if len(asked) > QUESTIONS_TOLD:
            claims.append(Claim(f"It asked people {len(asked) - QUESTIONS_TOLD:,} more times: see 2 and 3."))
        if denied := self._denied:
            number = count(len(denied), "action that it wanted", "actions that it wanted")
            claims.append(Claim(f"The rules denied {number}.", tuple(one.seq for one in denied[:5])))
        return [*claims, *self._end()]

    @property
    def _denied(self) -> list[Judged]:
        return [one for one in self._plot.judged.values() if one.outcome == DENY]

    def _allowed(self) -> list[Claim]:
        allowed = [one for one in self._plot.judged.values() if one.outcome == ALLOW]
        if not allowed:
            return []
        reads = sum(one.operation in self._read.read_only for one in allowed)
        rest = (
            f", {'all of which' if reads == len(allowed) else f'{reads:,} of which'} changed nothing" if reads else ""
        )
        number = count(len(allowed), "action", "actions")
        return [Claim(f"Its rules allowed {number} without asking anybody{rest}.")]

    def _question_claims(self, asked: Question) -> list[Claim]:
        card = self._card(asked.approval)
        wanted = (
            Markup(": {}").format(q(card.get("title") or card.get("question")))
            if card
            else Markup(", on a withheld card")
        )
        if asked.kind == IN_DOUBT:
            first = Markup("It did not know whether an action had happened{}. So it stopped and asked people.").format(
                wanted
            )
        elif asked.kind == ACTION:
            first = Markup("It wanted to do this{}. The rules leave this to people, so it stopped and asked.").format(
                wanted
            )
        else:
            first = Markup("The workflow asked people{}.").format(wanted)
        claims = [Claim(first, (asked.seq,))]
        counted = [vote for vote in asked.votes if not vote.refused]
        if counted:
            each = [
                Markup("{} {} at {}").format(bold(one.who), words.CHOICES.get(one.choice, one.choice), self._at(one.ts))
                for one in counted
            ]
            claims.append(Claim(Markup("{}.").format(joined(each)), tuple(one.seq for one in counted)))
        if asked.outcome not in (Outcome.APPROVED, Outcome.REJECTED):
            claims.append(
                Claim(
                    Markup("The question ended: {}.").format(
                        words.OUTCOMES.get(asked.outcome, ("", "", asked.outcome))[2].lower()
                    ),
                    (asked.ended_seq,) if asked.outcome else (),
                )
            )
        return [*claims, *self._done(asked)]

    def _done(self, asked: Question) -> list[Claim]:
        if asked.kind != ACTION:
            return []
        done = [one for one in self._plot.effects.values() if one.approval == asked.approval]
        if not done:
            return [Claim(Markup("It was not done."))]
        effect = done[0]
        if effect.status != ReceiptStatus.SUCCEEDED:
            return [
                Claim(Markup("Its outcome: {}.").format(words.EFFECTS[effect.status][2].lower()), tuple(effect.seqs))
            ]
        if effect.altered:
            names = joined([q(name) for name in effect.altered])
            return [
                Claim(
                    Markup("Then it was done, but the target made something else of {}.").format(names),
                    tuple(effect.seqs),
                )
            ]
        same = "exactly as it had been shown" if self._plot.seal(effect) else "but not as it had been shown"
        return [Claim(f"Then it was done, {same}.", tuple(effect.seqs))]

    def _end(self) -> list[Claim]:
        plot = self._plot
        if plot.canceled is not None:
            by = words.actor(plot.canceled["actor"])
            return [
                Claim(
                    Markup("{} canceled the run at {}.").format(by, self._at(plot.canceled["ts"])),
                    (plot.canceled["seq"],),
                )
            ]
        if not plot.ended:
            return [Claim(Markup("The run had not ended when this was written."))]
        _, _, end = words.ERRORS.get(plot.error) or words.ENDS.get(plot.status, words.ENDS[End.OPEN])
        return [Claim(Markup("The run ended at {}: {}.").format(self._at(plot.ended), end.lower()), (plot.closed_seq,))]

    def people(self) -> list[Row]:
        """The people and their parts: asked for it, shaped it, was asked, did not count, decided."""
        opened = self._plot.opened
        started = self._at(opened["ts"])
        rows = [Row((Markup("Started it"), words.actor(opened["actor"]), Markup("started the run"), started), (0,))]
        seen: set[tuple[str, str]] = set()
        for asked in self._plot.asked.values():
            told_ = self._question(asked.approval)
            for one in told_.get("contributors") or ():
                who, role = str(one.get("person") or one.get("principal")), str(one.get("role"))
                if (who, role) not in seen:
                    seen.add((who, role))
                    part = "Asked for it" if role == "requester" else "Shaped it"
                    rows.append(
                        Row((part, bold(who), words.ROLES.get(role, plain(role)), self._at(asked.ts)), (asked.seq,))
                    )
            rows += self._who_answered(asked, told_.get("terms") or {})
        if self._plot.canceled is not None:
            event = self._plot.canceled
            cells = ("Canceled it", words.actor(event["actor"]), "canceled the run", self._at(event["ts"]))
            rows.append(Row(cells, (event["seq"],)))
        return rows

    def _who_answered(self, asked: Question, terms: Mapping[str, Any]) -> list[Row]:
        wanted = terms.get("approvers") or ()
        who = words.quorum(wanted) if wanted else withheld(NOT_DISCLOSED)
        rows = [
            Row(
                ("Was asked", who, f"by the rules, to decide about {plain(asked.step)}", self._at(asked.ts)),
                (asked.seq,),
            )
        ]
        if asked.escalated is not None:
            seq, ts = asked.escalated
            more = (terms.get("escalate") or {}).get("to")
            group = words.quorum([more]) if more else withheld(NOT_DISCLOSED)
            rows.append(Row(("Was asked too", group, "because nobody had answered by then", self._at(ts)), (seq,)))
        for vote in asked.votes:
            if vote.refused:
                why = words.REFUSED.get(vote.refused, plain(vote.refused))
                rows.append(Row(("Not counted", bold(vote.who), why, self._at(vote.ts)), (vote.seq,)))
                continue
            right = joined([italic(group) for group in vote.groups]) if vote.groups else "a group that is asked"
            account = Markup(" as {}").format(q(vote.account)) if vote.account else Markup()
            by = Markup("{}, in {}{}, counted for {}{}").format(
                words.CHOICES.get(vote.choice, plain(vote.choice)), plain(vote.channel), account, right,
                self._reason(asked.approval, vote),
            )  # fmt: skip
            rows.append(Row(("Decided", bold(vote.who), by, self._at(vote.ts)), (vote.seq,)))
        return rows

    def _reason(self, approval: str, vote: Vote) -> Markup:
        listed = (self._read.approvals.get(approval) or {}).get("votes") or ()
        for one in listed:
            if one.get("voter") == vote.who and one.get("at") == vote.ts and one.get("reason"):
                return Markup(": {}").format(value(str(one["reason"])))
        return Markup()

    def written(self, most: int) -> list[Row]:
        """The effects: where, before and after, by which right, with which outcome."""
        return [self._effect(one) for one in [*self._plot.effects.values()][:most]]

    def _effect(self, effect: Effect) -> Row:
        card, tried = self._card(effect.approval), self._read.attempted.get(effect.seqs[-1], {})
        for seq in effect.seqs:
            tried = tried or self._read.attempted.get(seq, {})
        target = (
            card.get("target")
            or tried.get("proposed/target")
            or self._read.opened.get(f"/receipt/{effect.receipt}/target")
        )
        where = Markup("{}<br>{}").format(plain(effect.operation), q(target) if target else withheld(NOT_DISCLOSED))
        right = self._right(effect)
        icon, colour, word = words.EFFECTS[effect.status]
        sign = Markup('<svg class="i c-{}" viewBox="0 0 16 16" aria-hidden="true"><use href="#i-{}"/></svg> {}').format(
            colour,
            icon,
            word,
        )
        if effect.altered:
            sign = Markup("{}, but not as asked: {}").format(sign, joined([q(name) for name in effect.altered]))
        if effect.attempt > 1:
            sign = Markup("{}, attempt {}").format(sign, effect.attempt)
        return Row((where, self._changes(card, tried), right, sign), (*effect.seqs, *effect.late))

    def _right(self, effect: Effect) -> Markup:
        asked, judged = self._plot.asked.get(effect.approval), self._plot.judged.get(effect.decision)
        rules = (
            joined([italic(rule) for rule in judged.rules]) if judged and judged.rules else Markup("no rule by name")
        )
        if effect.grant in self._plot.grants:
            seq, approval = self._plot.grants[effect.grant]
            asked = self._plot.asked.get(approval)
            givers = sorted({vote.who for vote in asked.votes if not vote.refused}) if asked else []
            return Markup("Under a grant that {} gave (event {}), asked by {}").format(joined(givers), seq, rules)
        if asked is None:
            return Markup("Allowed by {}").format(rules)
        names = {vote.who for vote in asked.votes if not vote.refused and vote.choice != "reject"}
        return Markup("Approved by {}, asked by {}").format(joined([bold(name) for name in sorted(names)]), rules)

    def _changes(self, card: Mapping[str, Any], tried: Mapping[str, Any]) -> Markup:
        if card:
            parts = [_change(one) for one in card.get("changes") or ()]
            parts += [
                Markup("{} {}").format(soft(plain(one["field"])), value(one["value"]))
                for one in card.get("inputs") or ()
            ]
            return Markup("<br>").join(parts) or soft("nothing besides the call itself")
        given, before = tried.get("proposed/input"), tried.get("proposed/before")
        if isinstance(given, Mapping):
            old = before if isinstance(before, Mapping) else {}
            parts = [
                Markup("{} {} → <ins>{}</ins>").format(soft(plain(name)), value(old.get(name)), value(new))
                for name, new in given.items()
            ]
            return Markup("<br>").join(parts) or soft("nothing besides the call itself")
        return withheld(NOT_DISCLOSED)

    def seals(self, most: int) -> list[tuple[Question, Effect | None, bool]]:
        """Each question about an action, with what was done because of it."""
        done = {one.approval: one for one in self._plot.effects.values() if one.approval}
        asked = [one for one in self._plot.asked.values() if one.kind == "action"]
        return [
            (one, done.get(one.approval), one.approval in done and self._plot.seal(done[one.approval]))
            for one in asked[:most]
        ]

    def _card(self, approval: str) -> Mapping[str, Any]:
        card = (self._read.approvals.get(approval) or {}).get("card")
        return card if isinstance(card, Mapping) else {}

    def _question(self, approval: str) -> Mapping[str, Any]:
        asked = (self._read.approvals.get(approval) or {}).get("asked")
        return asked if isinstance(asked, Mapping) else {}

    def _at(self, ts: str) -> str:
        return words.clock(ts, self._day)


def _brief(change: Mapping[str, Any], side: str) -> Markup:
    label, raw = change.get(f"{side}_label"), change.get(side)
    if label:
        return q(label)
    return q(raw) if isinstance(raw, str) and 0 < len(raw) <= 60 else value(raw)


def _change(one: Any) -> Markup:
    if not isinstance(one, Mapping):
        return value(one)
    name = soft(plain(one.get("label") or one["field"]))
    sides = []
    for side in ("before", "after"):
        label, raw = one.get(f"{side}_label"), one.get(side)
        sides.append(
            Markup("{} {}").format(q(label), Markup('<span class="raw">{}</span>').format(plain(raw)))
            if label
            else value(raw)
        )
    before = soft("could not be read") if one.get("unreadable") else Markup("<del>{}</del>").format(sides[0])
    return Markup("{} {} → <ins>{}</ins>").format(name, before, sides[1])
