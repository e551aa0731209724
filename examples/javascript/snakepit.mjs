// A worker for Snakepit in plain JavaScript, written from spec/wire.md alone.
//
//   import { command, serve } from './snakepit.mjs';
//   serve({ add: command(['a', 'b'], (a, b) => a + b) });
//
// A command is a function of `(args, call)`, or one with named parameters made by `command`. It may be async, and a
// generator or an async generator is a stream. `call` is what the command knows of its call: see the class Call.

import { writeSync } from 'node:fs';
import net from 'node:net';

import { BadPayload, BadValue, Float, Reader, Writer, splitPayload } from './values.mjs';

export * from './values.mjs';

const VERSION = 1;
const HEADER = 16;
const BODIES = 1;
/** HELLO says how long a frame may be; it is not long itself. */
const LONGEST_HELLO = 1 << 20;
/** Items of a host's stream that may be on their way. */
const HOST_STREAM_CREDIT = 16;

const KIND = Object.freeze({
  HELLO: 1, READY: 2, CALL: 3, RESULT: 4, ERROR: 5, ITEM: 6, END: 7, CREDIT: 8, CANCEL: 9, HOST_CALL: 10,
  HOST_RESULT: 11, HOST_ERROR: 12, HOST_ITEM: 13, HOST_END: 14, HOST_CREDIT: 15, HOST_CANCEL: 16, LOG: 17,
  PROGRESS: 18, PING: 19, PONG: 20, TELEMETRY: 21, DRAIN: 22, BYE: 23, CALLS: 24, RESULTS: 25, FAULT: 26,
});

// -------------------------------------------------------------------------------------------------- frames

/** The other side broke the protocol. */
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
      if (kind < KIND.HELLO || kind > KIND.FAULT) throw new Fault(`a frame of unknown kind ${kind}`);
      if (flags & ~BODIES) throw new Fault(`a frame with unknown flags ${flags}`);
      if (length > this.maxFrame) throw new Fault(`a frame of ${length} bytes; ${this.maxFrame} are allowed`);
      if (this.#size < HEADER + length) return;
      const whole = this.#peek(HEADER + length);
      this.#chunks[0] = this.#chunks[0].subarray(HEADER + length);
      this.#size -= HEADER + length;
      if (this.#chunks[0].length === 0) this.#chunks.shift();
      const payload = whole.subarray(HEADER);
      const bodies = (flags & BODIES) !== 0;
      if (bodies) checkHead(payload);
      this.#receive({ kind, call: whole.readBigUInt64LE(8), bodies, payload });
    }
  }

  /** The first bytes in one piece; the rest stays in pieces until it is needed. */
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

function frameOf(kind, call, { pieces, length, bodies }) {
  const header = Buffer.alloc(HEADER);
  header.writeUInt32LE(length, 0);
  header[4] = VERSION;
  header[5] = kind;
  header.writeUInt16LE(bodies ? BODIES : 0, 6);
  header.writeBigUInt64LE(call, 8);
  return [header, ...pieces];
}

/** The pieces of a frame; without a value its payload is empty. */
export function frame(kind, call, ...value) {
  if (value.length === 0) return frameOf(kind, call, { pieces: [], length: 0, bodies: false });
  const writer = new Writer();
  writer.value(value[0]);
  return frameOf(kind, call, writer.finish());
}

// -------------------------------------------------------------------------------------------------- errors

/** An error with a kind of the protocol. */
export class CallError extends Error {
  constructor(kind, message, fields = {}) {
    super(message);
    this.kind = kind;
    this.fields = fields;
  }
}

/** Thrown into a call that was cancelled. */
export class Cancelled extends CallError {
  name = 'Cancelled';

  constructor() {
    super('cancelled', 'the call was cancelled');
  }
}

/** A tool of the host failed. `error` is the map that the host sent. */
export class HostError extends Error {
  name = 'HostError';

  constructor(error) {
    super(error?.message ?? 'a tool of the host failed');
    this.error = error;
  }
}

