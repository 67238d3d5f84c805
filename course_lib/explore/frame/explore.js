// The front end of an explorable: its controls, and the picture that Python drew for their state.

// The states of a page without a kernel are kept by the places of their values among those offered.
function keyOf(controls, state) {
  return controls.map(({name, values}) => values.indexOf(state[name])).join(",");
}

// Asks for one state at a time: what changes while an answer is awaited is asked once, at the end.
function asker(send) {
  let waiting = false, later = null;
  return {
    ask(state) {
      if (waiting) later = state;
      else { waiting = true; send(state); }
    },
    answered() {
      waiting = false;
      if (later) { const next = later; later = null; this.ask(next); }
    },
  };
}

// `source` {ask(state), listen(tell)}: tell({svg, words}) or tell({problem}).
function mount(root, spec, source) {
  const leave = prepare(root, spec.title);
  const state = {...spec.state};
  const host = element("div");
  const words = element("p", {class: "lc-words", "aria-live": "polite"});
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
    problem.textContent = answer.problem ?? "";
    if (!answer.svg) return;
    draw(answer.svg);
    words.textContent = answer.words;
  });
  const controls = element("div", {class: "lc-controls"}, ...Object.values(shown).map(({node}) => node));
  root.replaceChildren(element("p", {class: "lc-title"}, spec.title), host, controls, words, problem,
    element("p", {class: "lc-caption"}, spec.caption));
  return leave;
}

// A page of the book: the states that it offers were drawn when the book was made. `start` is where its
// notebook began, as far as the page offers it.
function mountTable(root, {spec, states}, start = {}) {
  const offered = spec.controls.filter(({name, values}) => values.includes(start[name]));
  const state = {...spec.state, ...Object.fromEntries(offered.map(({name}) => [name, start[name]]))};
  let tell;
  const look = now => tell(states[keyOf(spec.controls, now)]);
  return mount(root, {...spec, state}, {ask: look, listen(f) { tell = f; look(state); }});
}

function render({model, el}) {
  const root = element("div");
  el.append(root);
  const line = asker(state => {
    model.set("asked", {state, number: (model.get("asked").number ?? 0) + 1});
    model.save_changes();
  });
  return mount(root, model.get("data"), {
    ask: state => line.ask(state),
    listen(tell) {
      tell(model.get("answer"));
      model.on("change:answer", () => { tell(model.get("answer")); line.answered(); });
    },
  });
}

export default {render};
