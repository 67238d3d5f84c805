// At the making of a book: clang compiles the runtime over a tree of files in JSON, and Binaryen tells which functions of it,
// linked whole, never wait, though they call through pointers: Asyncify may leave them. What a page loads of it is printed.
import fs from "node:fs";
import { pathToFileURL } from "node:url";

const [clang, binaryen] = process.argv.slice(2), lines = [], print = console.log;
console.log = line => lines.push(line);
const { runClang } = await import(pathToFileURL(`${clang}/bundle.js`));
const { headers, more, jobs, whole, programs, asyncify } = JSON.parse(fs.readFileSync(0, "utf8"));
const files = { ...headers, ...more }, kit = { text: headers, binary: {}, flags: {}, asyncify };
async function ran(words, output) {
  let said = "";
  const note = bytes => { said += bytes ? new TextDecoder().decode(bytes) : ""; };
  const tree = await runClang(words, files, { stdout: note, stderr: note, fetchProgress() {} })
    .catch(error => { throw new Error(`${words.join(" ")}\n${said || error}`); });
  return tree[output] ?? said;
}
for (const [words, output] of jobs) kit.binary[output] = Buffer.from(files[output] = await ran(words, output)).toString("base64");
for (const [name, [program, ...words]] of Object.entries(programs)) {        // the one command that clang's driver would run
  const [command] = (await ran([program, "-###", ...words])).match(/^ ".*$/m);
  kit.flags[name] = command.match(/"(\\.|[^"\\])*"/g).map(word => JSON.parse(word)).filter(Boolean);
}

const b = (await import(pathToFileURL(`${binaryen}/index.js`))).default, linked = await ran(whole, "whole.wasm");
function waiting(direct) {
  const module = b.readBinary(linked);
  const settings = { ...asyncify, "asyncify-verbose": "1", "asyncify-ignore-indirect": direct ? "1" : null };
  for (const [name, value] of Object.entries(settings)) b.setPassArgument(name, value);
  lines.length = 0;
  module.runPasses(["asyncify"]);
  module.dispose();
  return new Set(lines.map(line => /^\[asyncify\] (.*?) can change the state due to/.exec(line)?.[1]).filter(Boolean));
}
const all = waiting(false), direct = waiting(true);
kit.never = [...all].filter(name => !direct.has(name) && !/basic_string/.test(name));
print(JSON.stringify(kit));
