// The page of `regard serve`: translates while you type, and shows which words a word of the translation comes from.

const PAUSE = 250; // milliseconds without a key before the text is sent
const STREAMED = 300; // characters from which on the translation is shown part by part
const ALIGNED = 1000; // characters up to which the alignment is asked for
const MARK = 0.08; // weight from which on a word is marked

const [source, target, text, mirror, translation, message, count, hint, copy, keyForm, key] = [
  "source", "target", "text", "mirror", "translation", "message", "count", "hint", "copy", "key-form", "key",
].map((id) => document.getElementById(id));

let languages = [];
let settings = { charLimit: 5000 };
let running = new AbortController();
let timer = 0;

async function ask(path, body, signal) {
  const stored = sessionStorage.getItem("regard-key");
  const headers = { ...(stored && { Authorization: `Bearer ${stored}` }), ...(body && { "Content-Type": "application/json" }) };
  const answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal });
  if (answer.status === 401) keyForm.hidden = false;
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error ?? `The server answered ${answer.status}.`);
  return answer;
}

async function begin() {
  try {
    settings = await (await ask("frontend/settings")).json();
    languages = await (await ask("languages")).json();
  } catch (error) {
    message.textContent = error.message;
    return;
  }
  keyForm.hidden = true;
  message.textContent = "";
  fill(source, languages.map(({ code }) => code));
  fillTargets();
  document.getElementById("explore").hidden = !(await fetch("explore/", { method: "HEAD" })).ok;
  void translate();
}

/** Name a language that /languages does not list, because no model translates from it. */
function nameOf(code) {
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(code);
  } catch {
    return code; // not a code of the standard
  }
}

function fill(select, codes) {
  const names = Object.fromEntries(languages.map(({ code, name }) => [code, name]));
  const before = select.value;
  select.replaceChildren(...codes.map((code) => new Option(names[code] ?? nameOf(code), code)));
  if (codes.includes(before)) select.value = before;
}

function fillTargets() {
  const targets = languages.find(({ code }) => code === source.value)?.targets ?? [];
  fill(target, targets.filter((code) => code !== source.value));
}

function swap() {
  const [from, to] = [source.value, target.value];
  if (![...source.options].some(({ value }) => value === to)) return;
  const translated = translation.textContent;
  source.value = to;
  fillTargets();
  target.value = from;
  text.value = translated;
  changed(0);
}

function changed(pause = PAUSE) {
  count.textContent = text.value.length ? `${text.value.length.toLocaleString()} / ${settings.charLimit.toLocaleString()}` : "";
  mark(null);
  clearTimeout(timer);
  timer = setTimeout(translate, pause);
}

async function translate() {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  const q = text.value;
  message.textContent = hint.textContent = "";
  if (!q.trim()) {
    show("");
    return;
  }
  translation.classList.add("working");
  const request = { q, source: source.value, target: target.value };
  try {
    if (q.length >= STREAMED || q.includes("\n")) await stream(request, signal);
    if (q.length <= ALIGNED) await align(request, signal);
    translation.classList.remove("working");
  } catch (error) {
    if (error.name === "AbortError") return;
    translation.classList.remove("working");
    message.textContent = error instanceof TypeError ? "The server does not answer." : error.message;
  }
}

/** Shows the translation as it grows. */
async function stream(request, signal) {
  const reader = (await ask("translate", { ...request, stream: true }, signal)).body.getReader();
  const decoder = new TextDecoder();
  let waiting = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    waiting += decoder.decode(part.value, { stream: true });
    const events = waiting.split("\n\n");
    waiting = events.pop();
    for (const event of events.filter((line) => line.startsWith("data: "))) {
      const content = JSON.parse(event.slice(6));
      if (content.error) throw new Error(content.error);
      show(content.translatedText);
    }
  }
}

/** Shows the translation with its alignment, which a translation through a third language has not. */
async function align(request, signal) {
  let answer;
  try {
    answer = await (await ask("translate", { ...request, attention: true }, signal)).json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    answer = await (await ask("translate", request, signal)).json();
  }
  show(answer.translatedText, answer.alignment, request.q);
}

function show(translated, alignment, q) {
  copy.hidden = !translated;
  if (!alignment) {
    translation.textContent = translated;
    return;
  }
  const places = locate(q, alignment.source);
  const nodes = [];
  let end = 0;
  locate(translated, alignment.target).forEach((place, row) => {
    if (!place) return;
    nodes.push(translated.slice(end, place[0]));
    const word = document.createElement("span");
    word.className = "word";
    word.textContent = translated.slice(...place);
    word.addEventListener("pointerenter", () => mark(q, places, alignment.weights[row], word));
    nodes.push(word);
    end = place[1];
  });
  translation.replaceChildren(...nodes, translated.slice(end));
  hint.textContent = "Point at a word to see where it comes from";
}

/** The place of each word in a text, in order; null for words that are not in it, such as the end token. */
function locate(whole, words) {
  let end = 0;
  return words.map((word) => {
    const start = whole.indexOf(word, end);
    if (start < 0) return null;
    end = start + word.length;
    return [start, end];
  });
}

/** Marks the words of the text, behind the box, by their weights; without a text, none. */
function mark(q, places = [], weights = [], word = null) {
  translation.querySelectorAll(".chosen").forEach((other) => other.classList.remove("chosen"));
  word?.classList.add("chosen");
  if (q === null || q !== text.value) {
    mirror.replaceChildren();
    return;
  }
  const nodes = [];
  let end = 0;
  places.forEach((place, column) => {
    if (!place || weights[column] < MARK) return;
    nodes.push(q.slice(end, place[0]));
    const marked = document.createElement("span");
    marked.textContent = q.slice(...place);
    marked.style.backgroundColor = `rgb(var(--mark) / ${Math.min(0.6, weights[column]).toFixed(2)})`;
    nodes.push(marked);
    end = place[1];
  });
  mirror.replaceChildren(...nodes, q.slice(end));
}

text.addEventListener("input", () => changed());
source.addEventListener("change", () => { fillTargets(); changed(0); });
target.addEventListener("change", () => changed(0));
translation.addEventListener("pointerleave", () => mark(null));
document.getElementById("swap").addEventListener("click", swap);
copy.addEventListener("click", () => navigator.clipboard?.writeText(translation.textContent));
keyForm.addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("regard-key", key.value.trim());
  void begin();
});
void begin();
