// At the making of a book: clang runs jobs, [[words, output], ...], over a tree of files in JSON, and Binaryen tells which
// functions of the runtime, linked as whole.wasm, never wait, though they call through pointers: Asyncify may leave them.
import fs from "node:fs";
import { pathToFileURL } from "node:url";

const [clang, binaryen, made] = process.argv.slice(2), lines = [];
console.log = line => lines.push(line);
const { runClang } = await import(pathToFileURL(`${clang}/bundle.js`));
const { files, jobs, asyncify } = JSON.parse(fs.readFileSync(0, "utf8"));
for (const [words, output] of jobs) {
  let said = "";
  const note = bytes => { said += bytes ? new TextDecoder().decode(bytes) : ""; };
  const tree = await runClang(words, files, { stdout: note, stderr: note, fetchProgress() {} })
    .catch(error => { throw new Error(`${words.join(" ")}\n${said || error}`); });
  fs.writeFileSync(`${made}/${output}`, files[output] = tree[output] ?? said);
}

const b = (await import(pathToFileURL(`${binaryen}/index.js`))).default;
function waiting(direct) {
  const module = b.readBinary(files["whole.wasm"]);
  const settings = { ...asyncify, "asyncify-verbose": "1", "asyncify-ignore-indirect": direct ? "1" : null };
  for (const [name, value] of Object.entries(settings)) b.setPassArgument(name, value);
  lines.length = 0;
  module.runPasses(["asyncify"]);
  module.dispose();
  return new Set(lines.map(line => /^\[asyncify\] (.*?) can change the state due to/.exec(line)?.[1]).filter(Boolean));
}
const all = waiting(false), direct = waiting(true);
fs.writeFileSync(`${made}/never.json`, JSON.stringify([...all].filter(name => !direct.has(name) && !/basic_string/.test(name))));
