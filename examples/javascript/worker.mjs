// A worker of every kind of command, served by snakepit.mjs:
//
//   SNAKEPIT_FD is set by the host, which starts `node examples/javascript/worker.mjs`.

import { command, serve } from './snakepit.mjs';

const sleep = (milliseconds, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener('abort', () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });

serve({
  /** Returns its arguments. */
  echo: (args) => args,

  add: command(['a', 'b'], (a, b) => a + b),

  repeat: command(['text', 'times'], (text, times) => text.repeat(times)),

  size: command(['bytes'], (bytes) => bytes.length),

  /** Streams the numbers up to `n`. */
  *count({ n }) {
    for (let number = 0; number < n; number += 1) yield number;
  },

  /** Streams texts of these lengths. */
  *letters({ sizes }) {
    for (const size of sizes) yield 'x'.repeat(size);
  },

  /** Streams a number every `ms` milliseconds. */
  async *tick({ n, ms }, call) {
    for (let number = 0; number < n; number += 1) {
      await sleep(ms, call.signal);
      yield number;
    }
  },

  fail: command(['message'], (message) => {
    throw new RangeError(message, { cause: new TypeError('the reason') });
  }),

  /** Waits, and stops when it is asked to. */
  wait: async ({ ms }, call) => {
    await sleep(ms, call.signal);
    return 'done';
  },

  /** Does not check whether it should stop. */
  deaf: () => new Promise(() => {}),

  /** Calls a tool of the host. */
  ask: async ({ tool, args }, call) => call.host(tool, args),

  /** Adds up a stream of the host, up to a limit. */
  sum: async ({ tool, args, limit = Infinity }, call) => {
    let sum = 0;
    for await (const number of call.hostStream(tool, args)) {
      sum += number;
      if (sum >= limit) break;
    }
    return sum;
  },

  /** Logs, and reports progress. */
  report: (_, call) => {
    call.log('info', 'began', { command: call.command, session: call.session });
    call.progress(0.5, 'half');
    console.log('a stray line on standard output harms nothing');
    return null;
  },

  unsendable: () => ({ rows: [1, { price: () => 5 }] }),
});
