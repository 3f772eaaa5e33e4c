// Builds the page with `npm run build`: src/ -> ../regard/look/page/static/{index.html,app.js,app.css,engine.js,build.json}.
//
// The built files are committed, so users do not need Node. build.json contains the hashes of the sources and of the built
// files, so a test without Node can detect sources that changed after the last build.
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "../regard/look/page/static");

const options = {
  entryPoints: { app: join(here, "src/main.tsx"), engine: join(here, "src/engine/worker.ts") },
  outdir: out,
  bundle: true,
  minify: true,
  format: "iife",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  charset: "utf8",
  legalComments: "none",
  logLevel: "info",
};

function sources(folder) {
  return readdirSync(folder)
    .map((name) => join(folder, name))
    .flatMap((path) => (statSync(path).isDirectory() ? sources(path) : [path]));
}

// The hash of a list in the format of `sha256sum`: a line per file with its hash, two spaces and its path, sorted by path.
function hashOfSources() {
  const fixed = ["build.mjs", "index.html", "favicon.svg", "package.json", "package-lock.json", "tsconfig.json"].map((name) => join(here, name));
  const shared = ["look/pictures/drawing/colours.json", "look/page/first_texts.json"].map((name) => join(here, "../regard", name));
  const files = [...fixed, ...sources(join(here, "src")), ...shared];
  const names = new Map(files.map((path) => [relative(here, path).replaceAll("\\", "/"), path]));
  const lines = [...names.keys()].sort().map((name) => `${sha256(readFileSync(names.get(name)))}  ${name}\n`);
  return sha256(lines.join(""));
}

function sha256(content) {
  return createHash("sha256").update(content).digest("hex");
}

mkdirSync(out, { recursive: true });
for (const name of ["index.html", "favicon.svg"]) copyFileSync(join(here, name), join(out, name));

if (process.argv.includes("--watch")) {
  const context = await esbuild.context({ ...options, minify: false });
  await context.watch();
} else {
  await esbuild.build(options);
  const files = Object.fromEntries(["index.html", "favicon.svg", "app.js", "app.css", "engine.js"].map((name) => [name, sha256(readFileSync(join(out, name)))]));
  writeFileSync(join(out, "build.json"), `${JSON.stringify({ sources: hashOfSources(), files }, null, 1)}\n`);
}
