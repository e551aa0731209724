// A worker for Snakepit in plain JavaScript, written from spec/wire.md alone.
//
//   import { command, serve } from './snakepit.mjs';
//   serve({ add: command(['a', 'b'], (a, b) => a + b) });
//
// A command is a function of `(args, call)`, or a function with named parameters that `command` creates. It may be
// async, and a generator or an async generator is a stream. `call` is the context of the call: see the class Call.

import { writeSync } from 'node:fs';
import net from 'node:net';

import { Call, HostAnswers, isGenerator, isStream } from './call.mjs';
import { CallError, Cancelled, errorMap } from './errors.mjs';
import { Fault, FrameReader, KIND, VERSION, frame, frameOf } from './frames.mjs';
import { BadPayload, BadValue, Reader, Writer } from './values.mjs';

export { Call, command } from './call.mjs';
export { CallError, Cancelled, HostError } from './errors.mjs';
export * from './values.mjs';

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
    // Node does not pass descriptors that it inherits on to the processes that it starts.
    this.#socket = new net.Socket({ fd, readable: true, writable: true });
    this.#socket.on('data', (chunk) => this.#guard(() => this.#reader.push(chunk)));
    // The host is done with this worker, or gone.
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

  /** Sends one frame, and returns the length of its payload. Throws BadValue and sends nothing if the value cannot be sent. */
  send(kind, call, value, path = '') {
    const writer = new Writer();
    writer.value(value, path);
    return this.#sendWritten(kind, call, writer);
  }

  /** Sends one frame that is an array of values. */
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
    return payload.length;
  }

  #receive({ kind, call, bodies, payload }) {
    // `around` arrays of the frame surround the value, and are not levels of it.
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
        if (found?.credit != null) found.addCredit(list(value()).map(whole));
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
        this.#hostCalls.get(id)?.push({ kind, value: answer, length: payload.length });
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
    // The outer call of a nested one waits for it, here or elsewhere, so the nested call must not wait in the queue.
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
      // Most likely too long for a frame.
      this.send(KIND.ERROR, call.id, { kind: map.kind, type: map.type, message: map.message.slice(0, 1000) });
    }
  }

  /** Returns a command's answer. A stream is refused here. */
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
    const results = new Results(this.#reader.maxFrame, (payload, more) => {
      this.#write(frameOf(KIND.RESULTS, call.id, payload, more));
    });
    let started = 0;
    for (const args of list) {
      this.#slate.startOfMany((started += 1));
      try {
        if (call.cancelled) throw new Cancelled();
        results.good(await this.#invoke(call, args));
      } catch (error) {
        results.bad(errorMap(error));
      }
    }
    results.end();
  }

  // ---------------------------------------------------------------------------------------------- streams

  async #stream(call, args) {
    const result = await Promise.race([this.#find(call.command)(args, call), call.raised]);
    const items = isStream(result) ? result : [result === undefined ? null : result][Symbol.iterator]();
    let index = 0;
    try {
      for (;;) {
        const { done, value } = await Promise.race([items.next(), call.raised]);
        // END needs no credit, and only now is it known whether this is the end.
        if (done) break;
        await this.#credit(call);
        const length = this.send(KIND.ITEM, call.id, value === undefined ? null : value, `item[${index}]`);
        index += 1;
        call.credit[0] -= 1;
        call.credit[1] -= length;
      }
    } catch (error) {
      // Its `finally` runs, but a generator that hangs there does not keep the call open.
      Promise.resolve(items.return?.()).catch(() => {});
      throw error;
    }
    this.#write(frame(KIND.END, call.id));
  }

  async #credit(call) {
    while (!call.maySend && !call.cancelled) {
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

/** Returns how many letters must change. The names of commands are short. */
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

/** The entries of many calls. They are sent when the next entry does not fit into the same frame. */
class Results {
  #limit;
  #send;
  #writer;
  #array;
  #count;

  constructor(limit, send) {
    this.#limit = limit;
    this.#send = send;
    this.#open();
  }

  #open() {
    this.#writer = new Writer();
    this.#array = this.#writer.openArray();
    this.#count = 0;
  }

  #close(more) {
    this.#writer.closeArray(this.#array, this.#count);
    this.#send(this.#writer.finish(), more);
  }

  good(result) {
    this.#add(true, result, 'result');
  }

  bad(map) {
    try {
      this.#add(false, map);
    } catch {
      this.#add(false, { kind: map.kind, type: map.type, message: map.message.slice(0, this.#limit / 16) });
    }
  }

  /** Adds an entry. Throws BadValue if it cannot be sent at all. */
  #add(well, value, path) {
    if (this.#fits(well, value, path)) return;
    if (this.#count > 0) {
      this.#close(true);
      this.#open();
      if (this.#fits(well, value, path)) return;
    }
    throw new BadValue(`longer than a frame, which holds ${this.#limit} bytes`, path);
  }

  #fits(well, value, path) {
    const mark = this.#writer.mark();
    let fits = false;
    try {
      this.#writer.array(2);
      this.#writer.value(well);
      this.#writer.value(value, path);
      fits = this.#writer.finish().length <= this.#limit;
    } finally {
      if (fits) this.#count += 1;
      else this.#writer.reset(mark);
    }
    return fits;
  }

  end() {
    this.#close(false);
  }
}

/** The page that survives the worker. Without a page, nothing is written. */
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

/** Serves the commands, an object of functions or a function that loads one, until the host is done with this worker. */
export function serve(commands) {
  const fd = Number(process.env.SNAKEPIT_FD);
  if (!process.env.SNAKEPIT_FD || Number.isNaN(fd)) {
    console.error('SNAKEPIT_FD is not set: this program is a worker and is started by Snakepit.');
    process.exit(2);
  }
  return new Worker(fd, commands);
}
