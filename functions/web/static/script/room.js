// Waiting. One public status document for everybody (a cache may answer it), and a person's place against it.
// A POST goes out only to join, once after the draw to learn the place, and when it is one's turn.
import { account, get, now, place, post } from "./api.js";
import { nextPoll, Rate, stand, waitSeconds } from "./line.js";
import { t } from "./text.js";
import { $, about, busy, countdown, explain, go, h, hereClock, link, load, notice, poll, query, roomOf, saleHead, saleOf, say, show } from "./ui.js";

const rate = new Rate();
let sale, room, status, mine, wake;
let posted = 0; // when the last POST went out, this device's clock
let lastState = "";
let stopClock = null;
let holdOff = 0; // no POST before this moment (this device's clock)

/** Where an admission leads: to the seats, or, for who came to wait or may only wait, to standby. */
const onward = () => go(query.get("standby") || mine?.admit_for === "standby" ? "standby" : "seats",
  { sale: sale.sale, from: query.get("from"), to: query.get("to"), class: query.get("class"), quantity: query.get("quantity") });

/** Takes an answer of POST: the token, the place, and the admit token when served. */
function take(answer) {
  const before = mine ?? {};
  mine = {
    place_token: answer.place_token ?? before.place_token,
    place: answer.place ?? null,
    state: answer.state,
    generation: answer.status?.generation ?? status?.generation,
    poll_after_ms: answer.poll_after_ms,
    notice: answer.notice,
    admit_token: answer.admit_token,
    admit_for: answer.admit_for,
    admit_expires_at: answer.admit_expires_at,
  };
  place.set(room, mine);
  if (answer.status) status = answer.status;
  holdOff = Date.now() + (answer.poll_after_ms ?? 2000) * 0.9;
}

async function ask(body = {}) {
  posted = Date.now();
  holdOff = posted + 2000;
  const headers = mine?.place_token ? { "Place-Token": mine.place_token } : {};
  take(await post("join-room", { room, ...body }, { headers, keyed: false }));
}

function forget(problem) {
  if (problem.code !== "room-reset" && problem.code !== "bad-token") return false;
  place.drop(room);
  mine = null;
  notice(problem.message, "warn");
  return true;
}

const doing = {
  join: () => h("button", { type: "button", click: (event) => join(event.target) }, t("room.join")),
  rejoin: () => h("button", { type: "button", click: (event) => join(event.target, { rejoin: true }) }, t("room.rejoin")),
  seats: () => h("button", { type: "button", click: onward }, t(query.get("standby") ? "standby.title" : "room.to_seats")),
  standby: () => h("button", { type: "button", click: onward }, t("standby.title")),
};

function join(button, body) {
  return busy(button, async () => {
    if (!account.token()) {
      query.set("join", "1"); // back from signing in, the click counts
      return location.replace(link("signin", { next: `?${query}` }));
    }
    await ask(body);
    query.delete("join"); // a reload must not leave the line
    history.replaceState(null, "", `?${query}`);
    if (status) render();
    wake?.();
  });
}

/** The text for a state: who waits while nothing is left is told for what. */
const words = (state) => state === "waiting" && status.state === "standby" ? "room.text.waiting_standby"
  : state === "served" && query.get("standby") ? "room.text.served_standby" : `room.text.${state}`;

/** Writes the page. Live text changes only when its words do, so that a screen reader is not flooded. */
function render() {
  const { state } = stand(status, mine, now());
  const set = (id, text) => {
    const element = $(id);
    if (element.textContent !== text) element.textContent = text;
  };
  const drawing = state === "before" || state === "drawing";
  const number = mine?.place;
  const ahead = typeof number === "number" ? Math.max(0, number - 1 - status.serving) : null;
  $("#state").className = `badge ${{ served: "good", turn: "good", standby: "good", sold_out: "bad", closed: "bad", lapsed: "bad", paused: "warn" }[state] ?? ""}`;
  set("#state", t(`room.state.${state}`));
  set("#text", (state === "unknown" && mine.notice) || t(words(state), { n: ahead ?? 0 }));

  stopClock?.();
  stopClock = null;
  const outside = state === "outside" && ["before", "drawing"].includes(status.state);
  const opens = Date.parse(status.draw_opens_at);
  const ends = Date.parse(status.draw_ends_at);
  if ((drawing || outside) && ends > now()) {
    const early = opens > now();
    set("#label", t(early ? "room.draw_opens" : "room.draw_ends"));
    stopClock = countdown($("#big"), early ? opens : ends, () => wake?.());
  } else if (typeof number === "number" && ["waiting", "turn", "paused", "sold_out"].includes(state)) {
    set("#label", t("room.your_place"));
    $("#big").removeAttribute("role");
    set("#big", number.toLocaleString(document.documentElement.lang));
  } else {
    set("#label", "");
    set("#big", "");
  }

  let seconds = null;
  if (state === "waiting" && ahead !== null) {
    seconds = waitSeconds(number, status.serving, rate.perSecond(status.admit_per_second));
    set("#wait", seconds === null ? t("room.wait_unknown") : t("room.wait_about", { time: about(seconds) }));
    const bar = $("#bar");
    bar.hidden = false;
    bar.max = number;
    bar.value = Math.min(number, status.serving);
  } else {
    set("#wait", state === "waiting" || state === "unknown" ? t("room.wait_unknown") : "");
    $("#bar").hidden = true;
  }
  $("#stale").hidden = !status.stale;
  set("#stale", status.stale ? t("room.stale") : "");

  const canJoin = status.state !== "closed" && !(opens > now());
  const key = `${state} ${status.state} ${canJoin}`;
  if (key !== lastState) {
    show($("#does"), state === "outside" && canJoin ? doing.join() : null, state === "lapsed" ? doing.rejoin() : null,
      state === "served" ? doing.seats() : null, state === "standby" ? doing.standby() : null);
    if (lastState && (state === "served" || state === "standby")) say(t(words(state)));
    document.title = `${t(`room.tab.${["served", "standby", "turn"].includes(state) ? "turn" : "other"}`)} · Holdfast`;
    lastState = key;
  }
  facts();
  return seconds;
}

