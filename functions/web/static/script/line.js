// The waiting room's arithmetic: what a person's place means against the public status. No calls, no page.

/** stand says where a person is: the state to show, and whether a POST with the Place-Token is due. */
export function stand(status, mine, now) {
  const drawing = status.state === "before" || status.state === "drawing";
  if (mine?.admit_token && Date.parse(mine.admit_expires_at) > now) return { state: mine.admit_for === "standby" ? "standby" : "served", ask: false };
  if (status.state === "closed") return { state: "closed", ask: false };
  if (!mine?.place_token) return { state: "outside", ask: false };
  if (mine.generation !== undefined && status.generation !== undefined && mine.generation !== status.generation) return { state: "waiting", ask: true };
  if (drawing) return { state: status.state, ask: false };
  if (mine.place === null || mine.place === undefined) return { state: "unknown", ask: true };
  if (mine.place <= status.lapsed || mine.admit_token) return { state: "lapsed", ask: !mine.admit_token && mine.state !== "lapsed" };
  if (status.state === "paused") return { state: "paused", ask: false };
  if (status.state === "sold_out") return { state: "sold_out", ask: false };
  if (mine.place <= status.serving) return { state: "turn", ask: true };
  return { state: "waiting", ask: false };
}

/** Rate measures how fast `serving` really moves while the room admits, over the last minute; before 10 s have passed the stated rate counts. */
export class Rate {
  seen = [];
  add(serving, at) {
    this.seen.push([serving, at]);
    while (this.seen.length > 2 && at - this.seen[0][1] > 60_000) this.seen.shift();
  }
  clear() {
    this.seen = [];
  }
  perSecond(stated) {
    const [first, last] = [this.seen[0], this.seen.at(-1)];
    if (!first || last[1] - first[1] < 10_000) return stated;
    return (last[0] - first[0]) / ((last[1] - first[1]) / 1000);
  }
}

/** waitSeconds is the estimate until a place is served, null where nothing honest can be said. */
export function waitSeconds(place, serving, perSecond) {
  if (!(perSecond > 0)) return null;
  return Math.max(0, (place - serving) / perSecond);
}

/** nextPoll is the ms to wait: what the service asked for, else by how near the turn is; spread by a fifth. */
export function nextPoll(asked, seconds, random = Math.random()) {
  const base = asked ?? (seconds === null ? 5000 : Math.min(15_000, Math.max(1500, (seconds * 1000) / 8)));
  return Math.round(Math.max(1000, base) * (0.9 + random * 0.2));
}
