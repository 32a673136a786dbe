// Calls of the functions, and what the browser keeps: the account token, places in rooms, and the
// Idempotency-Key of a write whose answer has not come.
import { lang, t } from "./text.js";

const memory = new Map(); // stands in where the browser allows no storage

/** keep is localStorage with JSON values under the prefix "hf.". */
export const keep = {
  get(name) {
    try {
      return JSON.parse(localStorage.getItem(`hf.${name}`) ?? "null");
    } catch {
      return memory.get(name) ?? null;
    }
  },
  set(name, value) {
    memory.set(name, value);
    try {
      localStorage.setItem(`hf.${name}`, JSON.stringify(value));
    } catch { /* the copy in memory serves this page */ }
  },
  drop(name) {
    memory.delete(name);
    try {
      localStorage.removeItem(`hf.${name}`);
    } catch { /* as above */ }
  },
};

/** Problem is an answer that says no (RFC 9457), or no answer at all: code "network". */
export class Problem extends Error {
  constructor(code, detail, { status = 0, errors = [], retryAfter = 0, trace = "" } = {}) {
    super(detail);
    Object.assign(this, { code, status, errors, retryAfter, trace });
  }
  /** lost: no answer, or one that a second try may change. */
  get lost() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

let ahead = 0; // server's clock minus this device's, in ms
let known = false;

/** now is the server's time as far as its answers told, in ms. */
export const now = () => Date.now() + ahead;

function learnTime(text, sent) {
  const at = Date.parse(text ?? "");
  if (!Number.isNaN(at)) {
    ahead = at - (sent + Date.now()) / 2;
    known = true;
  }
}

async function once(method, name, query, body, headers) {
  const address = new URL(name, location.href);
  for (const [key, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") address.searchParams.set(key, value);
  }
  const sent = Date.now();
  let answer;
  try {
    answer = await fetch(address, {
      method,
      headers: { Accept: "application/json", "Accept-Language": lang, ...headers },
      body,
      credentials: "omit",
      signal: AbortSignal.timeout(15_000),
    });
  } catch {
    throw new Problem("network", t(navigator.onLine === false ? "error.offline" : "error.network"));
  }
  // Date has whole seconds and may be a cache's: only good for a first, rough setting.
  if (!known && !answer.headers.get("Age")) learnTime(answer.headers.get("Date"), sent - 500);
  if (!answer.ok) throw await problemOf(answer);
  const type = answer.headers.get("Content-Type") ?? "";
  if (!type.includes("json")) return answer.blob();
  let value;
  try {
    value = await answer.json();
  } catch {
    throw new Problem("network", t("error.network"));
  }
  if (value?.server_time) learnTime(value.server_time, sent);
  return value;
}

async function problemOf(answer) {
  const about = { status: answer.status, retryAfter: Number(answer.headers.get("Retry-After")) || 0 };
  try {
    const p = await answer.json();
    return new Problem(p.code ?? "unknown", p.detail || p.title || t("error.unknown"), { ...about, errors: p.errors ?? [], trace: p.trace_id });
  } catch {
    return new Problem("unknown", t(answer.status === 429 ? "error.peak" : "error.unknown"), about);
  }
}

const bearer = () => {
  const token = account.token();
  return token ? { Authorization: `Bearer ${token}` } : {};
};

/** get reads from a function. With {open: true} the account token stays out, so that a cache may answer. */
export function get(name, query = {}, { open = false, headers = {} } = {}) {
  return once("GET", name, query, undefined, { ...(open ? {} : bearer()), ...headers });
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/**
 * post writes. The Idempotency-Key belongs to (function, account, body) and is kept until an answer came, over
 * reloads too; where none came it is sent again, three times in all.
 */
export async function post(name, body, { query = {}, headers = {}, keyed = true } = {}) {
  const text = JSON.stringify(body);
  const slot = `key:${name}:${account.id() ?? ""}:${text}`;
  let key = keyed ? keep.get(slot) : null;
  if (keyed && !key) {
    key = crypto.randomUUID?.() ?? Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
    keep.set(slot, key);
  }
  const all = { "Content-Type": "application/json", ...bearer(), ...(key ? { "Idempotency-Key": key } : {}), ...headers };
  for (let attempt = 1; ; attempt++) {
    try {
      const value = await once("POST", name, query, text, all);
      if (keyed) keep.drop(slot);
      return value;
    } catch (error) {
      const unsure = error.status === 0 || error.status === 502 || error.status === 504 || error.code === "in-progress";
      if (keyed && !error.lost && error.code !== "in-progress") keep.drop(slot);
      if (!keyed || !unsure || attempt === 3) throw error;
      await pause(1000 * attempt);
    }
  }
}

/** account is who is signed in. The token is read here only to know when it ends and whose it is. */
export const account = {
  token() {
    const kept = keep.get("account");
    if (!kept || Date.parse(kept.expires_at) <= now()) return null;
    return kept.account_token;
  },
  id() {
    return claims(this.token())?.sub ?? null;
  },
  role() {
    return claims(this.token())?.role ?? null;
  },
  email() {
    return keep.get("account")?.email ?? "";
  },
  set(token, expires_at, email) {
    const ends = expires_at ?? new Date((claims(token)?.exp ?? 0) * 1000).toISOString();
    keep.set("account", { account_token: token, expires_at: ends, email });
  },
  clear() {
    keep.drop("account");
  },
};

function claims(token) {
  try {
    const part = token.split(".")[1].replace(/-/g, "+").replace(/_/g, "/");
    return JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(part), (c) => c.charCodeAt(0))));
  } catch {
    return null;
  }
}

/** place is what a person has of a room: place_token, place, generation, and the admit token once served. */
export const place = {
  get: (room) => keep.get(`room:${room}:${account.id()}`),
  set: (room, mine) => keep.set(`room:${room}:${account.id()}`, mine),
  drop: (room) => keep.drop(`room:${room}:${account.id()}`),
};