/** The map of spec/wire.md, section Errors. */
function errorMap(error, depth = 0) {
  if (!(error instanceof Error)) {
    return { kind: 'exception', type: typeof error, message: wellFormed(String(error)) };
  }
  const map = { kind: 'exception', type: error.name, message: wellFormed(error.message) };
  if (error instanceof CallError) Object.assign(map, { kind: error.kind }, error.fields);
  if (error instanceof BadValue) {
    map.kind = 'bad_value';
    if (error.path) map.path = error.path;
  }
  if (error instanceof BadPayload) map.kind = 'bad_payload';
  if (error.stack) map.traceback = wellFormed(error.stack);
  if (error.cause instanceof Error && depth < 8) map.cause = errorMap(error.cause, depth + 1);
  return map;
}

/** The text of an error is sent even if it has letters that cannot be. */
const wellFormed = (text) => text.replace(/\p{Surrogate}/gu, '\ufffd');

// ---------------------------------------------------------------------------------------------- parameters

/** A command with named parameters, which the caller may give by name or by position. */
export function command(parameters, run) {
  const bound = (args, call) => run(...bind(parameters, args), call);
  bound.streams = isGenerator(run);
  return bound;
}

function bind(parameters, args) {
  const refuse = (message, parameter) => {
    throw new CallError('bad_argument', message, parameter === undefined ? {} : { parameter });
  };
  const byName = args !== null && typeof args === 'object' && !Array.isArray(args) && Object.getPrototypeOf(args) === Object.prototype;
  if (byName) {
    for (const name of Object.keys(args)) {
      if (!parameters.includes(name)) refuse(`there is no parameter '${name}'`, name);
    }
    return parameters.map((name) => (Object.hasOwn(args, name) ? args[name] : refuse(`'${name}' is missing`, name)));
  }
  const positions = Array.isArray(args) ? args : [args];
  if (positions.length > parameters.length) refuse(`at most ${parameters.length} arguments, not ${positions.length}`);
  const missing = parameters[positions.length];
  if (missing !== undefined) refuse(`'${missing}' is missing`, missing);
  return positions;
}

const isGenerator = (run) => /Generator/.test(run.constructor.name);
const isStream = (result) => typeof result?.next === 'function' && typeof result?.return === 'function';

// ---------------------------------------------------------------------------------------------------- call

/** What a command knows of its call. */
export class Call {
  #worker;
  #cancel = new AbortController();
  #raise;

  constructor(worker, id, commandName, deadlineMs, options) {
    this.#worker = worker;
    this.id = id;
    this.command = commandName;
    this.session = options.session ?? null;
    this.metadata = options.metadata ?? {};
    /** When the caller's time is over, as Date.now() counts; null without a limit. */
    this.deadline = deadlineMs === null ? null : Date.now() + Number(deadlineMs);
    this.credit = options.stream === undefined ? null : Number(options.stream);
    this.onCredit = () => {};
    /** Rejected by the second stage of a cancel. */
    this.raised = new Promise((_, reject) => {
      this.#raise = () => reject(new Cancelled());
    });
    this.raised.catch(() => {});
  }

  /** An AbortSignal that the first stage of a cancel fires; fetch, timers and others take it. */
  get signal() {
    return this.#cancel.signal;
  }

  get cancelled() {
    return this.signal.aborted;
  }

  cancel(stage) {
    this.#cancel.abort(new Cancelled());
    this.onCredit();
    if (stage >= 2) this.#raise();
  }

  log(level, text, fields = {}) {
    this.#worker.send(KIND.LOG, this.id, [level, text, fields]);
  }

  progress(fraction, text = null) {
    // Always a float, even if it is 1.
    this.#worker.send(KIND.PROGRESS, this.id, [fraction === null ? null : new Float(fraction), text]);
  }

  /** Calls a tool of the host and waits for its answer. */
  async host(tool, args = {}) {
    const answers = this.#worker.openHostCall();
    try {
      this.#worker.sendAll(KIND.HOST_CALL, this.id, [answers.id, tool, args]);
      return await Promise.race([answers.next(), this.raised]);
    } catch (error) {
      if (error instanceof Cancelled) this.#worker.send(KIND.HOST_CANCEL, this.id, [answers.id]);
      throw error;
    } finally {
      this.#worker.closeHostCall(answers.id);
    }
  }

