// The context of a command's call: its caller, whether to stop, and the host's tools.

import { CallError, Cancelled, HostError } from './errors.mjs';
import { KIND } from './frames.mjs';
import { Float } from './values.mjs';

/** The items and bytes of a host's stream that may be on their way. */
const HOST_STREAM_CREDIT = [16, 1 << 20];

/** The context of a command's call. */
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
    /** The time at which the caller's time is over, as Date.now() counts; null without a limit. */
    this.deadline = deadlineMs === null ? null : Date.now() + Number(deadlineMs);
    /** The items and bytes that a stream may still send. Null if the caller takes no stream. */
    this.credit = options.stream === undefined ? null : options.stream.map(Number);
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

  get maySend() {
    return this.credit.every((left) => left > 0);
  }

  addCredit([items, bytes]) {
    this.credit[0] += items;
    this.credit[1] += bytes;
    this.onCredit();
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
        const length = answers.length;
        yield item;
        this.#worker.send(KIND.HOST_CREDIT, this.id, [answers.id, 1, length]);
      }
    } finally {
      if (!answers.ended) this.#worker.send(KIND.HOST_CANCEL, this.id, [answers.id]);
      this.#worker.closeHostCall(answers.id);
    }
  }
}

/** The host's answers to one HOST_CALL, in order. */
export class HostAnswers {
  ended = false;
  /** The length of the last answer's payload. */
  length = 0;
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
    const { kind, value, length } = this.#ready.shift();
    this.length = length;
    this.ended = kind !== KIND.HOST_ITEM;
    if (kind === KIND.HOST_ERROR) throw new HostError(value);
    return value;
  }
}

// Parameters: by name or by position.

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

export const isGenerator = (run) => /Generator/.test(run.constructor.name);
export const isStream = (result) => typeof result?.next === 'function' && typeof result?.return === 'function';
