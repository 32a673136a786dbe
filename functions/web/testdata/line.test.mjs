// The arithmetic of a place against the public status.
import assert from "node:assert/strict";
import { nextPoll, Rate, stand, waitSeconds } from "./line.mjs";

const at = Date.parse("2026-05-01T10:00:00Z");
const status = { state: "admitting", serving: 100, lapsed: 40, generation: 1, admit_per_second: 10 };
const mine = { place_token: "p", place: 250, generation: 1 };
const cases = [
  ["nobody", status, null, "outside", false],
  ["before the draw", { ...status, state: "before" }, { ...mine, place: null }, "before", false],
  ["in the draw", { ...status, state: "drawing" }, { ...mine, place: null }, "drawing", false],
  ["after the draw the place is asked for", status, { ...mine, place: null }, "unknown", true],
  ["in line", status, mine, "waiting", false],
  ["the turn", status, { ...mine, place: 100 }, "turn", true],
  ["woke within the lapse", status, { ...mine, place: 41 }, "turn", true],
  ["woke after the lapse", status, { ...mine, place: 40 }, "lapsed", true],
  ["known to be lapsed", status, { ...mine, place: 40, state: "lapsed" }, "lapsed", false],
  ["admitted", status, { ...mine, place: 41, admit_token: "a", admit_for: "hold", admit_expires_at: "2026-05-01T10:05:00Z" }, "served", false],
  ["admission over", status, { ...mine, place: 41, admit_token: "a", admit_for: "hold", admit_expires_at: "2026-05-01T09:59:00Z" }, "lapsed", false],
  ["paused keeps the place", { ...status, state: "paused" }, mine, "paused", false],
  ["sold out keeps the place", { ...status, state: "sold_out" }, mine, "sold_out", false],
  ["sold out admits nobody", { ...status, state: "sold_out" }, { ...mine, place: 90 }, "sold_out", false],
  ["closed", { ...status, state: "closed" }, mine, "closed", false],
  ["the room was reset", { ...status, generation: 2 }, mine, "waiting", true],
];
for (const [name, room, person, state, ask] of cases) {
  assert.deepEqual(stand(room, person, at), { state, ask }, name);
}

const rate = new Rate();
rate.add(100, at);
assert.equal(rate.perSecond(10), 10, "the stated rate first");
rate.add(200, at + 20_000);
assert.equal(rate.perSecond(10), 5, "then what was seen");
assert.equal(waitSeconds(250, 100, 10), 15);
assert.equal(waitSeconds(250, 100, 0), null, "a line that stands promises nothing");
for (const random of [0, 1]) {
  assert.ok(nextPoll(5000, null, random) >= 4500 && nextPoll(5000, null, random) <= 5500);
  assert.ok(nextPoll(undefined, 1, random) >= 1000);
  assert.ok(nextPoll(undefined, 36_000, random) <= 16_500);
}
