// Predicts with an exported tagger or classifier as `Predictor` does. Offsets count Unicode characters, as in Python.
//
//     const predict = await load();
//     await predict("Ann moved to Oslo.");  // [{label: "PER", start: 0, end: 3, text: "Ann", score: 0.98}, ...]

import * as ort from "./node_modules/onnxruntime-web/dist/ort.wasm.bundle.min.mjs";
import { Tokenizer } from "./node_modules/@huggingface/tokenizers/dist/tokenizers.min.mjs";

// ------ text to tokens

// \X of Oniguruma, a character as readers see it, which JavaScript's regular expressions lack: a flag, an emoji of
// several, or any character, and the marks after it.
const MARKS = "\\p{Gr_Ext}\\p{EMod}";
const CLUSTER =
  `(?:\\p{RI}\\p{RI}|\\p{ExtPict}(?:[${MARKS}]*\\u200D\\p{ExtPict})*|[\\s\\S])[${MARKS}\\p{Mc}\\u200D]*`;

// The tokenizer of the text of a tokenizer.json, with the offsets that the library does not give.
class Encoder {
  constructor(json) {
    const file = JSON.parse(json, (key, value) =>
      key === "Regex" && typeof value === "string" ? value.replaceAll("\\X", CLUSTER) : value);
    this.tokenizer = new Tokenizer(file, {});
    const { model } = this.tokenizer;
    this.prefix = file.model.continuing_subword_prefix ?? "";
    this.unknownId = model.tokens_to_ids.get(file.model.unk_token);
    // The number of characters of each entry, "##" included: a token with another number in the text continues a word.
    this.lengths = model.vocab.map((token) => Array.from(token).length);
    this.added = new Map(file.added_tokens.map(({ content, id }) => [content, id]));
    const isPiece = (token) => token.startsWith("##") && token !== "##" && !this.added.has(token);
    this.hasPieces = file.model.type === "WordPiece" && model.vocab.some(isPiece);
    const escaped = [...this.added.keys()].map((token) => token.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"));
    this.betweenAdded = new RegExp(escaped.length ? `(${escaped.join("|")})` : "$^");
    const { tokens } = this.tokenizer.post_processor.post_process(["text"], null, true);
    const ids = tokens.map((token) => model.tokens_to_ids.get(token));
    this.before = ids.slice(0, tokens.indexOf("text"));
    this.after = ids.slice(tokens.indexOf("text") + 1);
    this.limit = file.truncation?.max_length ?? Infinity;
    this.room = this.limit - this.before.length - this.after.length;
    this.fromEnd = file.truncation?.direction === "Left";
  }

  // The tokens of a text without special tokens: [{id, start, end}].
  encode(text) {
    const found = [];
    let begin = 0;
    for (const part of text.split(this.betweenAdded)) {
      const characters = Array.from(part);
      const id = this.added.get(part);
      if (id !== undefined) found.push({ id, start: begin, end: begin + characters.length });
      else this.encodePart(characters, begin, found);
      begin += characters.length;
    }
    return found;
  }

  encodePart(characters, begin, found) {
    const { normalizer, pre_tokenizer: splitter, model } = this.tokenizer;
    // The normalized text, and of each of its UTF-16 units the character of the text that it is from.
    let normal = "";
    const origin = [];
    characters.forEach((character, index) => {
      const units = normalizer ? normalizer.normalize(character) : character;
      normal += units;
      for (let unit = 0; unit < units.length; unit++) origin.push(begin + index);
    });
    let at = 0;
    for (const piece of splitter.pre_tokenize(normal)) {
      at = normal.indexOf(piece, at);
      const tokens = model.encode([piece]);
      const isWhole = tokens.length === 1;
      for (const [number, token] of tokens.entries()) {
        const length = isWhole ? piece.length : token.length - (number ? this.prefix.length : 0);
        const id = model.tokens_to_ids.get(token) ?? this.unknownId;
        found.push({ id, start: origin[at], end: origin[at + length - 1] + 1 });
        at += length;
      }
    }
  }

  // Where each word of a text begins among its tokens.
  wordStarts(tokens) {
    const continues = ({ id, start, end }, index) =>
      this.hasPieces && index > 0 && id !== this.unknownId && this.lengths[id] !== end - start;
    return tokens.flatMap((token, index) => (continues(token, index) ? [] : [index]));
  }
}

// ------ windows of long texts

// The windows of `count` tokens: each has at most `size`, shares `stride` with the next one, and its predictions count
// where it has most context; see data/windows.py.
function cutWindows(count, size, stride, fromEnd) {
  let spans = [[0, Math.min(size, count)]];
  if (count > size) {
    const shared = Math.min(stride, size - 1);
    spans = [];
    for (let start = 0; start < count - shared; start += size - shared)
      spans.push([start, Math.min(start + size, count)]);
  }
  if (fromEnd) spans = spans.reverse().map(([first, last]) => [count - last, count - first]);
  const middles = spans.slice(1).map(([first], index) => (spans[index][1] + first + 1) >> 1);
  const bounds = [spans[0][0], ...middles, spans.at(-1)[1]];
  return spans.map(([first, last], index) => ({ first, last, from: bounds[index], to: bounds[index + 1] }));
}

// ------ labels to entities, as in inference/decode.py

// tags: prefix in the letters of IOBES and type of each label; outside: the number of O
class Groups {
  constructor({ tags, kinds, outside }) {
    Object.assign(this, { kinds, outside });
    const open = tags.map(([prefix, kind]) => (prefix === "B" || prefix === "I" ? kind : null));
    // Whether label b continues the group of label a.
    const isInside = tags.map(([prefix]) => prefix === "I" || prefix === "E");
    this.goesOn = open.map((kind) => tags.map(([, other], b) => isInside[b] && other === kind));
    this.same = tags.map(([, kind]) => tags.map(([, other]) => other === kind));
  }

