// Values of spec/wire.md as bytes: MessagePack, its extensions, and the bodies beside it.
//
//   nil               null
//   integers          numbers; a BigInt beyond Number.MAX_SAFE_INTEGER. A BigInt of any size can be sent.
//   floats            numbers; a Float (a Number object) if the value is integral, so that it stays a float
//   text              strings
//   byte strings      Uint8Array
//   arrays            arrays
//   maps              plain objects; a Map if a key is not text
//   date-times        DateTime and NaiveDateTime, in microseconds. A Date can be sent.

export const BODY_THRESHOLD = 16 * 1024;
export const MAX_DEPTH = 128;

const EXT = { TIMESTAMP: -1, BIG_INT: 1, DATE_TIME: 2, NAIVE_DATE_TIME: 3, BODY: 5 };

/** A float with an integral value. Calculates like a number. */
export class Float extends Number {}

/** An instant with its offset from UTC in seconds. */
export class DateTime {
  constructor(micros, offset = 0) {
    this.micros = BigInt(micros);
    this.offset = offset;
  }

  /** Converts the instant to a Date. Fractions of a millisecond and the offset are lost. */
  toDate() {
    return new Date(Number(this.micros / 1000n));
  }
}

/** A date-time without a zone. */
export class NaiveDateTime {
  constructor(micros) {
    this.micros = BigInt(micros);
  }
}

/** The error for a value that cannot be sent, with the place inside it. */
export class BadValue extends Error {
  name = 'BadValue';

  constructor(message, path) {
    super(path ? `${path}: ${message}` : message);
    this.path = path;
  }
}

/** The error for bytes that are not a value. */
export class BadPayload extends Error {
  name = 'BadPayload';
}

// ------------------------------------------------------------------------------------------------- writing

/** With the flag u, a pair of surrogates is one letter, so only a lone surrogate is found. */
const LONE_SURROGATE = /\p{Surrogate}/u;
const I64_MIN = -(2n ** 63n);
const U64_MAX = 2n ** 64n - 1n;

/** Collects the head and the bodies of a payload. */
export class Writer {
  #head = Buffer.allocUnsafe(256);
  #length = 0;
  #bodies = [];
  #bodiesLength = 0;

  #reserve(size) {
    if (this.#length + size > this.#head.length) {
      const larger = Buffer.allocUnsafe(Math.max(this.#head.length * 2, this.#length + size));
      this.#head.copy(larger, 0, 0, this.#length);
      this.#head = larger;
    }
    const at = this.#length;
    this.#length += size;
    return at;
  }

  #byte(byte) {
    const at = this.#reserve(1); // may replace the buffer
    this.#head[at] = byte;
  }

