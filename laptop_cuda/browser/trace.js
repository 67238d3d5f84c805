// A recorded launch, read: the words of a step, what it touches, where to go next. `data` is what
// laptop_cuda/pictures/player.py packs; a test holds the words to those of player.py and the counts to the engine's.

function unpack(data) {
  const {columns, rows} = data.steps;
  const steps = rows.map(row => Object.fromEntries(columns.map((name, n) => [name, row[n]])));
  for (const step of steps) step.file = data.files[step.file];
  return {...data, steps, lanes: [...Array(data.machine.warp_size).keys()],
          arrayOf: step => step.array === null ? null : data.arrays[step.array],
          eventsOf: step => data.events.slice(step.first_event, step.first_event + step.n_events)};
}

const active = (mask, lane) => (mask >>> lane & 1) === 1;

function lanesInWords(mask, lanes) {
  const found = lanes.filter(lane => active(mask, lane));
  if (!found.length) return "No lane";
  if (found.length === 1) return `Lane ${found[0]}`;
  return found.at(-1) - found[0] + 1 === found.length ? `Lanes ${found[0]} to ${found.at(-1)}`
    : `${found.length} of ${lanes.length} lanes`;
}

const counted = (count, one, many) => `${count} ${count === 1 ? one : many}`;

function where(trace, step) {
  const array = trace.arrayOf(step), item = array.itemsize || 1;
  const places = trace.eventsOf(step).map(([, offset]) => Math.floor(offset / item));
  const [first, last] = [places[0] ?? 0, places.at(-1) ?? 0].map(place => `${array.name}[${place}]`);
  return new Set(places).size < 2 ? first : `${first} to ${last}`;
}

function cost(trace, step) {
  const asked = trace.eventsOf(step).reduce((sum, event) => sum + event[2], 0);
  const shared = trace.arrayOf(step).space === "shared";
  if (!step.sectors && !step.wavefronts) {
    const uncounted = shared && step.kind === "atomic";
    return `${asked} bytes` + (uncounted ? "" : ", the access at which the launch was stopped");
  }
  const passes = counted(step.wavefronts, "pass", "passes");
  if (shared)
    return `${asked} bytes in ${passes}, ${step.excess} lost to conflicts`;
  const moved = trace.machine.sector_bytes * step.sectors;
  return `${asked} bytes in ${counted(step.sectors, "sector", "sectors")}, ${moved} bytes moved`;
}

function what(trace, step) {
  const who = lanesInWords(step.lanes, trace.lanes);
  if (step.kind === "barrier") return `${who} at a barrier.`;
  if (step.kind === "exchange") return `${who} in a shuffle, a vote or a warp synchronisation.`;
  if (step.array === null) return `${who} active.`;
  return `${who}: ${step.kind} ${where(trace, step)}, ${cost(trace, step)}.`;
}

function wordsOf(trace, number) {
  if (!trace.steps.length) return "The launch has no recorded step.";
  const step = trace.steps[number];
  const file = step.file === trace.source ? "" : ` of ${step.file}`;
  const line = step.line ? `line ${step.line}${file}` : "a line that is not known";
  return `Step ${number + 1} of ${trace.steps.length}: block ${step.block}, interval ${step.interval}, ` +
    `warp ${step.warp}, ${line}. ${what(trace, step)}`;
}

// [{bank: words}], one for each part of the warp that is served together (Machine.bank_parts in machine.py).
function bankParts(events, array, {banks, bank_bytes: wide}, kind) {
  const parts = new Map(), places = new Map(events), size = events[0]?.[2];
  const pairs = bit => events.every(([lane, offset]) => (places.get(lane ^ bit) ?? offset) === offset);
  const doubled = size > 4 && kind === "load" && (pairs(1) || pairs(2)) ? 2 : 1;
  const together = doubled * (size <= 4 ? 32 : size <= 8 ? 16 : 8);
  for (const [lane, offset] of events) {
    const number = Math.floor(lane / together), first = array.offset + offset;
    if (!parts.has(number)) parts.set(number, new Map());
    const found = parts.get(number);
    for (let word = Math.floor(first / wide); wide * word < first + size; word++)
      found.set(word % banks, (found.get(word % banks) ?? new Set()).add(word));
  }
  return [...parts.values()];
}

// {word: whether it is wanted together with another one of its bank}
function wordsWanted(parts) {
  const found = new Map();
  for (const part of parts) for (const words of part.values())
    for (const word of words) found.set(word, found.get(word) || words.size > 1);
  return found;
}