  // The groups of some labels: their first word and the one after their last.
  of(labels) {
    const firsts = labels.flatMap((label, word) => (word && this.goesOn[labels[word - 1]][label] ? [] : [word]));
    const bounds = firsts.map((first, index) => [first, firsts[index + 1] ?? labels.length]);
    return bounds.filter(([first]) => labels[first] !== this.outside);
  }
}

// The probability of exactly the entity of tokens `first` to `last` of a chain whose first label is `label`; see
// inference/span_probabilities.py. logMarginals, messages: [c][k]; transitions: [k][k].
function spanProbability(groups, transitions, logMarginals, messages, first, last, label) {
  // The weights of the labels at a token from those before it, where the group goes on, or where it does not.
  const step = (weights, token, goesOn) => {
    const next = weights.map(() => 0);
    weights.forEach((weight, a) => {
      const given = softmax(transitions[a].map((score, b) => score + messages[token][b]));
      given.forEach((probability, b) => { if (groups.goesOn[a][b] === goesOn) next[b] += weight * probability; });
    });
    return next;
  };
  const marginals = (token) => Array.from(logMarginals[token], Math.exp);
  let weights = first > 0 ? step(marginals(first - 1), first, false) : marginals(first);
  weights = weights.map((weight, b) => (groups.same[label][b] ? weight : 0));
  for (let token = first + 1; token <= last; token++) weights = step(weights, token, true);
  if (last + 1 < messages.length) weights = step(weights, last + 1, false);
  return Math.min(1, weights.reduce((sum, weight) => sum + weight, 0));
}

function softmax(scores) {
  const highest = Math.max(...scores);
  const powers = Array.from(scores, (score) => Math.exp(score - highest));
  const sum = powers.reduce((total, power) => total + power, 0);
  return powers.map((power) => power / sum);
}

const argmax = (scores) => scores.reduce((best, score, index) => (score > scores[best] ? index : best), 0);

// ------ a model

const decoded = (content) => new TextDecoder().decode(content);
const here = (name) => new URL(name, import.meta.url).href;

async function fetched(name) {
  const answer = await fetch(here(name));
  if (!answer.ok) throw new Error(`${name} cannot be read (${answer.status}): export the model again.`);
  return answer.arrayBuffer();
}

// The content of a file, as the manifest has it; browsers hash only in pages from https or this machine.
async function read(name, files) {
  const content = await fetched(name);
  if (!globalThis.crypto?.subtle || !files[name]) return content;
  const bytes = new Uint8Array(await crypto.subtle.digest("SHA-256", content));
  const hash = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  if (hash !== files[name].sha256)
    throw new Error(`${name} is not as it was written: copy it again, or export the model again.`);
  return content;
}

// A function from a text to its predictions: entities, labels, or a number. file: a model beside this script.
export async function load(file = "model.onnx") {
  ort.env.wasm.numThreads = 1; // more would need headers of the server
  const { files } = JSON.parse(decoded(await fetched("manifest.json")));
  const session = await ort.InferenceSession.create(new Uint8Array(await read(file, files)), { logSeverityLevel: 3 });
  const encoder = new Encoder(decoded(await read("tokenizer.json", files)));
  const facts = JSON.parse(decoded(await read("web.json", files)));
  const crf = facts.has_crf ? JSON.parse(decoded(await read("crf.json", files))) : null;
  const predict = facts.tags ? tagger(facts, crf, encoder) : classifier(facts, encoder);

  // The outputs of one row of tokens.
  const run = async (ids) => {
    const row = [...encoder.before, ...ids, ...encoder.after];
    const values = { input_ids: row, attention_mask: row.map(() => 1), token_type_ids: row.map(() => 0) };
    const feeds = {};
    for (const name of session.inputNames)
      if (name in values)
        feeds[name] = new ort.Tensor("int64", BigInt64Array.from(values[name], BigInt), [1, row.length]);
    return session.run(feeds);
  };
  return (text) => predict(text, run);
}

function classifier({ labels, problem }, encoder) {
  return async (text, run) => {
    const ids = encoder.encode(text).map((token) => token.id);
    const { logits } = await run(encoder.fromEnd ? ids.slice(-encoder.room) : ids.slice(0, encoder.room));
    const isNumber = problem === "regression";
    const several = problem === "multi_label_classification";
    if (isNumber && labels.length === 1) return [{ value: logits.data[0] }];
    let scores = Array.from(logits.data);
    if (several || (labels.length === 1 && !isNumber)) scores = scores.map((score) => 1 / (1 + Math.exp(-score)));
    else if (!isNumber) scores = softmax(scores);
    const found = scores.map((score, index) => ({ label: labels[index], score }));
    if (several) for (const each of found) each.predicted = each.score > 0.5;
    return found.sort((one, other) => other.score - one.score);
  };
}

function tagger(facts, crf, encoder) {
  const groups = new Groups(facts);
  const carriesNoTag = new Set(crf?.carry_no_tag);
  const stride = facts.stride ?? Math.floor(encoder.limit / 8);

  // What the model says of each token, [n] each.
  const outputsOf = async (tokens, run) => {
    const [logits, messages, labels] = [[], [], []];
    const k = facts.labels.length;
    for (const { first, last, from, to } of cutWindows(tokens.length, encoder.room, stride, encoder.fromEnd)) {
      const outputs = await run(tokens.slice(first, last).map((token) => token.id));
      for (let at = from - first + encoder.before.length; at < to - first + encoder.before.length; at++) {
        logits.push(outputs.logits.data.subarray(at * k, at * k + k));
        messages.push(outputs.messages?.data.subarray(at * k, at * k + k));
        labels.push(outputs.paths ? Math.max(0, Number(outputs.paths.data[at])) : argmax(logits.at(-1)));
      }
    }
    return { logits, messages, labels };
  };

  return async (text, run) => {
    const tokens = encoder.encode(text);
    const { logits, messages, labels } = await outputsOf(tokens, run);
    // The chain of the CRF, and of each token its index there; of a token outside, that before it.
    const chain = tokens.flatMap(({ id }, index) => (carriesNoTag.has(id) ? [] : [index]));
    let index = -1;
    const inChain = tokens.map(({ id }) => (index += carriesNoTag.has(id) ? 0 : 1));
    const [logMarginals, ofNext] = [logits, messages].map((rows) => chain.map((token) => rows[token]));

    const words = encoder.wordStarts(tokens); // the first token of each
    const characters = Array.from(text);
    return groups.of(words.map((token) => labels[token])).map(([first, last]) => {
      const [begin, end] = [words[first], (words[last] ?? tokens.length) - 1];
      let score = 1; // without a CRF labels are independent
      for (const token of words.slice(first, last)) score *= softmax(logits[token])[labels[token]];
      if (crf && !carriesNoTag.has(tokens[begin].id)) {
        const group = [inChain[begin], inChain[end], labels[begin]];
        score = spanProbability(groups, crf.transitions, logMarginals, ofNext, ...group);
      }
      const span = { start: tokens[begin].start, end: tokens[end].end };
      const inside = characters.slice(span.start, span.end).join("");
      return { label: groups.kinds[labels[begin]], ...span, text: inside, score };
    });
  };
}

// ------ the page

function element(name, content) {
  const made = document.createElement(name);
  made.append(...[content].flat());
  return made;
}

function show(text, found) {
  const characters = Array.from(text);
  const part = (start, end) => characters.slice(start, end).join("");
  let at = 0;
  const marked = found.filter((each) => "start" in each).flatMap(({ label, start, end, score }) => {
    const before = part(at, start);
    at = end;
    return [before, element("mark", [part(start, end), element("small", ` ${label} ${score.toFixed(2)}`)])];
  });
  document.getElementById("marked").replaceChildren(...marked, part(at));
  const shown = (value) => (typeof value === "number" && value % 1 ? value.toFixed(3) : String(value));
  const rows = found.map((each) => element("tr", Object.values(each).map((value) => element("td", shown(value)))));
  const names = element("tr", Object.keys(found[0] ?? {}).map((name) => element("th", name)));
  document.getElementById("found").replaceChildren(names, ...rows);
}

async function start() {
  const [form, area, button, status] = ["form", "text", "run", "status"].map((id) => document.getElementById(id));
  let predict;
  const saying = async (work) => {
    button.disabled = true;
    status.textContent = await work().catch((error) => error.message);
    button.disabled = !predict;
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    saying(async () => {
      const begun = performance.now();
      const found = await predict(area.value);
      show(area.value, found);
      return `${found.length} found in ${(performance.now() - begun).toFixed(0)} ms`;
    });
  });
  await saying(async () => {
    predict = await load(new URLSearchParams(location.search).get("file") ?? undefined);
    return "Ready.";
  });
}

if (document.getElementById("form")) start();