  #bytes(bytes) {
    const at = this.#reserve(bytes.length);
    this.#head.set(bytes, at);
  }

  /** Writes a marker, and a number of 1, 2, 4 or 8 bytes. */
  #marked(marker, method, number, size) {
    const at = this.#reserve(1 + size);
    this.#head[at] = marker;
    this.#head[method](number, at + 1);
  }

  #length8to32(length, [marker8, marker16, marker32]) {
    if (marker8 !== undefined && length < 2 ** 8) this.#marked(marker8, 'writeUInt8', length, 1);
    else if (length < 2 ** 16) this.#marked(marker16, 'writeUInt16BE', length, 2);
    else this.#marked(marker32, 'writeUInt32BE', length, 4);
  }

  array(length) {
    if (length < 16) this.#byte(0x90 | length);
    else this.#length8to32(length, [undefined, 0xdc, 0xdd]);
  }

  /** Begins an array whose length is not known yet. Returns what `closeArray` needs. */
  openArray() {
    const at = this.#length;
    this.#marked(0xdd, 'writeUInt32BE', 0, 4);
    return at;
  }

  closeArray(at, length) {
    this.#head.writeUInt32BE(length, at + 1);
  }

  map(length) {
    if (length < 16) this.#byte(0x80 | length);
    else this.#length8to32(length, [undefined, 0xde, 0xdf]);
  }

  text(text) {
    const bytes = Buffer.from(text, 'utf8');
    if (bytes.length < 32) this.#byte(0xa0 | bytes.length);
    else this.#length8to32(bytes.length, [0xd9, 0xda, 0xdb]);
    this.#bytes(bytes);
  }

  #extension(type, data) {
    const fixed = { 1: 0xd4, 2: 0xd5, 4: 0xd6, 8: 0xd7, 16: 0xd8 }[data.length];
    if (fixed) this.#byte(fixed);
    else this.#length8to32(data.length, [0xc7, 0xc8, 0xc9]);
    this.#byte(type & 0xff);
    this.#bytes(data);
  }

  #byteString(bytes) {
    if (bytes.length >= BODY_THRESHOLD) {
      const reference = Buffer.alloc(8);
      reference.writeUInt32LE(this.#bodiesLength, 0);
      reference.writeUInt32LE(bytes.length, 4);
      this.#extension(EXT.BODY, reference);
      this.#bodies.push(bytes);
      this.#bodiesLength += bytes.length;
    } else {
      this.#length8to32(bytes.length, [0xc4, 0xc5, 0xc6]);
      this.#bytes(bytes);
    }
  }

  #integer(number) {
    if (number >= 0) {
      if (number < 128) this.#byte(number);
      else if (number < 2 ** 8) this.#marked(0xcc, 'writeUInt8', number, 1);
      else if (number < 2 ** 16) this.#marked(0xcd, 'writeUInt16BE', number, 2);
      else if (number < 2 ** 32) this.#marked(0xce, 'writeUInt32BE', number, 4);
      else this.#marked(0xcf, 'writeBigUInt64BE', BigInt(number), 8);
    } else if (number >= -32) this.#byte(number & 0xff);
    else if (number >= -(2 ** 7)) this.#marked(0xd0, 'writeInt8', number, 1);
    else if (number >= -(2 ** 15)) this.#marked(0xd1, 'writeInt16BE', number, 2);
    else if (number >= -(2 ** 31)) this.#marked(0xd2, 'writeInt32BE', number, 4);
    else this.#marked(0xd3, 'writeBigInt64BE', BigInt(number), 8);
  }

  #bigInteger(number) {
    if (number >= Number.MIN_SAFE_INTEGER && number <= Number.MAX_SAFE_INTEGER) this.#integer(Number(number));
    else if (number >= 0n && number <= U64_MAX) this.#marked(0xcf, 'writeBigUInt64BE', number, 8);
    else if (number < 0n && number >= I64_MIN) this.#marked(0xd3, 'writeBigInt64BE', number, 8);
    else this.#extension(EXT.BIG_INT, twosComplement(number));
  }

  #dateTime(micros, offset) {
    const data = Buffer.alloc(offset === undefined ? 8 : 12);
    data.writeBigInt64LE(micros, 0);
    if (offset !== undefined) data.writeInt32LE(offset, 8);
    this.#extension(offset === undefined ? EXT.NAIVE_DATE_TIME : EXT.DATE_TIME, data);
  }

  /** Writes one value. `path` is its name in errors. */
  value(value, path = '', depth = 0) {
    switch (typeof value) {
      case 'boolean':
        return this.#byte(value ? 0xc3 : 0xc2);
      case 'number':
        if (Number.isSafeInteger(value) && !Object.is(value, -0)) return this.#integer(value);
        return this.#marked(0xcb, 'writeDoubleBE', value, 8);
      case 'bigint':
        return this.#bigInteger(value);
      case 'string':
        if (LONE_SURROGATE.test(value)) throw new BadValue('text with a lone surrogate', path);
        return this.text(value);
      case 'object':
        return value === null ? this.#byte(0xc0) : this.#object(value, path, depth);
      default:
        throw new BadValue(`cannot send ${value === undefined ? 'undefined' : `a ${typeof value}`}`, path);
    }
  }

  #object(value, path, depth) {
    if (value instanceof Uint8Array) return this.#byteString(value);
    if (value instanceof Float) return this.#marked(0xcb, 'writeDoubleBE', Number(value), 8);
    if (value instanceof DateTime) return this.#dateTime(value.micros, value.offset);
    if (value instanceof NaiveDateTime) return this.#dateTime(value.micros);
    if (value instanceof Date) return this.#date(value, path);
    if (depth === MAX_DEPTH) throw new BadValue(`nested deeper than ${MAX_DEPTH} levels`, path);
    if (Array.isArray(value)) {
      this.array(value.length);
      // Not forEach, which skips the holes.
      for (let index = 0; index < value.length; index += 1) {
        this.value(value[index], `${path}[${index}]`, depth + 1);
      }
      return;
    }
    const plain = [Object.prototype, null].includes(Object.getPrototypeOf(value));
    if (!plain && !(value instanceof Map)) {
      const name = value.constructor?.name ?? 'object';
      throw new BadValue(`cannot send a ${name}; make it a plain object, an array or a Map first`, path);
    }
    const entries = plain ? Object.entries(value) : [...value];
    this.map(entries.length);
    for (const [key, entry] of entries) {
      checkKey(key, path);
      this.value(key, path, depth + 1);
      this.value(entry, step(path, key), depth + 1);
    }
  }

  #date(date, path) {
    if (Number.isNaN(date.getTime())) throw new BadValue('an invalid Date', path);
    this.#dateTime(BigInt(date.getTime()) * 1000n, 0);
  }

  /** Returns the position to return to if a value has to be removed. */
  mark() {
    return [this.#length, this.#bodies.length, this.#bodiesLength];
  }

  reset([length, bodies, bodiesLength]) {
    this.#length = length;
    this.#bodies.length = bodies;
    this.#bodiesLength = bodiesLength;
  }

  /** Returns the pieces of a payload, and whether the frame has bodies. */
  finish() {
    const head = this.#head.subarray(0, this.#length);
    if (this.#bodies.length === 0) return { pieces: [head], length: head.length, bodies: false };
    const prefix = Buffer.alloc(4);
    prefix.writeUInt32LE(head.length);
    const pieces = [prefix, head, ...this.#bodies];
    return { pieces, length: 4 + head.length + this.#bodiesLength, bodies: true };
  }
}

function step(path, key) {
  if (typeof key === 'string' && /^[\p{L}_][\p{L}\p{N}_]*$/u.test(key)) return path ? `${path}.${key}` : key;
  return `${path}[${typeof key === 'string' ? JSON.stringify(key) : String(key)}]`;
}

/** Checks a key, which must be a scalar or an array of scalars. */
function checkKey(key, path) {
  if (Array.isArray(key)) return key.forEach((inner) => checkKey(inner, path));
  const scalar = key === null || typeof key !== 'object' || key instanceof Uint8Array || key instanceof Float;
  if (!scalar) throw new BadValue('a map or a date-time cannot be a key', path);
}

/** Returns the number in as few bytes as possible, big-endian. */
function twosComplement(number) {
  const magnitude = (number < 0n ? ~number : number).toString(16);
  const bits = (magnitude.length - 1) * 4 + (32 - Math.clz32(parseInt(magnitude[0], 16)));
  const bytes = Math.floor(bits / 8) + 1; // one bit is the sign
  const hex = BigInt.asUintN(bytes * 8, number).toString(16);
  return Buffer.from(hex.padStart(bytes * 2, '0'), 'hex');
}

// ------------------------------------------------------------------------------------------------- reading

const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Reads one value from unchecked bytes. */
export class Reader {
  #bytes;
  #at = 0;
  #bodies;

  constructor(bytes, bodies = undefined) {
    this.#bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
    this.#bodies = bodies;
  }

  /** Reads the payload of a frame. `around` arrays surround the value in its frame, and are not levels of it. */
  static payload(payload, hasBodies, around = 0) {
    let reader;
    if (hasBodies) {
      const { head, bodies } = splitPayload(payload);
      reader = new Reader(head, bodies);
    } else {
      reader = new Reader(payload);
    }
    const value = reader.value(-around);
    reader.finish();
    return value;
  }

  finish() {
    if (this.#at !== this.#bytes.length) throw new BadPayload('bytes follow the value');
  }

  #take(size) {
    if (size > this.#bytes.length - this.#at) throw new BadPayload('the bytes end inside the value');
    this.#at += size;
    return this.#at - size;
  }

  #number(method, size) {
    return this.#bytes[method](this.#take(size));
  }

  #slice(size) {
    const at = this.#take(size);
    return this.#bytes.subarray(at, at + size);
  }

  #length(marker, first) {
    switch (marker - first) {
      case 0:
        return this.#number('readUInt8', 1);
      case 1:
        return this.#number('readUInt16BE', 2);
      default:
        return this.#number('readUInt32BE', 4);
    }
  }

  value(depth = 0) {
    const marker = this.#number('readUInt8', 1);
    if (marker < 0x80) return marker;
    if (marker < 0x90) return this.#map(marker & 0x0f, depth);
    if (marker < 0xa0) return this.#array(marker & 0x0f, depth);
    if (marker < 0xc0) return this.#text(marker & 0x1f);
    if (marker >= 0xe0) return marker - 0x100;
    switch (marker) {
      case 0xc0:
        return null;
      case 0xc1:
        throw new BadPayload('the byte 0xc1 begins no value');
      case 0xc2:
        return false;
      case 0xc3:
        return true;
      case 0xca:
        return float(this.#number('readFloatBE', 4));
      case 0xcb:
        return float(this.#number('readDoubleBE', 8));
      case 0xcc:
        return this.#number('readUInt8', 1);
      case 0xcd:
        return this.#number('readUInt16BE', 2);
      case 0xce:
        return this.#number('readUInt32BE', 4);
      case 0xcf:
        return integer(this.#number('readBigUInt64BE', 8));
      case 0xd0:
        return this.#number('readInt8', 1);
      case 0xd1:
        return this.#number('readInt16BE', 2);
      case 0xd2:
        return this.#number('readInt32BE', 4);
      case 0xd3:
        return integer(this.#number('readBigInt64BE', 8));
      case 0xdc:
      case 0xdd:
        return this.#array(this.#length(marker, 0xdb), depth);
      case 0xde:
      case 0xdf:
        return this.#map(this.#length(marker, 0xdd), depth);
    }
    if (marker <= 0xc6) return Uint8Array.from(this.#slice(this.#length(marker, 0xc4)));
    if (marker <= 0xc9) return this.#extension(this.#length(marker, 0xc7));
    if (marker <= 0xd8) return this.#extension(1 << (marker - 0xd4));
    return this.#text(this.#length(marker, 0xd9));
  }

  #text(length) {
    const bytes = this.#slice(length);
    try {
      return UTF8.decode(bytes);
    } catch {
      throw new BadPayload('a text is not UTF-8');
    }
  }

  /** Checks a header: every entry takes at least a byte, so there cannot be more entries than bytes. */
  #enter(bytes, depth) {
    if (bytes > this.#bytes.length - this.#at) throw new BadPayload('the bytes end inside the value');
    if (depth === MAX_DEPTH) throw new BadPayload(`nested deeper than ${MAX_DEPTH} levels`);
  }

  #array(length, depth) {
    this.#enter(length, depth);
    const array = [];
    for (let index = 0; index < length; index += 1) array.push(this.value(depth + 1));
    return array;
  }

  #map(length, depth) {
    this.#enter(length * 2, depth);
    // Keys that are objects here would not be found equal, so they are compared by their bytes.
    const byBytes = new Map();
    const map = new Map();
    let allText = true;
    for (let index = 0; index < length; index += 1) {
      const start = this.#at;
      let key = this.value(depth + 1);
      allText &&= typeof key === 'string';
      if (key instanceof Float) {
        key = Number(key);
      } else if (key !== null && typeof key === 'object') {
        checkReadKey(key);
        const bytes = this.#bytes.toString('latin1', start, this.#at);
        if (byBytes.has(bytes)) key = byBytes.get(bytes);
        else byBytes.set(bytes, key);
      }
      map.set(key, this.value(depth + 1));
    }
    // fromEntries defines properties, so that `__proto__` is a key like any other.
    return allText ? Object.fromEntries(map) : map;
  }

  #extension(length) {
    const type = this.#number('readInt8', 1);
    const data = this.#slice(length);
    const wrong = () => new BadPayload(`an extension of type ${type} cannot have a length of ${length}`);
    const expect = (size) => {
      if (length !== size) throw wrong();
    };
    switch (type) {
      case EXT.BIG_INT:
        if (length === 0) throw wrong();
        return integer(BigInt.asIntN(length * 8, BigInt(`0x${data.toString('hex')}`)));
      case EXT.DATE_TIME:
        expect(12);
        return dateTime(data.readBigInt64LE(0), data.readInt32LE(8));
      case EXT.NAIVE_DATE_TIME:
        expect(8);
        return new NaiveDateTime(data.readBigInt64LE(0));
      case EXT.BODY:
        expect(8);
        return this.#body(data.readUInt32LE(0), data.readUInt32LE(4));
      case EXT.TIMESTAMP:
        if (![4, 8, 12].includes(length)) throw wrong();
        return timestamp(data);
      default:
        throw new BadPayload(`unknown extension type ${type}`);
    }
  }

  #body(offset, length) {
    if (!this.#bodies || offset + length > this.#bodies.length) {
      throw new BadPayload('a byte string lies outside the bodies of its frame');
    }
    // A part of the frame, not a copy.
    return new Uint8Array(this.#bodies.buffer, this.#bodies.byteOffset + offset, length);
  }
}

/** Returns the head and the bodies of a payload whose frame has bodies. */
export function splitPayload(payload) {
  const end = payload.length < 4 ? Infinity : 4 + payload.readUInt32LE(0);
  if (end > payload.length) throw new BadPayload('the payload ends inside its head');
  return { head: payload.subarray(4, end), bodies: payload.subarray(end) };
}

function checkReadKey(key) {
  if (Array.isArray(key)) return key.forEach((inner) => inner !== null && typeof inner === 'object' && checkReadKey(inner));
  const map = !(key instanceof Uint8Array || key instanceof Float || key instanceof DateTime || key instanceof NaiveDateTime);
  if (map) throw new BadPayload('a map cannot be a key');
}

function float(number) {
  return Number.isInteger(number) && !Object.is(number, -0) ? new Float(number) : number;
}

function integer(number) {
  const small = Number(number);
  return Number.isSafeInteger(small) ? small : number;
}

function dateTime(micros, offset) {
  if (Math.abs(offset) >= 86_400) throw new BadPayload(`an offset of ${offset} seconds from UTC`);
  return new DateTime(micros, offset);
}

function timestamp(data) {
  let seconds;
  let nanos = 0;
  if (data.length === 4) {
    seconds = BigInt(data.readUInt32BE(0));
  } else if (data.length === 8) {
    const both = data.readBigUInt64BE(0);
    seconds = both & (2n ** 34n - 1n);
    nanos = Number(both >> 34n);
  } else {
    nanos = data.readUInt32BE(0);
    seconds = data.readBigInt64BE(4);
  }
  if (nanos > 999_999_999) throw new BadPayload(`a time with ${nanos} nanoseconds in its second`);
  return new DateTime(seconds * 1_000_000n + BigInt(Math.floor(nanos / 1000)));
}
