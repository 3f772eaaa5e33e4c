// Every number of one block for one token. regard/look/inside/inside.py; H4, E3, E4, D14.
import { fromRows, type Matrix } from "../arrays/matrix";
import { RequestError } from "../errors";
import type { LoadedModel } from "../folder/model_folder";
import { RecurrentTranslator } from "../models/recurrent_models";
import { wholeText, type Stack, type TokenInput } from "../models/stack";
import { Transformer, type Encoder } from "../models/transformer";
import { sinusoidal } from "../models/positions";
import type { Pause } from "../search/search";
import { START, type Tokenizer } from "../text/tokenizer";
import type { Json } from "../../state/trace";
import { writeBlock } from "./inside_block";
import { writeStep } from "./inside_step";
import { makeReading, writeText } from "./reading";
import { encoderTokens, makeAxis, range } from "./trace";
import { Sheet, ruleOf, type Put } from "./worksheet";

export async function insideBlock(loaded: LoadedModel, request: Json, pause: Pause): Promise<Json> {
  const { stack, layer, token, head } = request;
  const shown =
    stack === "encoder" ? insideEncoder(loaded, request) : await insideDecoder(loaded, request, pause);
  return { stack, layer, token, head, ...shown };
}

function insideEncoder(loaded: LoadedModel, request: Json): Json {
  const encoder: Encoder | null = loaded.encoder?.encoder ?? (loaded.text instanceof Transformer ? loaded.text.encoder : null);
  if (!encoder) throw new RequestError(`a model of kind '${loaded.config.kind}' has no encoder made of blocks`);
  const ids = loaded.text ? makeReading(loaded, request.text, {}).source!.ids : encoderTokens(loaded, request.text);
  const { layer, token, head } = request;
  checkPlaces(encoder.stack, ids, encoder.settings.heads, layer, token, head);
  const names = loaded.sourceTokenizer.pieces(ids);
  const sheet = new Sheet(loaded.parameters);
  const states = layer ? encoder.run(ids, undefined, layer) : null;
  const x = writeInput(sheet, encoder.input, ids, states, layer, names);
  writeBlock(sheet, encoder.stack.blocks[layer], x, { token, head, tokens: names, source: [] }, false, null);
  return entries(sheet, encoder.stack, encoder.settings.heads, tokenEntries(loaded.sourceTokenizer, ids), []);
}

async function insideDecoder(loaded: LoadedModel, request: Json, pause: Pause): Promise<Json> {
  const model = loaded.text;
  const recurrent = model instanceof RecurrentTranslator && model.score !== null;
  if (!recurrent && !(model instanceof Transformer))
    throw new RequestError(`a model of kind '${loaded.config.kind}' has no block with attention to look inside`);
  const reading = makeReading(loaded, request.text, {});
  const { ids } = await writeText(reading, request, pause);
  const read = [START, ...ids.slice(0, -1)];
  const source = reading.source?.ids ?? null;
  const names = reading.tokenizer.pieces(read);
  const sourceNames = source ? loaded.sourceTokenizer.pieces(source) : [];
  const axes: [Json[], Json[]] = [
    tokenEntries(reading.tokenizer, read),
    source ? tokenEntries(loaded.sourceTokenizer, source) : [],
  ];
  const sheet = new Sheet(loaded.parameters);
  const { layer, token, head } = request;
  if (recurrent) {
    checkIndex("layer", layer, 1);
    checkIndex("token", token, read.length);
    checkIndex("head", head, 1);
    writeStep(sheet, model, source!, read, token, sourceNames);
    return { layers: 1, heads: 1, tokens: axes[0], source_tokens: axes[1], ...sheet.toJson() };
  }
  const transformer = model as Transformer;
  checkPlaces(transformer.decoder, read, transformer.settings.heads, layer, token, head);
  const encoded = source ? transformer.encoder!.run(source) : null;
  const states = layer ? decoderStates(transformer, read, encoded, layer) : null;
  const x = writeInput(sheet, transformer.input, read, states, layer, names);
  let memory: Put | null = null;
  if (encoded) {
    const box = sheet.put("memory", "encoder output", encoded, "output of the encoder", { op: "given" }, sourceNames);
    memory = { box, values: encoded };
  }
  writeBlock(sheet, transformer.decoder.blocks[layer], x, { token, head, tokens: names, source: sourceNames }, true, memory);
  return entries(sheet, transformer.decoder, transformer.settings.heads, ...axes);
}