// {sector: its bytes that lanes asked for}
function sectorsOf(events, array, machine) {
  const found = new Map();
  for (const [, offset, size] of events)
    for (let byte = array.start + offset; byte < array.start + offset + size; byte++) {
      const sector = Math.floor(byte / machine.sector_bytes);
      found.set(sector, (found.get(sector) ?? new Set()).add(byte));
    }
  return found;
}

// What the variables of a lane hold at a step. Values come for the lanes of a mask, packed.
function variablesInWords(trace, number, lane) {
  const {names, rows} = trace.registers, step = trace.steps[number], held = new Map();
  if (!names) return "The names of its variables are not known here.";
  for (const [first, block, warp, name, lanes, values] of rows) {
    if (first > number || block !== step.block || warp !== step.warp || !active(lanes, lane)) continue;
    held.set(name, values[trace.lanes.filter(l => l < lane && active(lanes, l)).length]);
  }
  const sorted = [...held].filter(([, value]) => value !== null).sort(([a], [b]) => a - b);
  return sorted.map(([name, value]) => `${names[name]} = ${value}`).join(", ") || "None is known here.";
}

// The warps of the step's block as they are at that step: for each lane its line, and whether it is active.
function warpsAt(trace, number) {
  const now = trace.steps[number], rows = new Map();
  for (let n = number; n >= 0 && trace.steps[n].block === now.block; n--) {
    const step = trace.steps[n];
    if (!rows.has(step.warp))
      rows.set(step.warp, {warp: step.warp, mask: step.lanes, lines: trace.lanes.map(() => 0)});
    const row = rows.get(step.warp);
    for (const lane of trace.lanes) if (active(step.lanes, lane) && !row.lines[lane]) row.lines[lane] = step.line;
  }
  return [...rows.values()].sort((a, b) => a.warp - b.warp);
}

// The words or sectors of a step's array that its lanes touch.
function unitsOf(trace, step) {
  const array = trace.arrayOf(step), events = trace.eventsOf(step);
  if (array.space !== "shared") return [...sectorsOf(events, array, trace.machine).keys()];
  return [...wordsWanted(bankParts(events, array, trace.machine, step.kind)).keys()];
}

// What was touched up to a step, of each array: {unit: last kind}. Shared memory is new in each block. A step
// forward adds what is new; a step back begins again.
function touching(trace) {
  let reached = -1, found;
  return number => {
    if (number < reached || reached < 0) { found = trace.arrays.map(() => new Map()); reached = -1; }
    for (; reached < number; reached++) {
      const step = trace.steps[reached + 1];
      if (reached >= 0 && step.block !== trace.steps[reached].block)
        trace.arrays.forEach((array, n) => { if (array.space === "shared") found[n].clear(); });
      if (step.n_events) for (const unit of unitsOf(trace, step)) found[step.array].set(unit, step.kind);
    }
    return found;
  };
}

// The arrays that look different at two steps: of neighbours, those that one of them touches; else all.
function changedBetween(trace, from, to) {
  const filled = trace.arrays.flatMap((array, n) => array.bytes ? [n] : []);
  if (from === null || Math.abs(to - from) > 1) return filled;
  const [before, after] = [trace.steps[from], trace.steps[to]];
  return before.block === after.block ? filled.filter(n => n === before.array || n === after.array) : filled;
}

const GOALS = {
  barrier: step => step.kind === "barrier",
  conflict: step => step.excess > 0,
  line: (step, from) => step.line !== from.line || step.warp !== from.warp,
  access: step => step.n_events > 0,
};

// The next step that a goal names, or the present one where there is none.
function jump(trace, number, goal) {
  const from = trace.steps[number];
  for (let n = number + 1; n < trace.steps.length; n++) if (GOALS[goal](trace.steps[n], from)) return n;
  return number;
}

// What lies between the two accesses of an error, in words.
function betweenInWords(trace) {
  const accesses = trace.error?.accesses ?? [];
  if (accesses.length < 2) return "";
  const [first, last] = accesses.map(a => a.step).sort((a, b) => a - b);
  const between = trace.steps.slice(first + 1, last);
  const barriers = between.filter(step => step.kind === "barrier").length;
  const ordered = trace.steps[first].warp === trace.steps[last].warp ? "" :
    " No order between two warps is given but by barriers, so either access can be the first.";
  return `Between the two accesses: ${counted(between.length, "step", "steps")} and ` +
    `${counted(barriers, "barrier", "barriers")}.${ordered}`;
}
