"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("data").textContent);
  const { items, categories } = data;

  // A page opened from disk may have no storage: work then lasts as long as the page, and the user is told.
  let storage = true;
  const read = (name) => { try { return localStorage.getItem(name); } catch { storage = false; return null; } };
  const write = (name, value) => { try { localStorage.setItem(name, value); storage = true; } catch { storage = false; } };

  const state = { answers: items.map(() => null), history: [], at: 0, annotator: "" };
  const place = `annotation-${data.sample}`;
  const answer = (value) => value === null || categories.includes(value);
  const inside = (value) => Number.isInteger(value) && value >= 0 && value < items.length;
  const whole = (kept) =>
    kept && Array.isArray(kept.answers) && kept.answers.length === items.length && kept.answers.every(answer) &&
    Array.isArray(kept.history) && kept.history.every((one) => Array.isArray(one) && inside(one[0]) && answer(one[1])) &&
    inside(kept.at) && typeof kept.annotator === "string";
  const parsed = (text) => { try { return JSON.parse(text); } catch { return null; } };
  const kept = parsed(read(place));
  if (whole(kept)) Object.assign(state, { answers: kept.answers, history: kept.history, at: kept.at, annotator: kept.annotator });

  const say = (text, bad = false) => { $("message").textContent = text; $("message").classList.toggle("bad", bad); };
  const keep = () => {
    write(place, JSON.stringify(state));
    if (!storage) say("This browser keeps nothing: export before you close the page.", true);
  };

  const buttons = [...document.querySelectorAll(".choice")];
  const named = (key) => buttons[categories.indexOf(key)].querySelector("b").textContent;
  const done = () => state.answers.filter((one) => one !== null).length;
  const show = () => {
    const item = items[state.at];
    $("place").textContent = `Pair ${state.at + 1} of ${items.length}`;
    $("texts").replaceChildren(...item.texts.map((text) => {
      const line = document.createElement("p");
      line.textContent = text;
      return line;
    }));
    $("gold").textContent = item.gold;
    if ($("answer")) { $("answer").hidden = !item.answer; $("answer-text").textContent = item.answer; }
    const chosen = state.answers[state.at];
    $("chosen").textContent = chosen === null ? "Not sorted yet" : `Sorted: ${named(chosen)}`;
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.category === chosen));
    $("back").disabled = state.at === 0;
    $("next").disabled = state.at === items.length - 1;
    $("open").disabled = done() === items.length;
    $("undo").disabled = state.history.length === 0;
    $("bar").value = done();
    $("count").textContent = `${done()} of ${items.length} sorted`;
  };
  const go = (to) => { if (inside(to)) { state.at = to; keep(); show(); } };
  const open = () => {
    const after = items.map((_, step) => (state.at + 1 + step) % items.length);
    return after.find((one) => state.answers[one] === null) ?? state.at;
  };

  const choose = (key) => {
    state.history.push([state.at, state.answers[state.at]]);
    state.answers[state.at] = key;
    say(done() === items.length ? "All pairs are sorted: export them." : `${named(key)} for pair ${state.at + 1}`);
    go(open());
    if ($("texts").getBoundingClientRect().top < 0) scrollTo(0, 0); // on a phone the pair is above the choices
  };
  const undo = () => {
    const last = state.history.pop();
    if (!last) return;
    state.answers[last[0]] = last[1];
    say(`Taken back: pair ${last[0] + 1}`);
    go(last[0]);
  };

  for (const button of buttons) button.addEventListener("click", () => choose(button.dataset.category));
  $("back").addEventListener("click", () => go(state.at - 1));
  $("next").addEventListener("click", () => go(state.at + 1));
  $("open").addEventListener("click", () => go(open()));
  $("undo").addEventListener("click", undo);
  addEventListener("keydown", (event) => {
    if (event.target.closest?.("input, select, textarea")) return;
    const key = event.key.toLowerCase();
    const undoing = (event.ctrlKey || event.metaKey) && key === "z";
    if (event.altKey || ((event.ctrlKey || event.metaKey) && !undoing)) return;
    if (/^[1-9]$/.test(key) && Number(key) <= categories.length) {
      if (!event.repeat) choose(categories[Number(key) - 1]); // a key held down must not sort the rest
    } else if (undoing || key === "u" || key === "backspace") undo();
    else if (key === "arrowleft") go(state.at - 1);
    else if (key === "arrowright") go(state.at + 1);
    else return;
    event.preventDefault();
  });

  $("annotator").value = state.annotator;
  $("annotator").addEventListener("input", () => { state.annotator = $("annotator").value; keep(); });
  $("export").addEventListener("click", () => {
    const { format, sample, run, task, seed } = data;
    const sorted = items.map(({ group, id }, at) => ({ group, id, category: state.answers[at] }));
    const found = { format, sample, run, task, seed, annotator: state.annotator.trim(), items: sorted };
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([JSON.stringify(found, null, 1) + "\n"], { type: "application/json" }));
    const who = state.annotator.trim().replace(/[^\p{L}\p{N}]+/gu, "-") || "annotation";
    link.download = `${who}-${sample}.json`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    say(`Exported ${done()} of ${items.length} pairs.`);
  });

  $("import").addEventListener("click", () => $("file").click());
  $("file").addEventListener("change", async () => {
    const [file] = $("file").files;
    $("file").value = "";
    if (!file) return;
    const found = parsed(await file.text());
    if (found?.format !== data.format || !Array.isArray(found.items)) return say(`${file.name} is no exported annotation.`, true);
    if (found.sample !== data.sample) return say(`${file.name} belongs to another sample.`, true);
    const given = new Map(found.items.map((one) => [`${one?.group} ${one?.id}`, one?.category ?? null]));
    if (![...given.values()].every(answer)) return say(`${file.name} holds an unknown category.`, true);
    items.forEach((item, at) => {
      const category = given.get(`${item.group} ${item.id}`) ?? null;
      if (category === null || category === state.answers[at]) return;
      state.history.push([at, state.answers[at]]);
      state.answers[at] = category;
    });
    if (!state.annotator && typeof found.annotator === "string") $("annotator").value = state.annotator = found.annotator;
    say(`Imported from ${file.name}.`);
    go(state.answers[state.at] === null ? state.at : open());
  });

  if (!items.length) return;
  $("work").hidden = false;
  show();
})();