  /** Calls a tool of the host that streams. */
  async *hostStream(tool, args = {}) {
    const answers = this.#worker.openHostCall();
    this.#worker.sendAll(KIND.HOST_CALL, this.id, [answers.id, tool, args, { stream: HOST_STREAM_CREDIT }]);
    try {
      for (;;) {
        const item = await Promise.race([answers.next(), this.raised]);
        if (answers.ended) return;
        yield item;
        this.#worker.send(KIND.HOST_CREDIT, this.id, [answers.id, 1]);
      }
    } finally {
      if (!answers.ended) this.#worker.send(KIND.HOST_CANCEL, this.id, [answers.id]);
      this.#worker.closeHostCall(answers.id);
    }
  }
}

/** What the host answers to one HOST_CALL, in order. */
class HostAnswers {
  ended = false;
  #ready = [];
  #waiting = null;

  constructor(id) {
    this.id = id;
  }

  push(answer) {
    this.#ready.push(answer);
    this.#waiting?.();
  }

  async next() {
    while (this.#ready.length === 0) {
      await new Promise((resolve) => {
        this.#waiting = resolve;
      });
    }
    const { kind, value } = this.#ready.shift();
    this.ended = kind !== KIND.HOST_ITEM;
    if (kind === KIND.HOST_ERROR) throw new HostError(value);
    return value;
  }
}

// -------------------------------------------------------------------------------------------------- worker

class Worker {
  #socket;
  #reader = new FrameReader((received) => this.#receive(received));
  #commands = new Map();
  #load;
  #state = 'new';
  #concurrency = 1;
  #running = 0;
  #queue = [];
  #calls = new Map();
  #hostCalls = new Map();
  #nextHostCall = 1;
  #draining = false;
  #slate = new Slate();

  constructor(fd, load) {
    this.#load = load;
    // Node keeps the descriptors that it inherits from the processes that it starts.
    this.#socket = new net.Socket({ fd, readable: true, writable: true });
    this.#socket.on('data', (chunk) => this.#guard(() => this.#reader.push(chunk)));
    // The host is done with us, or gone.
    this.#socket.on('end', () => process.exit(0));
    this.#socket.on('error', () => process.exit(1));
  }

