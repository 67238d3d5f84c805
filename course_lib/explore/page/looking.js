// course_lib/explore/looking.py in the page.
const RIGHT = 688, TOP = 84, LINE = 96, STRIPS = 156, STRIP = 11;

// Per character its weights, (n_layers, n_heads, characters up to it).
const looks = kept((model, text) => {
  const caches = model.caches();
  return model.encode(text.replaceAll("/", "\n")).map((token, at) => model.read(token, at, caches).weights);
});

function draw({text, token, layer, head}, model) {
  if (!text) throw refused("line: type at least one character");
  const found = looks(model, text), at = Math.min(token, found.length - 1), row = found[at][layer][head];
  const canvas = new Canvas(700, STRIPS + 16 * STRIP + 34), cell = Math.min(24, (RIGHT - LEFT) / text.length);
  const most = best(row, 3), called = place => `'${shown(text[place])}' at ${place}`;
  drawLine(canvas, text, at, row, cell, most.map(([, place]) => place));
  canvas.text(20, STRIPS - 12, "The same character in every head. Click a strip to see it above.", {size: 11, fill: "faint"});
  drawHeads(canvas, {top: STRIPS, high: STRIP, cell, held: [...row.keys()], weights: found[at], layer, head});
  const named = most.map(([weight, place]) => `${called(place)} (${percent(weight)})`).join(", ");
  const heads = found[at].map((part, n) => `layer ${n}: ${part.map(each => called(best(each, 1)[0][1])).join(", ")}`);
  return [canvas, `The line ${quoted(text)}. In layer ${layer}, head ${head}, ${called(at)} gives most weight to ` +
    `${named}. In heads 0 to 3 of each layer it looks most at: ${heads.join("; ")}.`];
}

function drawLine(canvas, text, token, row, cell, most) {
  canvas.text(LEFT - 10, TOP, "weight", {anchor: "end", fill: "faint"});
  canvas.text(LEFT - 10, LINE + 15, "character", {anchor: "end", fill: "faint"});
  [...text].forEach((character, at) => {
    const x = LEFT + cell * at, share = at <= token ? round(row[at], 2) : 0;
    if (share) canvas.rect(x + 1, TOP - 64 * share, cell - 2, 64 * share, {fill: "2", about: percent(share)});
    if (most.includes(at) && share >= 0.1)
      canvas.text(x + cell / 2, TOP - 64 * share - 4, percent(share), {size: 10, anchor: "middle"});
    canvas.rect(x, LINE, cell, 22, {fill: at === token ? "accent" : "empty", text: shown(character), size: Math.min(12, cell),
      set: {token: at}, hover: true, about: `character ${at}, '${shown(character)}'`});
  });
  canvas.line(LEFT, TOP + 0.5, LEFT + cell * text.length, TOP + 0.5, {stroke: "faint"});
}
