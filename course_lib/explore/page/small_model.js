// course_lib/explore/small_model.py in the page.
const MOST = 32, STEPS = 24, WINDOW = 16, OFFERED = 8, WIDE = 584, STRIPS = 158, STRIP = 12.5;

// The prompt read and STEPS characters written: per pass {text, reads, bytes, logits, chances}. A read is a character
// when it was read: {held: positions, weights: (n_layers, n_heads, held), grown: bytes}.
const written = kept((model, text, temperature, rolling) => {
  const caches = model.caches(), steps = [], window = rolling ? WINDOW : Infinity;
  let fresh = model.encode(text), reads = [], position = 0, before = 0, first = 0;
  for (const drawn of model.draws) {
    first = Math.max(first, position - window + 1);
    for (const cache of caches) while (cache.length && cache[0].position < first) cache.shift();
    const found = fresh.map(token => model.read(token, position++, caches, window));
    const held = caches[0].map(entry => entry.position), {logits} = found.at(-1);
    const bytes = 8 * model.config.d_model * held.length * caches.length;
    reads = [...reads, ...found.map(({weights}) => ({held, weights, grown: (bytes - before) / fresh.length}))];
    let sum = 0;
    before = bytes;
    const chances = softmax(logits.map(x => x / (temperature || 1)));
    steps.push({text, reads, bytes, logits, chances});
    fresh = [temperature ? chances.findIndex(chance => (sum += chance) > drawn) : best(logits, 1)[0][1]];
    text += model.vocabulary[fresh[0]];
  }
  return steps;
});

function draw({text, new: count, layer, head, temperature, cache, view}, model) {
  if (!text) throw refused("prompt: type at least one character");
  const step = written(model, text.replaceAll("/", "\n"), temperature, cache !== "keeps all")[count];
  const mapped = view !== "of the newest character", cell = Math.min(20, WIDE / (text.length + STEPS));
  const {weights, held} = step.reads.at(-1), line = inLine(step.text);
  const foot = STRIPS + STRIP * (mapped ? line.length : weights.flat().length) + 94, canvas = new Canvas(700, foot + 38);
  drawLine(canvas, "text", line, cell, held, weights[layer][head], at => ({set: at >= text.length - 1 ? {new: at - text.length + 1} : null,
    fill: at === line.length - 1 ? "accent" : at < text.length ? "empty" : "soft"}));
  (mapped ? drawMap : drawCache)(canvas, step, layer, head, cell);
  const next = best(step.chances, OFFERED).map(([chance, at]) => [inLine(model.vocabulary[at]), step.logits[at], chance]);
  drawNext(canvas, line, next, foot);
  return [canvas, [`The prompt ${quoted(text)} and ${amount(count, "characters")} written, ${quoted(line.slice(text.length))}.`,
    `The cache ${cache}: keys and values of ${held.length} of ${line.length} characters in ${weights.length} layers, ` +
    `${comma(step.bytes)} bytes, ${comma(8 * model.config.d_model * weights.length)} per character.`,
    (mapped ? allLook : newestLooks)(step, line, layer, head),
    `Likeliest next: ${next.slice(0, 4).map(([c, , chance]) => `'${shown(c)}' ${percent(chance)}`).join(", ")}; written is ` +
    `${temperature ? `drawn at temperature ${temperature}` : "the likeliest"}.`].join(" ")];
}

function newestLooks({reads}, line, layer, head) {
  const {held, weights} = reads.at(-1), called = at => `'${shown(line[at])}' at ${at}`;
  const named = best(weights[layer][head], 3).map(([weight, at]) => `${called(held[at])} (${percent(weight)})`);
  return `In layer ${layer}, head ${head}, the newest character, ${called(line.length - 1)}, gives most weight to ${named.join(", ")}.`;
}

function allLook({reads}, line, layer, head) {
  const starts = [...reads.keys(), reads.length].filter(n => reads[n]?.grown !== reads[n - 1]?.grown);
  const called = at => `'${shown(line[at])}' at ${at}`, grew = starts.slice(0, -1).map((from, n) =>
    `${signed(reads[from].grown, comma)} bytes per character for ${amount(starts[n + 1] - from, "characters")}`);
  const looks = reads.map(({held, weights}, n) => best(weights[layer][head], 1).map(([weight, at]) =>
    `${called(n)}: ${called(held[at])} (${percent(weight)})`));
  return `The cache grew by ${grew.join(", then by ")}. In layer ${layer}, head ${head}, each looks most at: ${looks.join(", ")}.`;
}

function drawCache(canvas, {reads, bytes}, layer, head, cell) {
  const {held, weights} = reads.at(-1), rows = weights.flat(), high = STRIP - 2.5;
  canvas.text(20, STRIPS - 12, `The cache: ${held.length} keys and values in each of ${rows.length} heads, ${bytes / 1024} KiB. ` +
    "Click a row to see it above.", {size: 11, fill: "faint"});
  canvas.frames(rows.flatMap((_, n) => held.map(at => [LEFT + cell * at, STRIPS + STRIP * n])), cell, high);
  drawHeads(canvas, {top: STRIPS, high, cell, held, weights, layer, head});
}

function drawMap(canvas, {text, reads}, layer, head, cell) {
  const line = inLine(text), called = at => `'${shown(line[at])}' at ${at}`;
  canvas.text(20, STRIPS - 12, `Layer ${layer}, head ${head}: each row is the character that looks, each column the one ` +
    "looked at. Left: how the cache grew.", {size: 11, fill: "faint"});
  reads.forEach(({held, weights, grown}, n) => {
    const y = STRIPS + STRIP * n, first = LEFT + cell * held[0];
    canvas.text(LEFT - 24, y + 9.5, `${signed(grown / 1024)} KiB`, {size: 10, anchor: "end", fill: "faint"});
    canvas.text(LEFT - 12, y + 9.5, shown(line[n]), {size: 10, anchor: "middle", bold: n === reads.length - 1});
    weights[layer][head].forEach((share, at) => {
      if (share >= 0.05) canvas.rect(LEFT + cell * held[at], y, cell, STRIP, {fill: "2", stroke: null, shade: round(share, 1),
        about: `${called(n)} gives ${called(held[at])} ${percent(share)}`});
    });
    canvas.frames([[first, y]], LEFT + cell * (n + 1) - first, STRIP);
  });
}

function drawNext(canvas, line, next, foot) {
  canvas.text(LEFT - 10, foot + 15, "next", {anchor: "end", fill: "faint"});
  canvas.text(LEFT - 10, foot + 33, "logit", {anchor: "end", fill: "faint"});
  next.forEach(([character, logit, chance], n) => {
    const x = LEFT + 72 * n, high = round(60 * chance, 1), full = line.length >= MOST;
    canvas.rect(x, foot - high, 56, high, {fill: "0"});
    canvas.text(x + 28, foot - high - 4, percent(chance), {size: 10, anchor: "middle"});
    canvas.rect(x, foot, 56, 22, {text: shown(character), size: 12, set: full ? null : {text: line + character, new: 0},
      about: full ? `a prompt has room for ${MOST}` : `write '${shown(character)}' instead`});
    canvas.text(x + 28, foot + 33, fixed(logit, 1), {size: 10, anchor: "middle", fill: "faint"});
  });
}