  #guard(work) {
    try {
      work();
    } catch (error) {
      if (error instanceof Fault || error instanceof BadPayload) this.#fault(error.message);
      else throw error;
    }
  }

  #fault(sentence) {
    this.#state = 'ended';
    this.#finish([frame(KIND.FAULT, 0n, sentence)], 1);
  }

  #finish(frames, status) {
    this.#socket.removeAllListeners('data');
    this.#socket.end(Buffer.concat(frames.flat()), () => process.exit(status));
  }

  #write(pieces) {
    if (this.#state === 'ended') return;
    this.#socket.cork();
    for (const piece of pieces) this.#socket.write(piece);
    process.nextTick(() => this.#socket.uncork());
  }

  /** One frame. Throws BadValue, and sends nothing, if the value cannot be sent. */
  send(kind, call, value, path = '') {
    const writer = new Writer();
    writer.value(value, path);
    this.#sendWritten(kind, call, writer);
  }

  /** One frame that is an array of values. */
  sendAll(kind, call, values) {
    const writer = new Writer();
    writer.array(values.length);
    for (const value of values) writer.value(value, 'args');
    this.#sendWritten(kind, call, writer);
  }

  #sendWritten(kind, call, writer) {
    const payload = writer.finish();
    if (payload.length > this.#reader.maxFrame) {
      throw new BadValue(`${payload.length} bytes; a frame holds ${this.#reader.maxFrame}`);
    }
    this.#write(frameOf(kind, call, payload));
  }

  #receive({ kind, call, bodies, payload }) {
    // `around` arrays of the frame surround the value and are not levels of it.
    const value = (around = 0) => Reader.payload(payload, bodies, around);
    if (this.#state === 'new' && kind !== KIND.HELLO && kind !== KIND.FAULT) throw new Fault('the first frame must be HELLO');
    switch (kind) {
      case KIND.HELLO:
        if (this.#state !== 'new') throw new Fault('a second HELLO');
        this.#hello(value());
        return;
      case KIND.CALL:
      case KIND.CALLS:
        if (this.#draining) throw new Fault('a call after DRAIN');
        this.#accept(kind, call, value);
        return;
      case KIND.CREDIT: {
        const found = this.#calls.get(call);
        if (found?.credit != null) {
          found.credit += whole(value());
          found.onCredit();
        }
        return;
      }
      case KIND.CANCEL:
        this.#calls.get(call)?.cancel(whole(value()));
        return;
      case KIND.HOST_RESULT:
      case KIND.HOST_ERROR:
      case KIND.HOST_ITEM:
      case KIND.HOST_END: {
        const [id, answer = null] = list(value(1));
        this.#hostCalls.get(id)?.push({ kind, value: answer });
        return;
      }
      case KIND.PING:
        this.send(KIND.PONG, call, value());
        return;
      case KIND.DRAIN:
        this.#draining = true;
        this.#endIfDrained();
        return;
      case KIND.FAULT:
        console.error(`the host says that this worker is at fault: ${value()}`);
        process.exit(1);
        return;
      default:
        throw new Fault(`a frame of kind ${kind}, which only a worker sends`);
    }
  }

  // ------------------------------------------------------------------------------------------------ start

  #hello(hello) {
    if (hello?.protocol !== VERSION) throw new Fault(`protocol ${hello?.protocol}; this worker speaks ${VERSION}`);
    this.#reader.maxFrame = whole(hello.max_frame);
    this.#concurrency = Math.max(1, whole(hello.concurrency));
    this.#state = 'loading';
    this.#start();
  }

  async #start() {
    try {
      const commands = typeof this.#load === 'function' ? await this.#load() : this.#load;
      this.#commands = new Map(Object.entries(commands));
    } catch (error) {
      this.#state = 'ended';
      this.#finish([frame(KIND.ERROR, 0n, { ...errorMap(error), kind: 'start' })], 1);
      return;
    }
    this.#state = 'ready';
    this.send(KIND.READY, 0n, {
      protocol: VERSION,
      sdk: '0.1.0',
      language: `javascript node ${process.versions.node}`,
      pid: process.pid,
      commands: [...this.#commands.keys()],
      signals: {},
      features: this.#slate.features,
    });
    this.#startNext();
  }

  #endIfDrained() {
    if (!this.#draining || this.#state !== 'ready' || this.#calls.size > 0) return;
    this.#state = 'ended';
    this.#finish([frame(KIND.BYE, 0n)], 0);
  }

  // ------------------------------------------------------------------------------------------------ calls

  #accept(kind, id, value) {
    let content;
    try {
      content = list(value(kind === KIND.CALLS ? 2 : 1));
    } catch (error) {
      if (!(error instanceof BadPayload)) throw error;
      this.send(KIND.ERROR, id, errorMap(error));
      return;
    }
    const [name, args, deadlineMs, options = {}] = content;
    if (typeof name !== 'string') throw new Fault('a call without the name of a command');
    if (kind === KIND.CALLS) list(args);
    const call = new Call(this, id, name, deadlineMs, options);
    this.#calls.set(id, call);
    const work = { kind, call, args };
    // The call that a nested one belongs to waits for it, here or elsewhere, so it must not wait in the queue.
    if (options.nested !== undefined) this.#run(work);
    else this.#queue.push(work);
    this.#startNext();
  }

  #startNext() {
    while (this.#state === 'ready' && this.#running < this.#concurrency && this.#queue.length > 0) {
      this.#running += 1;
      this.#run(this.#queue.shift()).finally(() => {
        this.#running -= 1;
        this.#startNext();
      });
    }
    this.#endIfDrained();
  }

  async #run({ kind, call, args }) {
    try {
      if (call.deadline !== null && Date.now() > call.deadline) {
        throw new CallError('deadline', 'the time was over before the call could start');
      }
      if (call.cancelled) throw new Cancelled();
      this.#slate.start(call.id);
      if (kind === KIND.CALLS) await this.#runMany(call, args);
      else if (call.credit === null) this.send(KIND.RESULT, call.id, await this.#invoke(call, args), 'result');
      else await this.#stream(call, args);
    } catch (error) {
      this.#sendError(call, error);
    } finally {
      this.#calls.delete(call.id);
      this.#slate.finish();
      this.#endIfDrained();
    }
  }

  #sendError(call, error) {
    const map = errorMap(error);
    try {
      this.send(KIND.ERROR, call.id, map);
    } catch {
      // Too long for a frame, most likely.
      this.send(KIND.ERROR, call.id, { kind: map.kind, type: map.type, message: map.message.slice(0, 1000) });
    }
  }

  /** What a command answers; a stream is refused here. */
  async #invoke(call, args) {
    const run = this.#find(call.command);
    const refuse = () => new CallError('streaming', `'${call.command}' is a stream; call it as one`);
    if (run.streams ?? isGenerator(run)) throw refuse();
    const result = await Promise.race([run(args, call), call.raised]);
    if (isStream(result)) throw refuse();
    return result === undefined ? null : result;
  }

  #find(name) {
    const run = this.#commands.get(name);
    if (run) return run;
    if (name.startsWith('snakepit.')) return () => null;
    const close = Math.max(1, Math.floor(name.length / 3));
    const nearest = [...this.#commands.keys()].filter((it) => distance(it, name) <= close);
    throw new CallError('unknown_command', `no command '${name}'`, nearest.length ? { nearest } : {});
  }

  async #runMany(call, list) {
    const writer = new Writer();
    writer.array(list.length);
    let started = 0;
    for (const args of list) {
      this.#slate.startOfMany((started += 1));
      const mark = writer.mark();
      writer.array(2);
      try {
        if (call.cancelled) throw new Cancelled();
        const result = await this.#invoke(call, args);
        writer.value(true);
        writer.value(result, 'result');
      } catch (error) {
        writer.reset(mark);
        writer.array(2);
        writer.value(false);
        writer.value(errorMap(error));
      }
    }
    this.#sendWritten(KIND.RESULTS, call.id, writer);
  }

  // ---------------------------------------------------------------------------------------------- streams

  async #stream(call, args) {
    const result = await Promise.race([this.#find(call.command)(args, call), call.raised]);
    const items = isStream(result) ? result : [result === undefined ? null : result][Symbol.iterator]();
    let index = 0;
    try {
      for (;;) {
        const { done, value } = await Promise.race([items.next(), call.raised]);
        // END needs no credit, and whether it is the end is known only now.
        if (done) break;
        await this.#credit(call);
        this.send(KIND.ITEM, call.id, value === undefined ? null : value, `item[${index}]`);
        index += 1;
        call.credit -= 1;
      }
    } catch (error) {
      // Its `finally` runs, but a generator that hangs there does not keep the call open.
      Promise.resolve(items.return?.()).catch(() => {});
      throw error;
    }
    this.#write(frame(KIND.END, call.id));
  }

  async #credit(call) {
    while (call.credit <= 0 && !call.cancelled) {
      await new Promise((resolve) => {
        call.onCredit = resolve;
      });
    }
    if (call.cancelled) throw new Cancelled();
  }

  // ----------------------------------------------------------------------------------------------- host's

  openHostCall() {
    const answers = new HostAnswers(this.#nextHostCall);
    this.#nextHostCall += 1;
    this.#hostCalls.set(answers.id, answers);
    return answers;
  }

  closeHostCall(id) {
    this.#hostCalls.delete(id);
  }
}

