// The computing parts of the player, on traces that tests/engine/test_player.py recorded and put beside this file.
import assert from "node:assert/strict";
import {readFileSync} from "node:fs";
import {test} from "node:test";
import {bankParts, betweenInWords, changedBetween, drawArray, drawTimeline, drawWarps, jump, laneInWords, sectorsOf, timeLine, touching, unpack, variablesInWords, warpsAt,
  wordsOf} from "./front.mjs";

const TRACES = JSON.parse(readFileSync("traces.json", "utf8")).map(({data, ...said}) => ({trace: unpack(data), ...said}));
const named = name => TRACES.find(({trace}) => trace.kernel === name).trace;

test("the words of every step are those of Python", () => {
  for (const {trace, words} of TRACES) assert.deepEqual(trace.steps.map((_, n) => wordsOf(trace, n)), words);
  for (const {trace, variables} of TRACES) assert.deepEqual(trace.steps.map((_, n) => variablesInWords(trace, n, n % trace.lanes.length)), variables);
  assert.ok(TRACES.some(({variables}) => variables.some(said => said.includes("k = 2"))));
});

test("what lights up is what the engine counted", () => {
  let shared = 0, global = 0;
  for (const {trace} of TRACES)
    for (const step of trace.steps.filter(step => step.n_events && step.sectors + step.wavefronts)) {
      const array = trace.arrayOf(step), events = trace.eventsOf(step);
      if (array.space === "shared") {
        const parts = bankParts(events, array, trace.machine, step.kind).map(part => Math.max(...[...part.values()].map(words => words.size)));
        const passes = parts.reduce((sum, part) => sum + part, 0);
        assert.deepEqual([passes, passes - parts.length], [step.wavefronts, step.excess]);
        shared++;
      } else if (step.kind !== "atomic") {
        assert.equal(sectorsOf(events, array, trace.machine).size, step.sectors);
        global++;
      }
    }
  assert.ok(shared > 50 && global > 50);
});

test("jumps go to the next of their kind, or stay", () => {
  const trace = named("transpose");
  for (const [goal, is] of [["barrier", s => s.kind === "barrier"], ["conflict", s => s.excess > 0], ["access", s => s.n_events > 0]]) {
    const to = jump(trace, 0, goal);
    assert.ok(is(trace.steps[to]) && !trace.steps.slice(1, to).some(is), goal);
  }
  assert.equal(jump(trace, trace.steps.length - 1, "conflict"), trace.steps.length - 1);
  assert.notEqual(trace.steps[jump(trace, 0, "line")].line, trace.steps[0].line);
});

test("a step back shows what a walk from the beginning shows", () => {
  for (const {trace} of TRACES) {
    const walked = touching(trace), last = trace.steps.length - 1, middle = Math.floor(last / 2);
    walked(last);
    assert.deepEqual(walked(middle), touching(trace)(middle));
  }
});

test("what is not drawn anew between neighbours looks the same", () => {
  for (const {trace} of TRACES) {
    const at = touching(trace);
    const pictures = trace.steps.slice(0, 150).map((_, n) => {
      const before = at(n);
      return trace.arrays.map((array, i) => array.bytes ? drawArray(trace, n, i, before[i]) : "");
    });
    for (let n = 1; n < pictures.length; n++)
      for (const [from, to] of [[n - 1, n], [n, n - 1]]) {
        const changed = changedBetween(trace, from, to);
        pictures[to].forEach((picture, i) => { if (!changed.includes(i)) assert.equal(picture, pictures[from][i]); });
      }
  }
});

test("a diverged warp has its lanes on their own lines, and the masked ones are not active", () => {
  const trace = named("odd_ones");
  const n = trace.steps.findIndex(step => step.kind === "load" && step.lanes === 0x55555555);
  const [row] = warpsAt(trace, n).filter(({warp}) => warp === trace.steps[n].warp);
  assert.equal(row.mask, 0x55555555);
  assert.equal(row.lines[0], trace.steps[n].line);
});

test("a row has as many lanes as a warp of the machine", () => {
  for (const size of [8, 16, 32]) {
    const {trace} = TRACES.find(({trace}) => trace.machine.warp_size === size);
    const [row] = warpsAt(trace, 0);
    assert.equal(row.lines.length, size);
    assert.equal(drawWarps(trace, 0, 0).match(/data-lane/g).length, size * warpsAt(trace, 0).length);
  }
});

test("a race: two rows marked, what lies between said", () => {
  const trace = named("reverse");
  assert.match(betweenInWords(trace), /^Between the two accesses: \d+ steps? and 0 barriers\. No order between two warps/);
  assert.equal(drawWarps(trace, trace.first, 0).match(/the error speaks of it/g).length, 2);
  assert.equal(betweenInWords(named("every")), "");
});

test("a timeline's mark is where the warp was last, on its page", () => {
  const steps = [0, 1, 0].map(warp => ({block: 0, warp}));
  const lanes = {pages: ["<svg>a</svg>", "<svg>b</svg>"], at: [[0, 3, 3, 68, "step 3"], [2, 61, 64, 68, "steps 61 to 64"]], last: 65,
                 each: 60, left: 96, wide: 600, high: 24};
  const [first, second, last] = [0, 1, 2].map(n => drawTimeline({steps, timelines: {0: lanes}}, n));
  assert.match(first[0], /^<svg>a<path.*<rect x="126" y="68" width="10"/);
  assert.deepEqual([second[1], last[1]], ["Timeline: warp 1, nothing yet.", "Timeline: warp 0, steps 61 to 64."]);
  assert.match(last[0], /^<svg>b.*<rect x="646" y="68" width="40"/);
  assert.deepEqual(drawTimeline({steps, timelines: {}}, 0), ["", ""]);
});

test("pictures hold what they say", () => {
  const trace = named("transpose"), at = touching(trace), shared = trace.arrays.findIndex(a => a.space === "shared");
  const picture = drawArray(trace, trace.first, shared, at(trace.first)[shared]);
  assert.match(picture, /tile: 4,096 bytes of shared memory/);
  assert.ok(picture.includes("lc-f-warn"), "words that wait for their bank are red");
  assert.equal(timeLine(trace)(0).match(/data-set/g).length, trace.intervals.length);
  assert.match(laneInWords(trace, trace.first, 3), /load tile\[96\]: 96;/);
});
