"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  for (const button of document.querySelectorAll(".copy")) {
    if (!navigator.clipboard) continue;
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.previousElementSibling.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }

  const data = JSON.parse($("data").textContent);
  const rows = data.rows.map(([run, task, id, texts, gold, predicted, shares, wrong]) => {
    const { title, classes, cosines } = data.tasks[task];
    const shown = (value) => (classes.length ? classes[value] : value.toFixed(1));
    const row = { run, task, title, cosines, id, texts, gold, predicted, shares, wrong, goldText: shown(gold) };
    row.predictedText = classes.length ? shown(predicted) : predicted.toFixed(2);
    row.length = texts.join(" ").length;
    row.found = [id, title, row.goldText, row.predictedText, ...texts].join("\n").toLowerCase();
    return row;
  });

  const sentence = data.summaries.join("; ") + ".";
  $("summary").textContent = data.summaries.length ? sentence[0].toUpperCase() + sentence.slice(1) : "No dev rows are recorded, so no errors can be listed.";
  if (!rows.length) return;
  const several = data.runs.length > 1;
  const state = { sort: "wrong", down: true, shown: 25 };

  const make = (tag, kind, text) => {
    const node = document.createElement(tag);
    if (kind) node.className = kind;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const draw = (parent, tag, attributes) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    parent.append(node);
    return node;
  };
  const options = (select, pairs) => {
    for (const [value, text] of pairs) { const option = make("option", "", text); option.value = value; select.append(option); }
  };
  options($("of-task"), [["", "all"], ...Object.entries(data.tasks).map(([name, task]) => [name, task.title])]);
  options($("of-run"), [["", "all"], ...data.runs.map((name, place) => [String(place), name])]);
  $("runs-label").hidden = !several;

  const plot = (row) => {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("class", "tiny-plot");
    svg.setAttribute("viewBox", "0 0 96 34");
    svg.setAttribute("role", "img");
    if (row.shares) {
      const { classes } = data.tasks[row.task];
      const width = Math.min(16, 92 / row.shares.length - 3);
      const words = row.shares.map((share, place) => `${classes[place]} ${share.toFixed(3)}`);
      svg.setAttribute("aria-label", words.join(", "));
      draw(svg, "title", {}).textContent = words.join("\n");
      row.shares.forEach((share, place) => {
        const tall = Math.max(share * 32, 1);
        const kind = place === row.gold ? "gold" : place === row.predicted ? "predicted" : "";
        draw(svg, "rect", { x: 2 + place * (width + 3), y: 33 - tall, width, height: tall, rx: 1.5, class: kind });
      });
    } else {
      const x = (value, most) => 5 + Math.min(Math.max(value / most, 0), 1) * 86;
      const ends = { gold: x(row.gold, 5), predicted: x(row.predicted, row.cosines ? 1 : 5) };
      svg.setAttribute("aria-label", `gold ${row.goldText} of 5, predicted ${row.predictedText}`);
      draw(svg, "line", { x1: 5, x2: 91, y1: 17, y2: 17 });
      draw(svg, "line", { x1: ends.gold, x2: ends.predicted, y1: 17, y2: 17, class: "gap" });
      draw(svg, "circle", { cx: ends.gold, cy: 17, r: 4, class: "gold" });
      draw(svg, "circle", { cx: ends.predicted, cy: 17, r: 4, class: "predicted" });
    }
    return svg;
  };

  const line = (row) => {
    const node = make("tr");
    const cell = (kind, text, name) => {
      const found = make("td", kind, text);
      if (name) found.dataset.label = name;
      node.append(found);
      return found;
    };
    const first = cell("task", row.title);
    first.append(" ", make("span", "id", several ? `${data.runs[row.run]} · ${row.id}` : row.id));
    first.lastChild.title = row.id;
    if (data.texts) cell("text").append(...row.texts.map((text) => make("p", "", text)));
    cell("gold", row.goldText, "gold");
    cell("predicted", row.predictedText, "predicted");
    cell("plot").append(plot(row));
    const off = row.cosines ? `rank off by ${(100 * row.wrong).toFixed(0)}%` : `off by ${Math.abs(row.gold - row.predicted).toFixed(2)}`;
    cell("wrongness", row.shares ? `p(gold) ${(1 - row.wrong).toFixed(3)}` : off);
    return node;
  };

  const value = { wrong: (row) => row.wrong, task: (row) => row.title, gold: (row) => row.gold, predicted: (row) => row.predicted, length: (row) => row.length, id: (row) => row.id };
  const show = () => {
    const words = $("query").value.toLowerCase().split(/\s+/).filter(Boolean);
    const task = $("of-task").value;
    const run = $("of-run").value;
    const chosen = rows.filter((row) => (!task || row.task === task) && (!run || String(row.run) === run) && words.every((word) => row.found.includes(word)));
    const key = value[state.sort];
    const sign = state.down ? -1 : 1;
    chosen.sort((a, b) => (key(a) < key(b) ? -sign : key(a) > key(b) ? sign : b.wrong - a.wrong));
    $("errors-table").tBodies[0].replaceChildren(...chosen.slice(0, state.shown).map(line));
    const shown = Math.min(state.shown, chosen.length);
    $("count").textContent = chosen.length ? `Showing ${shown.toLocaleString("en")} of ${chosen.length.toLocaleString("en")}` : "Nothing found";
    $("more").hidden = shown === chosen.length;
    for (const button of document.querySelectorAll("[data-sort]")) {
      button.parentElement.setAttribute("aria-sort", button.dataset.sort !== state.sort ? "none" : state.down ? "descending" : "ascending");
    }
  };
  const sort = (name, down) => {
    state.sort = name;
    state.down = down;
    const wanted = name === "wrong" && !down ? "-wrong" : name;
    $("sort").value = wanted;
    show();
  };
  const falling = (name) => name === "wrong" || name === "length";
  for (const button of document.querySelectorAll("[data-sort]")) {
    button.addEventListener("click", () => sort(button.dataset.sort, state.sort === button.dataset.sort ? !state.down : falling(button.dataset.sort)));
  }
  $("sort").addEventListener("change", () => { const name = $("sort").value; name === "-wrong" ? sort("wrong", false) : sort(name, falling(name)); });
  for (const id of ["query", "of-task", "of-run"]) $(id).addEventListener("input", () => { state.shown = 25; show(); });
  $("more").addEventListener("click", () => { state.shown += 50; show(); });
  for (const node of document.querySelectorAll(".controls, .legend")) node.hidden = false;
  $("errors-table").hidden = false;
  show();
})();
