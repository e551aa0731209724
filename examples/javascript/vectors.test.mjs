// The vectors of the specification: this implementation reads and writes the same bytes as the others.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { FrameReader, frame } from './frames.mjs';
import { BadPayload, DateTime, Float, NaiveDateTime, Reader, Writer } from './values.mjs';

const vectors = (file) => JSON.parse(readFileSync(new URL(`../../spec/vectors/${file}`, import.meta.url), 'utf8'));
const unhex = (text) => Buffer.from(text, 'hex');

/** Returns the value for a notation of the vectors. */
function value(notation) {
  const [[kind, content]] = Object.entries(notation);
  switch (kind) {
    case 'nil':
      return null;
    case 'bool':
    case 'str':
      return content;
    case 'int': {
      const number = BigInt(content);
      return Number.isSafeInteger(Number(number)) ? Number(number) : number;
    }
    case 'float_bits': {
      const number = unhex(content).readDoubleBE(0);
      return Number.isInteger(number) && !Object.is(number, -0) ? new Float(number) : number;
    }
    case 'bytes':
      return Uint8Array.from(unhex(content));
    case 'list':
      return content.map(value);
    case 'map': {
      const entries = content.map((entry) => entry.map(value));
      return entries.every(([key]) => typeof key === 'string') ? Object.fromEntries(entries) : new Map(entries);
    }
    case 'aware':
      return new DateTime(content[0], Number(content[1]));
    case 'naive':
      return new NaiveDateTime(content);
    default:
      throw new Error(`unknown notation ${kind}`);
  }
}

function read({ hex, bodies }) {
  const reader = new Reader(unhex(hex), bodies === undefined ? undefined : unhex(bodies));
  const value = reader.value();
  reader.finish();
  return value;
}

function written(value) {
  const writer = new Writer();
  writer.value(value);
  return Buffer.concat(writer.finish().pieces).toString('hex');
}

test('every value is read as it should be', () => {
  for (const vector of vectors('values.json')) {
    assert.deepStrictEqual(read(vector), value(vector.value), vector.name);
  }
});

test('every value is written as it should be', () => {
  for (const vector of vectors('values.json').filter((it) => !it.decode_only)) {
    assert.equal(written(value(vector.value)), vector.hex, vector.name);
  }
});

test('what was read is written as it came', () => {
  for (const vector of vectors('values.json').filter((it) => !it.decode_only)) {
    assert.equal(written(read(vector)), vector.hex, vector.name);
  }
});

test('what is invalid is refused', () => {
  for (const vector of vectors('invalid.json')) {
    assert.throws(() => read(vector), BadPayload, vector.name);
  }
});

test('frames are read and written', () => {
  for (const vector of vectors('frames.json')) {
    const frames = [];
    const reader = new FrameReader((it) => frames.push(it));
    // Byte by byte, as it may arrive.
    for (const byte of unhex(vector.hex)) reader.push(Buffer.of(byte));
    assert.equal(frames.length, 1, vector.name);
    const [{ kind, call, bodies, more, payload }] = frames;
    const flags = Number(bodies) | (Number(more) << 1);
    assert.deepStrictEqual([kind, String(call), flags], [vector.kind, vector.call, vector.flags], vector.name);
    if (vector.payload === null) {
      assert.equal(payload.length, 0, vector.name);
    } else {
      assert.deepStrictEqual(Reader.payload(payload, bodies), value(vector.payload), vector.name);
    }
    if (!bodies && !more) {
      const again = vector.payload === null ? frame(kind, call) : frame(kind, call, value(vector.payload));
      assert.equal(Buffer.concat(again).toString('hex'), vector.hex, vector.name);
    }
  }
});

test('frames that are a fault are refused', () => {
  for (const vector of vectors('invalid_frames.json')) {
    const reader = new FrameReader(({ payload, bodies }) => Reader.payload(payload, bodies));
    reader.maxFrame = vector.max_frame;
    assert.throws(() => reader.push(unhex(vector.hex)), vector.name);
  }
});

test('what cannot be sent names its place', () => {
  const refused = (value) => {
    try {
      new Writer().value(value, 'result');
    } catch (error) {
      return error.message;
    }
    return 'sent';
  };
  assert.equal(refused({ rows: [{ price: undefined }] }), 'result.rows[0].price: cannot send undefined');
  assert.equal(refused(['\ud800']), 'result[0]: text with a lone surrogate');
  assert.equal(refused('\ud83d\udc0d'), 'sent');
  assert.equal(refused(new Map([[5, new Set()]])), 'result[5]: cannot send a Set; make it a plain object, an array or a Map first');
  assert.equal(refused(new Map([[{}, 1]])), 'result: a map or a date-time cannot be a key');
});