function facts() {
  const fact = (name, value) => value !== undefined && value !== null && value !== "" && [h("dt", t(name)), h("dd", value)];
  show($("#facts"), [
    fact("room.joined", status.joined?.toLocaleString(document.documentElement.lang)),
    fact("room.serving", status.serving?.toLocaleString(document.documentElement.lang)),
    fact("room.speed", status.admit_per_second && t("room.speed_text", { n: status.admit_per_second })),
    ...(status.sales ?? []).filter((one) => one.sale === sale.sale).map((one) => fact("room.left", typeof one.left === "number" ? t("left.some", { n: one.left }) : one.sold_out ? t("left.none") : null)),
    fact("room.as_of", status.as_of && hereClock(status.as_of)),
  ].filter(Boolean).flat());
  const proof = $("#proof");
  proof.hidden = !status.draw_commitment;
  const code = (name, value) => value && [h("dt", t(name)), h("dd", h("code", value))];
  const text = JSON.stringify([status.draw_commitment, status.draw_seed, status.draw_list_hash, status.beacon]);
  if (proof.dataset.shown === text) return;
  proof.dataset.shown = text;
  show($("dl", proof), [
    code("room.commitment", status.draw_commitment), code("room.seed", status.draw_seed), code("room.list_hash", status.draw_list_hash),
    code("room.beacon", status.beacon && (typeof status.beacon === "string" ? status.beacon : JSON.stringify(status.beacon))),
  ].filter(Boolean).flat());
  show($("#list"), status.draw_list_hash ? h("a", { href: `join-room?${new URLSearchParams({ room, list: status.generation, page: 0 })}`, download: `room-${room}-list.bin` }, t("room.list")) : t("room.proof_later"));
}

async function round() {
  try {
    status = await get("join-room", { room }, { open: true });
    if (status.state === "admitting" || status.state === "standby") rate.add(status.serving, Date.now());
    else rate.clear();
    const { state, ask: due } = stand(status, mine, now());
    // A served place in a hidden page waits until someone looks: the admit token's time starts when it is taken.
    const hidden = document.visibilityState === "hidden" && state === "turn";
    if (due && !hidden && Date.now() >= holdOff) await ask();
    if (lastState && !mine?.admit_token) notice("");
  } catch (problem) {
    if (problem.status === 401) {
      explain(problem);
      return null;
    }
    if (!forget(problem)) {
      const text = problem.code === "network" ? problem.message : `${problem.message} ${t("room.keep")}`;
      notice(text, "warn");
      if (!status) return 3000;
    }
    render();
    return Math.max(2000, problem.retryAfter * 1000) * (0.9 + Math.random() * 0.4);
  }
  const seconds = render();
  const { state, ask: due } = stand(status, mine, now());
  if (state === "closed") return 30_000;
  if ((state === "served" || (state === "standby" && query.get("standby"))) && document.visibilityState === "visible") {
    setTimeout(onward, 1500);
    return null;
  }
  if (due) return Math.max(1000, holdOff - Date.now());
  const fresh = mine && Date.now() - posted < (mine.poll_after_ms ?? 0);
  let wait = nextPoll(status.poll_after_ms ?? (fresh ? mine.poll_after_ms : undefined), seconds);
  // The draw's end is known: ask shortly after it, spread so that no more than ten thousand ask in a second.
  const ends = Date.parse(status.draw_ends_at) - now();
  const spread = Math.max(3000, status.joined / 10);
  if ((state === "before" || state === "drawing") && ends > 0) wait = Math.min(Math.max(wait, 2000), ends + 500 + Math.random() * spread);
  return wait;
}

load(async () => {
  sale = await saleOf(query.get("sale"));
  room = roomOf(sale);
  if (!room) return onward();
  show($("#head"), saleHead(sale, query.get("from"), query.get("to")));
  mine = place.get(room);
  const only = mine?.admit_for === "standby" && !query.get("standby"); // who wanted seats is told first that none are left
  if (query.get("join") !== "again" && mine?.admit_token && Date.parse(mine.admit_expires_at) > now() && !only) return onward();
  wake = poll(round);
  if (query.get("join") === "again") await join(null, mine ? { rejoin: true } : {});
  else if (query.get("join") && !mine) await join(null);
});