function decoderStates({ decoder, input, settings }: Transformer, read: number[], encoded: Matrix | null, end: number): Matrix {
  const reading = wholeText(read.length, true, settings.window);
  const memory = encoded && decoder.projectSource(encoded);
  return decoder.run(input.apply(read, reading.positions), reading, decoder.newCaches(), memory, undefined, end);
}

/** The input of a block: embeddings plus positions, or the output of the block below. */
function writeInput(sheet: Sheet, entry: TokenInput, tokens: number[], states: Matrix | null, layer: number, names: string[]): Put {
  if (entry.norm)
    throw new RequestError("this model normalizes its input, which cannot be written out; the maps of a trace show it");
  if (states) {
    const how = `output of block ${layer - 1}`;
    return { box: sheet.put("x", "input", states, how, { op: "given" }, names), values: states };
  }
  const places = range(0, tokens.length);
  const x = entry.apply(tokens, places);
  const rule = { op: "rows", weight: sheet.name(entry.tableName), rows: tokens, scale: entry.factor };
  const how = entry.factor === 1 ? "E[token]" : "E[token] · √p";
  const { settings } = entry;
  if (!entry.positions && settings.position !== "sinusoidal")
    return { box: sheet.put("x", "embeddings", x, how, rule, names), values: x };
  const vectors = fromRows(tokens.map((token) => entry.embed(token)), entry.table.cols);
  const embeddings = sheet.put("embedding", "embeddings", vectors, how, rule, names);
  if (entry.positions) {
    const table = `${entry.name}.position.table`;
    const rows = fromRows(places.map((place) => entry.positions!.row(place)), entry.positions.cols);
    const positionRule = { op: "rows", weight: sheet.name(table), rows: places, scale: 1 };
    const positions = sheet.put("position", "positions", rows, "PE[position]", positionRule, names);
    if (rows.cols < x.cols)
      return { box: sheet.put("x", "input", x, "[E; PE], one behind the other", { op: "given" }, names), values: x };
    return { box: sheet.put("x", "input", x, "E + PE", ruleOf("add", embeddings, positions), names), values: x };
  }
  const waves = fromRows(places.map((place) => sinusoidal(place, settings)), settings.dim);
  const wave = {
    op: "sinusoidal", start: settings.position_start, base: settings.position_base, layout: settings.position_layout,
    first: settings.frequency_start,
  };
  const positions = sheet.put("position", "positions", waves, "sin, cos(position / base^(2i/p))", wave, names);
  return { box: sheet.put("x", "input", x, "E + PE", ruleOf("add", embeddings, positions), names), values: x };
}

function entries(sheet: Sheet, stack: Stack, heads: number, tokens: Json[], source: Json[]): Json {
  return { layers: stack.blocks.length, heads, tokens, source_tokens: source, ...sheet.toJson() };
}

function tokenEntries(tokenizer: Tokenizer, ids: number[]): Json[] {
  return makeAxis(tokenizer, ids).tokens.map((token: Json) => ({ text: token.text, special: token.special ?? false }));
}

function checkPlaces(stack: Stack, ids: number[], heads: number, layer: number, token: number, head: number): void {
  checkIndex("layer", layer, stack.blocks.length);
  checkIndex("token", token, ids.length);
  checkIndex("head", head, heads);
}

function checkIndex(name: string, value: number, size: number): void {
  if (!(value >= 0 && value < size)) throw new RequestError(`${name} must be from 0 to ${size - 1}, got ${value}`);
}

