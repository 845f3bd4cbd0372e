// Draws the panel of a running cell; see panel.py for what the model holds.

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 10;
// When the first widget says that it was drawn, and how often. JupyterLab asks the kernel for a
// subshell when a widget is made, and sends to the main shell until it has one.
const SAYS_AFTER_MS = 150;
const SAYS_TIMES = 20;
// Without news for so long, the panel says so. While a cell runs, they come twice a second.
const SILENT_MS = 5000;

function make(tag, parent, attributes = {}, text = "") {
  const svg = ["svg", "rect", "title"].includes(tag);
  const made = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  parent.append(made);
  return made;
}

// A text that stays the same is left alone, so that a selection in it stays.
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// The runs of equal letters of a row: letter, first part, and number of parts.
function runs(row) {
  const found = [];
  for (let at = 0; at < row.length; ) {
    let end = at;
    while (end < row.length && row[end] === row[at]) end += 1;
    found.push([row[at], at, end - at]);
    at = end;
  }
  return found;
}

function seconds(view, parts) {
  const lasted = parts * view.period_s;
  return `${lasted.toFixed(lasted < 10 ? 1 : 0)} s`;
}

function strip(view, words, name, row) {
  const found = runs(row);
  const [last, , lasted] = found[found.length - 1];
  const drawing = document.createElementNS(SVG, "svg");
  drawing.setAttribute("viewBox", `0 0 ${view.longest} ${HEIGHT}`);
  drawing.setAttribute("preserveAspectRatio", "none");
  drawing.setAttribute("role", "img");
  drawing.setAttribute("aria-label", `${name}: ${words[last]} for ${seconds(view, lasted)}`);
  for (const [letter, at, length] of found) {
    const box = make("rect", drawing, { class: `mcnb-${letter}`, x: at, y: 0, width: length, height: HEIGHT });
    make("title", box, {}, `${name}: ${words[letter]} for ${seconds(view, length)}`);
  }
  return drawing;
}

function render({ model, el }) {
  el.classList.add("mcnb-panel");
  const lines = make("pre", el, { class: "mcnb-lines" });
  const strips = make("div", el, { class: "mcnb-strips" });
  const legend = make("div", el, { class: "mcnb-legend" });
  const progress = make("pre", el, { class: "mcnb-progress" });
  const buttons = make("div", el, { class: "mcnb-buttons" });
  const answer = make("pre", el, { class: "mcnb-answer", role: "status" });
  const gone = make("div", el, { class: "mcnb-gone", role: "alert" });
  const press = () => {
    buttons.replaceChildren();
    for (const [kind, text] of Object.entries(model.get("buttons"))) {
      const button = make("button", buttons, { type: "button", "data-kind": kind }, text);
      button.addEventListener("click", () => model.send({ kind }));
    }
  };
  // What is drawn: the names, the strip and its row of each, and the letters in the legend.
  let names = "";
  let drawn = [];
  let letters = "";
  const drawStrips = (view, words) => {
    const wanted = view.rows.map(([name]) => name).join("\n");
    if (wanted !== names) {
      strips.replaceChildren();
      drawn = view.rows.map(([name]) => {
        make("span", strips, {}, name);
        return { box: make("svg", strips), key: "" };
      });
      names = wanted;
    }
    // Only a strip that has changed is drawn again: the tooltips of the others stay.
    view.rows.forEach(([name, row], at) => {
      const key = `${view.period_s} ${row}`;
      if (drawn[at].key === key) return;
      const box = strip(view, words, name, row);
      drawn[at].box.replaceWith(box);
      drawn[at] = { box, key };
    });
  };
  const drawLegend = (view, words) => {
    const seen = new Set(view.rows.flatMap(([, row]) => [...row]));
    const wanted = Object.keys(words).filter((letter) => seen.has(letter)).join("");
    if (wanted === letters) return;
    letters = wanted;
    legend.replaceChildren();
    for (const letter of letters) {
      const item = make("span", legend);
      make("span", item, { class: `mcnb-swatch mcnb-${letter}`, "aria-hidden": "true" });
      make("span", item, {}, words[letter]);
    }
  };
  const draw = () => {
    const view = model.get("view");
    const words = model.get("words");
    setText(lines, view.lines.join("\n"));
    setText(progress, view.progress.join("\n"));
    drawStrips(view, words);
    drawLegend(view, words);
  };
  let frame = 0;
  let silence = 0;
  const miss = (text) => {
    el.classList.toggle("mcnb-silent", text !== "");
    setText(gone, text);
  };
  const hear = () => {
    clearTimeout(silence);
    miss("");
    if (model.get("view").running) silence = setTimeout(() => miss(model.get("gone")), SILENT_MS);
    // Only the newest one is drawn, and none while nobody can see it.
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(draw);
  };
  const say = () => {
    setText(answer, model.get("answer"));
  };
  model.on("change:view", hear);
  model.on("change:answer", say);
  model.on("change:buttons", press);
  hear();
  press();
  say();
  let left = SAYS_TIMES;
  let timer;
  const later = () => {
    if (!model.get("asks") || left === 0) return;
    left -= 1;
    timer = setTimeout(() => {
      model.send({ kind: "here" });
      later();
    }, SAYS_AFTER_MS);
  };
  later();
  return () => {
    clearTimeout(timer);
    clearTimeout(silence);
    cancelAnimationFrame(frame);
    model.off("change:view", hear);
    model.off("change:answer", say);
    model.off("change:buttons", press);
  };
}

export default { render };
