// Draws a question of the course; see form.py for what the model holds.

function make(tag, parent, attributes = {}, text = "") {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  parent.append(made);
  return made;
}

// When a form says that the kernel has not answered what was sent.
const ANSWER_MS = 3000;

// A text that stays the same is left alone, so that a selection in it stays.
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// The notebook that an element is in, and the position of its cell. JupyterLab has them if it was
// started with LabApp.expose_app_in_browser, as `mcnb lab` does.
function place(el) {
  const notebook = window.jupyterapp?.shell?.currentWidget?.content;
  const at = (notebook?.widgets ?? []).findIndex((cell) => cell.node?.contains(el));
  return at >= 0 && at + 1 < notebook.widgets.length ? { notebook, at } : null;
}

function runNext({ notebook, at }) {
  notebook.deselectAll();
  notebook.activeCellIndex = at + 1;
  window.jupyterapp.commands.execute("notebook:run-cell");
}

function render({ model, el }) {
  el.classList.add("mcnb-form");
  const form = make("form", el);
  // JupyterLab has shortcuts for keys without modifiers, such as those that choose.
  form.addEventListener("keydown", (event) => {
    const modified = event.ctrlKey || event.metaKey || event.altKey || event.shiftKey;
    if (!modified) event.stopPropagation();
  });
  const fields = make("fieldset", form);
  make("legend", fields, {}, model.get("question"));
  for (const choice of model.get("choices")) {
    const label = make("label", fields);
    make("input", label, { type: "radio", name: "answer", value: choice, required: "" });
    make("span", label, {}, choice);
  }
  if (model.get("choices").length === 0) {
    const label = make("label", fields);
    make("span", label, {}, "A number:");
    make("input", label, { type: "number", name: "answer", step: "1", required: "" });
  }
  const button = make("button", form, { type: "submit" });
  // Only the view in which the learner answers runs the next cell.
  let asked = false;
  // Whether the kernel has not answered in time: it is busy, or a restart has lost this question.
  let silent = false;
  let timer;
  const status = make("div", el, { class: "mcnb-form-status", role: "status", tabindex: "-1" });
  const draw = () => {
    // A reader who used the keyboard would else be at the beginning of the page.
    const focused = form.contains(document.activeElement);
    form.hidden = model.get("locked");
    setText(button, place(el) ? "Lock it, and run the next cell" : "Lock it");
    setText(status, silent ? model.get("no_answer") : model.get("said"));
    if (form.hidden && focused) status.focus();
    if (!form.hidden || !asked) return;
    asked = false;
    const here = place(el);
    if (here) runNext(here);
  };
  const hear = () => {
    clearTimeout(timer);
    silent = false;
    draw();
  };
  const miss = () => {
    silent = true;
    draw();
  };
  // A kernel that was restarted can be sent nothing; one that is busy does not answer.
  const send = (content) => {
    clearTimeout(timer);
    timer = setTimeout(miss, ANSWER_MS);
    try {
      model.send(content);
    } catch {
      clearTimeout(timer);
      miss();
    }
  };
  form.addEventListener("input", () => {
    try {
      model.send({ chosen: new FormData(form).get("answer") });
    } catch {
      miss();
    }
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    asked = true;
    send({ answer: new FormData(form).get("answer") });
  });
  model.on("change:locked", hear);
  model.on("change:heard", hear);
  draw();
  // What a notebook says of its cells is known a moment after it is drawn.
  form.addEventListener("pointerenter", draw);
  form.addEventListener("focusin", draw);
  return () => {
    clearTimeout(timer);
    model.off("change:locked", hear);
    model.off("change:heard", hear);
  };
}

export default { render };
