"use strict";

// Everything is built from text nodes, so no text can become markup.
function made(tag, kind, ...children) {
  const element = document.createElement(tag);
  element.className = kind;
  element.append(...children);
  return element;
}

function bar(name, value, most, kind, digits) {
  const meter = document.createElement("meter");
  meter.max = most;
  meter.value = Math.max(0, value);
  return made("div", `bar ${kind}`, made("span", "", name), meter, made("b", "", value.toFixed(digits)));
}

function head(one) {
  if (!one.classes) return [bar(`${one.title}, 0 to 5`, one.value, 5, "", 2)];
  const best = Math.max(...one.classes.map(([, share]) => share));
  const rows = one.classes.map(([name, share]) => bar(name, share, 1, share === best ? "best" : "", 3));
  return [made("p", "quiet", one.title), ...rows];
}

function nearest(rows, searched) {
  if (!searched.length) return [];
  const items = rows.map((row) => made("li", "", ...row.texts.map((text) => made("span", "", text)),
    made("span", "quiet", `${row.task}: ${row.label}, cosine ${row.cosine.toFixed(3)}`)));
  const list = made("details", "", made("summary", "", "Nearest training rows"), made("ul", "nearest", ...items),
    made("p", "quiet", `Searched: ${searched.join("; ")}`));
  list.open = true;
  return [list];
}

function answer(found) {
  const parts = [made("h3", "", found.run)];
  if (found.ranked) parts.push(...found.ranked.map((row) => bar(row.text, row.cosine, 1, "long", 3)));
  if (found.cosine !== undefined) parts.push(bar("cosine", found.cosine, 1, "", 3));
  for (const one of found.heads || []) parts.push(...head(one));
  const asked = found.cosine === undefined ? "one sentence" : "two sentences";
  if (found.heads && !found.heads.length) parts.push(made("p", "quiet", `This run has no head for ${asked}.`));
  return made("div", "answer", ...parts, ...nearest(found.nearest || [], found.searched || []));
}

async function ask(form) {
  const fields = Object.fromEntries(new FormData(form));
  if (fields.texts !== undefined) fields.texts = fields.texts.split("\n").map((line) => line.trim()).filter(Boolean);
  const place = form.nextElementSibling;
  const button = form.querySelector("button");
  button.disabled = true;
  place.replaceChildren(made("p", "quiet", "Computing …"));  // the first answer needs the vectors of the training rows
  try {
    const reply = await fetch(form.dataset.ask, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(fields),
    });
    if (!reply.ok) throw new Error(reply.status === 422 ? "Type a text into every field." : `The server said ${reply.status}.`);
    place.replaceChildren(...(await reply.json()).map(answer));
  } catch (error) {
    place.replaceChildren(made("p", "quiet", error instanceof TypeError ? "The server is not running." : error.message));
  }
  button.disabled = false;
}

for (const form of document.forms) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask(form);
  });
}
