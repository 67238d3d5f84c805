// The computing parts of the front ends. tests/tools/test_explore.py puts this file beside the module and runs node on it.
import assert from "node:assert/strict";
import {test} from "node:test";
import {asker, changed, keyOf, nearest, onSteps, pointAt, pointMoved, themeOf, withUnit, freshId} from "./front.mjs";
import {freshId as idOfAnother} from "./second.mjs";

const POINT = {name: "p", xs: [-2, 2, 0.5], ys: [0, 10, 1], box: [100, 50, 200, 100]};

test("two pictures on a page give no input the same name", () => {
  assert.equal(new Set([freshId(), idOfAnother(), freshId(), idOfAnother()]).size, 4);
});

test("a slider takes the nearest of its values", () => {
  assert.equal(nearest([1, 2, 4, 8], 5), 2);
  assert.equal(nearest([1, 2, 4, 8], 700), 3);
});

test("a point is on its steps and inside its ranges", () => {
  assert.equal(onSteps(0.6, [0, 1, 0.25]), 0.5);
  assert.equal(onSteps(-7, [0, 1, 0.25]), 0);
  assert.deepEqual(pointAt(POINT, 100, 150), [-2, 0]);
  assert.deepEqual(pointAt(POINT, 300, 50), [2, 10]);
  assert.deepEqual(pointAt(POINT, 210, 99), [0, 5]);
  assert.deepEqual(pointAt(POINT, -500, 5000), [-2, 0]);
});

test("the arrow keys move a point by one step and stop at the edge", () => {
  assert.deepEqual(pointMoved(POINT, [0, 5], "ArrowUp"), [0, 6]);
  assert.deepEqual(pointMoved(POINT, [2, 5], "ArrowRight"), [2, 5]);
});

test("a state of a page is found by the places of its values", () => {
  const controls = [{name: "n", values: [1, 2, 4]}, {name: "read", values: ["column", "row"]}];
  assert.equal(keyOf(controls, {n: 4, read: "row"}), "2,1");
});

test("one question at a time, and then the last one", () => {
  const sent = [];
  const line = asker(state => sent.push(state));
  for (const state of [1, 2, 3]) line.ask(state);
  assert.deepEqual(sent, [1]);
  line.answered();
  assert.deepEqual(sent, [1, 3]);
  line.answered();
  line.ask(4);
  assert.deepEqual(sent, [1, 3, 4]);
});

test("what is said after a change is what changed, and not too much of it", () => {
  assert.equal(changed("Stride 1, offset 0: 4 sectors. All asked for.", "Stride 2, offset 0: 8 sectors. All asked for."),
    "Stride 2, 8 sectors.");
  const long = n => Array.from({length: 30}, (_, k) => `pair ${k} at ${n}`).join(", ");
  assert.equal(changed(long(1), long(2)).split(" ").length, 26);
  assert.match(changed(long(1), long(2)), /^pair 0 at 2, .*And more\.$/);
});

test("who waits is told so after a second, and no more when the answer is there", t => {
  t.mock.timers.enable({apis: ["setTimeout"]});
  const said = [], line = asker(() => {}, text => said.push(text));
  line.ask(1);
  t.mock.timers.tick(900);
  assert.deepEqual(said, []);
  t.mock.timers.tick(200);
  assert.deepEqual(said, ["Waiting for the kernel."]);
  line.answered();
  t.mock.timers.tick(20000);
  assert.deepEqual(said, ["Waiting for the kernel.", ""]);
  line.ask(2);
  t.mock.timers.tick(10000);
  assert.match(said.at(-1), /run this cell again/);
});

test("the theme is JupyterLab's, VS Code's or the book's before the reader's", () => {
  const page = (lab, names = "", book = undefined) =>
    ({body: {dataset: {jpThemeLight: lab}, className: names}, documentElement: {dataset: {theme: book}}});
  assert.equal(themeOf(page("false"), false), "dark");
  assert.equal(themeOf(page("true"), true), "light");
  assert.equal(themeOf(page(undefined, "vscode-dark"), false), "dark");
  assert.equal(themeOf(page(undefined, "", "light"), true), "light");
  assert.equal(themeOf(page(undefined), true), "dark");
});

test("one float, two floats", () => {
  assert.equal(withUnit(1, "floats"), "1 float");
  assert.equal(withUnit(2, "floats"), "2 floats");
  assert.equal(withUnit(3), "3");
});
