// The whole page as one HTML file that needs no server.
import { bundle, sceneFile, sceneIndex, shownData, type Bundle } from "../state/api";
import type { Json } from "../state/trace";
import { stateText, tab } from "../state/url";

/** The data of the open view. */
async function currentBundle(): Promise<Bundle> {
  const traces = shownData();
  if (tab.value !== "lecture") return { traces, state: stateText() };
  const index = await sceneIndex();
  const files: Record<string, Json> = {};
  if (index.length > 0) files["lectures.json"] = await sceneFile("lectures.json");
  for (const { trace } of index) if (trace) files[trace] ??= await sceneFile(trace);
  return { traces: [], scenes: { index, files }, state: stateText() };
}

/** The whole page as a single file; regard/look/page/single_file.py writes the same from Python. */
export async function wholePage(): Promise<Blob> {
  const [script, style] = bundle
    ? ownSources()
    : await Promise.all(["app.js", "app.css"].map(async (name) => (await fetch(name)).text()));
  // A browser ends a script element at the first </script, even inside JSON.
  const data = JSON.stringify(await currentBundle()).replaceAll("<", "\\u003c");
  const policy = `default-src 'none'; img-src data: blob:; style-src '${await sha256(style)}'; script-src '${await sha256(script)}'`;
  const page = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>regard: look inside attention</title>
<link rel="icon" href="data:,">
<style>${style}</style>
</head>
<body>
<div id="page"></div>
<script type="application/json" id="regard-data">${data}</script>
<script>${script}</script>
</body>
</html>
`;
  return new Blob([page], { type: "text/html" });
}

/** The script and the style of a page that is itself a single file. */
function ownSources(): [string, string] {
  return [
    document.querySelector("script:not([type])")!.textContent ?? "",
    document.querySelector("style")!.textContent ?? "",
  ];
}

async function sha256(content: string): Promise<string> {
  if (!crypto.subtle)
    throw new Error("the browser computes hashes only over https or on the server's own machine. Save the page there.");
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(content));
  return `sha256-${btoa(String.fromCharCode(...new Uint8Array(digest)))}`;
}
