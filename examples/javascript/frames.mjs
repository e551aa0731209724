// Frames of spec/wire.md: a header of 16 bytes and a payload.

import { Writer, splitPayload } from './values.mjs';

export const VERSION = 1;
const HEADER = 16;
const BODIES = 1;
const MORE = 2;
/** HELLO sets how long a frame may be, and is short itself. */
const LONGEST_HELLO = 1 << 20;

export const KIND = Object.freeze({
  HELLO: 1, READY: 2, CALL: 3, RESULT: 4, ERROR: 5, ITEM: 6, END: 7, CREDIT: 8, CANCEL: 9, HOST_CALL: 10,
  HOST_RESULT: 11, HOST_ERROR: 12, HOST_ITEM: 13, HOST_END: 14, HOST_CREDIT: 15, HOST_CANCEL: 16, LOG: 17,
  PROGRESS: 18, PING: 19, PONG: 20, TELEMETRY: 21, DRAIN: 22, BYE: 23, CALLS: 24, RESULTS: 25, FAULT: 26, ITEMS: 27,
});

/** The other side violated the protocol. */
export class Fault extends Error {
  name = 'Fault';
}

/** Cuts a stream of bytes into frames and gives each to `receive`. */
export class FrameReader {
  maxFrame = LONGEST_HELLO;
  #receive;
  #chunks = [];
  #size = 0;

  constructor(receive) {
    this.#receive = receive;
  }

  push(chunk) {
    this.#chunks.push(chunk);
    this.#size += chunk.length;
    for (;;) {
      if (this.#size < HEADER) return;
      const header = this.#peek(HEADER);
      const length = header.readUInt32LE(0);
      const [version, kind, flags] = [header[4], header[5], header.readUInt16LE(6)];
      if (version !== VERSION) throw new Fault(`a frame of version ${version}; this worker speaks version ${VERSION}`);
      if (kind < KIND.HELLO || kind > KIND.ITEMS) throw new Fault(`a frame of unknown kind ${kind}`);
      const known = kind === KIND.RESULTS ? BODIES | MORE : BODIES;
      if (flags & ~known) throw new Fault(`a frame with unknown flags ${flags}`);
      if (length > this.maxFrame) throw new Fault(`a frame of ${length} bytes; ${this.maxFrame} are allowed`);
      if (this.#size < HEADER + length) return;
      const whole = this.#peek(HEADER + length);
      this.#chunks[0] = this.#chunks[0].subarray(HEADER + length);
      this.#size -= HEADER + length;
      if (this.#chunks[0].length === 0) this.#chunks.shift();
      const payload = whole.subarray(HEADER);
      const bodies = (flags & BODIES) !== 0;
      if (bodies) checkHead(payload);
      this.#receive({ kind, call: whole.readBigUInt64LE(8), bodies, more: (flags & MORE) !== 0, payload });
    }
  }

  /** Returns the first bytes in one piece. The rest stays in pieces until it is needed. */
  #peek(size) {
    if (this.#chunks[0].length < size) this.#chunks = [Buffer.concat(this.#chunks)];
    return this.#chunks[0].subarray(0, size);
  }
}

function checkHead(payload) {
  try {
    splitPayload(payload);
  } catch (error) {
    throw new Fault(error.message);
  }
}

/** Returns the pieces of a frame around a payload that a Writer has finished. `more`: another frame continues these RESULTS. */
export function frameOf(kind, call, { pieces, length, bodies }, more = false) {
  const header = Buffer.alloc(HEADER);
  header.writeUInt32LE(length, 0);
  header[4] = VERSION;
  header[5] = kind;
  header.writeUInt16LE((bodies ? BODIES : 0) | (more ? MORE : 0), 6);
  header.writeBigUInt64LE(call, 8);
  return [header, ...pieces];
}

/** Returns the pieces of a frame. Without a value, its payload is empty. */
export function frame(kind, call, ...value) {
  if (value.length === 0) return frameOf(kind, call, { pieces: [], length: 0, bodies: false });
  const writer = new Writer();
  writer.value(value[0]);
  return frameOf(kind, call, writer.finish());
}