function list(value) {
  if (!Array.isArray(value)) throw new Fault('a payload that should be an array');
  return value;
}

function whole(value) {
  if (!Number.isSafeInteger(value)) throw new Fault('a payload that should be an integer');
  return value;
}

/** How many letters must change; names of commands are short. */
function distance(a, b) {
  let row = [...Array(b.length + 1).keys()];
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      next.push(Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1)));
    }
    row = next;
  }
  return row[b.length];
}

/** The page that survives the worker; without one nothing is written. */
class Slate {
  #fd = process.env.SNAKEPIT_SLATE_FD === undefined ? null : Number(process.env.SNAKEPIT_SLATE_FD);
  #finished = 0n;

  get features() {
    return this.#fd === null ? [] : ['slate'];
  }

  #put(offset, number) {
    if (this.#fd === null) return;
    const bytes = Buffer.alloc(8);
    bytes.writeBigUInt64LE(number);
    writeSync(this.#fd, bytes, 0, 8, offset);
  }

  start(id) {
    this.#put(0, id);
    this.#put(8, 0n);
  }

  startOfMany(count) {
    this.#put(8, BigInt(count));
  }

  finish() {
    this.#finished += 1n;
    this.#put(16, this.#finished);
  }
}

/** Serves the commands, an object of functions or a function that loads one, until the host is done with us. */
export function serve(commands) {
  const fd = Number(process.env.SNAKEPIT_FD);
  if (!process.env.SNAKEPIT_FD || Number.isNaN(fd)) {
    console.error('SNAKEPIT_FD is not set: this program is a worker and is started by Snakepit.');
    process.exit(2);
  }
  return new Worker(fd, commands);
}
