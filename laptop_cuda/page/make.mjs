// At the making of a book: clang compiles the runtime over a tree of files in JSON. What a page loads of it is printed.
import fs from "node:fs";
import { pathToFileURL } from "node:url";

console.log = () => {};         // clang's package says what it loads
const { runClang } = await import(pathToFileURL(`${process.argv[2]}/bundle.js`));
const { headers, more, jobs, programs, asyncify } = JSON.parse(fs.readFileSync(0, "utf8"));
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
process.stdout.write(JSON.stringify(kit));
