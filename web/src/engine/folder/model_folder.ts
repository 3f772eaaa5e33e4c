// A model folder, as the browser reads it: config.json, the weights and the tokenizers.
import type { Json } from "../../state/trace";
import { RequestError } from "../errors";
import { Parameters } from "../models/parameters";
import { RecurrentLanguageModel, RecurrentTranslator } from "../models/recurrent_models";
import type { TextModel } from "../models/text_model";
import { EncoderOnly, Transformer } from "../models/transformer";
import { CharacterTokenizer, LabelTokenizer } from "../text/characters";
import { SourceReader } from "../text/source_reader";
import { SubwordTokenizer } from "../text/subwords";
import type { Tokenizer } from "../text/tokenizer";
import { readConfig, type ModelConfig } from "./config";
import { readSafetensors } from "./safetensors";

/** Reads a file of the folder. */
export type ReadFile = (name: string) => Promise<Uint8Array<ArrayBuffer>>;

const TOKENIZERS: Record<string, (content: Uint8Array) => Tokenizer> = {
  "tokenizer.model": (content) => new SubwordTokenizer(content),
  "characters.json": (content) => new CharacterTokenizer(parse(content).characters),
  "labels.json": (content) => new LabelTokenizer(parse(content).labels),
};

/** A model with its tokenizers. */
export interface LoadedModel {
  config: ModelConfig;
  info: Json; // config.json
  parameters: Parameters;
  text: TextModel | null; // null: the model writes no text
  encoder: EncoderOnly | null;
  sourceTokenizer: Tokenizer;
  targetTokenizer: Tokenizer;
  reader: SourceReader | null; // of a translator
}

/** Loads a model; `files` are the names of the files in its folder. */
export async function loadModel(files: string[], read: ReadFile): Promise<LoadedModel> {
  const info = parse(await read("config.json"));
  const config = readConfig(info);
  const parameters = new Parameters(readSafetensors((await read("model.safetensors")).buffer));
  const tokenizer = async (side: string) => {
    const kind = Object.keys(TOKENIZERS).find((name) => files.includes(side + name));
    return kind ? TOKENIZERS[kind](await read(side + kind)) : null;
  };
  const shared = await tokenizer("");
  const sourceTokenizer = shared ?? (await tokenizer("source."));
  const targetTokenizer = shared ?? (await tokenizer("target."));
  if (!sourceTokenizer || !targetTokenizer) throw new RequestError("the model folder has no tokenizer that the browser reads");
  const text = makeTextModel(config, parameters);
  const translates = text !== null && "source_vocabulary" in config.model;
  return {
    config,
    info,
    parameters,
    text,
    encoder: text ? null : new EncoderOnly(config, parameters),
    sourceTokenizer,
    targetTokenizer,
    reader: translates ? new SourceReader(sourceTokenizer, info) : null,
  };
}

function makeTextModel(config: ModelConfig, parameters: Parameters): TextModel | null {
  if (config.kind === "transformer" || config.kind === "transformer-lm") return new Transformer(config, parameters);
  if (config.kind === "rnn-attention" || config.kind === "rnn-seq2seq") return new RecurrentTranslator(config, parameters);
  if (config.kind === "rnn-lm") return new RecurrentLanguageModel(config, parameters);
  if (config.kind === "encoder" || config.kind === "classifier") return null;
  throw new RequestError(`a model of kind ${config.kind} does not run in the browser`);
}

function parse(content: Uint8Array): Json {
  return JSON.parse(new TextDecoder().decode(content));
}
