// Texts of the page's language. The catalogue is a module of its own, made from text/<lang>.json by the
// web function; the page names it in <html data-text>.
const root = document.documentElement;
const { default: texts } = await import(new URL(root.dataset.text, location.href));

export const lang = root.lang;
const plural = new Intl.PluralRules(lang);
const number = new Intl.NumberFormat(lang);

/** t gives the text of a key with {name} filled in. With a number `n`, "key.one" is taken where the language has it. */
export function t(key, values = {}) {
  let text = texts[key];
  if (typeof values.n === "number" && plural.select(values.n) === "one") text = texts[`${key}.one`] ?? text;
  if (text === undefined) return key;
  return text.replace(/\{(\w+)\}/g, (all, name) => {
    const value = values[name];
    return value === undefined ? all : typeof value === "number" ? number.format(value) : String(value);
  });
}

/** has says whether the catalogue has a key. */
export const has = (key) => key in texts;
