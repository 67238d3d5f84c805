// The front end of an explorable: its controls, and the picture that Python drew for their state.

// The states of a page without a kernel are kept by the places of their values among those offered.
function keyOf(controls, state) {
  return controls.map(({name, values}) => values.indexOf(state[name])).join(",");
}

// What changed between two texts: the parts that the old one did not have, as many as one listens to.
function changed(before, after, most = 25) {
  const parts = text => text.split(/(?<=[.;,:]) +/), old = new Set(parts(before));
  const fresh = parts(after).filter(part => !old.has(part));
  const length = n => fresh.slice(0, n).join(" ").split(" ").length;
  const kept = fresh.filter((_, n) => n === 0 || length(n + 1) <= most);
  return kept.join(" ") + (kept.length < fresh.length ? " And more." : "");
}

const WAITS = [[1000, "Waiting for the kernel."],
               [10000, "No answer yet. If the kernel was restarted, run this cell again."]];

// Asks for one state at a time: what changes while an answer is awaited is asked once, at the end. `say` is told
// when the answer takes long.
function asker(send, say) {
  let waiting = false, later = null, timers = [];
  return {
    ask(state) {
      if (waiting) { later = state; return; }
      waiting = true;
      if (say) timers = WAITS.map(([time, text]) => setTimeout(() => say(text), time));
      send(state);
    },
    answered() {
      waiting = false;
      timers.forEach(clearTimeout);
      say?.("");
      if (later) { const next = later; later = null; this.ask(next); }
    },
  };
}

// `source` {ask(state), listen(tell)}: tell({svg, words, ranges}), tell({problem}) or tell({waits}).
function mount(root, spec, source) {
  const leave = prepare(root, spec.title);
  const state = {...spec.state};
  const host = element("div", {class: "lc-sheet"});
  const words = element("p", {class: "lc-words"}), heard = element("p", {class: "lc-heard", "aria-live": "polite"});
  const waits = element("p", {class: "lc-waits", role: "status"});
  const problem = element("p", {class: "lc-problem", role: "alert"});
  const change = (name, value) => {
    state[name] = value;
    shown[name]?.show(value);
    source.ask({...state});
  };
  const made = control => CONTROLS[control.kind](control, value => change(control.name, value));
  const shown = Object.fromEntries(
    spec.controls.filter(({kind}) => kind in CONTROLS).map(control => [control.name, made(control)]));
  const draw = sheet(host, spec.controls, () => state, change);
  for (const [name, control] of Object.entries(shown)) control.show(state[name]);
  source.listen(answer => {
    if ("waits" in answer) { waits.textContent = answer.waits; return; }
    problem.textContent = answer.problem ?? "";
    if (!answer.svg) return;
    draw(answer.svg);
    if (words.textContent) heard.textContent = changed(words.textContent, answer.words);
    words.textContent = answer.words;
    for (const [name, values] of Object.entries(answer.ranges ?? {})) {
      if (!values.includes(state[name])) state[name] = values[nearest(values, state[name])];
      shown[name].show(state[name], values);
    }
  });
  const controls = element("div", {class: "lc-controls"}, ...Object.values(shown).map(({node}) => node));
  root.replaceChildren(element("p", {class: "lc-title"}, spec.title), host, controls, waits, words, heard,
    problem, element("p", {class: "lc-caption"}, spec.caption));
  return leave;
}

// A page of the book, where no kernel is: its states were drawn when the book was made, or answer(state, data) draws
// them here. `start` is where its notebook began, as far as the page offers it.
function mountHere(root, {spec, states, answer}, start = {}, data = null) {
  const offered = spec.controls.filter(({name, values}) => name in start && (!values || values.includes(start[name])));
  const state = {...spec.state, ...Object.fromEntries(offered.map(({name}) => [name, start[name]]))};
  let tell;
  const found = now => states ? states[keyOf(spec.controls, now)] : answer(now, data), look = now => tell(found(now));
  if (found(state).problem) throw new Error(found(state).problem);        // and the still remains
  return mount(root, {...spec, state}, {ask: look, listen(f) { tell = f; look(state); }});
}

function render({model, el}) {
  const root = element("div");
  el.append(root);
  let say;
  const line = asker(state => {
    model.set("asked", {state, number: (model.get("asked").number ?? 0) + 1});
    model.save_changes();
  }, text => say({waits: text}));
  return mount(root, model.get("data"), {
    ask: state => line.ask(state),
    listen(tell) {
      say = tell;
      tell(model.get("answer"));
      model.on("change:answer", () => { tell(model.get("answer")); line.answered(); });
    },
  });
}

export default {render};
