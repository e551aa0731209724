// The worker from the view of its host: started as a process, and called over a socket that it inherits.

import assert from 'node:assert/strict';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

import { KIND } from './frames.mjs';
import { Host } from './host.mjs';
import { DateTime, Float, NaiveDateTime } from './values.mjs';

/** Defines a test with a worker that has sent READY. */
function withWorker(name, run, hello = {}) {
  test(name, { timeout: 30_000 }, async () => {
    const host = new Host();
    try {
      const ready = await host.hello(hello);
      assert.equal(ready.kind, KIND.READY, host.stderr);
      await run(host, ready.value);
    } finally {
      host.end();
    }
  });
}

withWorker('a worker says what it can do', async (host, ready) => {
  assert.equal(ready.protocol, 1);
  assert.equal(ready.pid, host.child.pid);
  assert.match(ready.language, /^javascript node/);
  assert.ok(ready.commands.includes('add') && ready.commands.includes('count'));
});

withWorker('a call is answered, by name and by position', async (host) => {
  assert.deepEqual(await host.call(1, 'add', { a: 1, b: 2 }), { kind: KIND.RESULT, call: 1n, bodies: false, value: 3 });
  assert.equal((await host.call(2, 'add', [3, 4])).value, 7);
});

withWorker('every kind of value comes back as it was', async (host) => {
  const value = {
    list: [null, true, -1, 1.5, new Float(2), 2n ** 64n, -(2n ** 70n), 'text', '', 'ü🐍'],
    bytes: Uint8Array.of(0, 255),
    map: new Map([[1, 'one'], [null, 'nil'], [true, 'yes'], [1.5, 'float']]),
    at: new DateTime(1709202896789012n, 7200),
    local: new NaiveDateTime(-1n),
    ['__proto__']: 'a key like any other',
  };
  const { kind, value: again } = await host.call(1, 'echo', value);
  assert.equal(kind, KIND.RESULT);
  assert.deepStrictEqual(again, value);
});

withWorker('a value may be 128 levels deep in its frame', async (host) => {
  let deep = [];
  for (let level = 1; level < 128; level += 1) deep = [deep];
  // The array of the frame does not count, so it is written around the value by hand.
  const head = Buffer.concat([Buffer.of(0x93, 0xa4), Buffer.from('echo'), Buffer.alloc(127, 0x91), Buffer.of(0x90, 0xc0)]);
  const header = Buffer.alloc(16);
  header.writeUInt32LE(head.length, 0);
  header.set([1, KIND.CALL], 4);
  header.writeBigUInt64LE(1n, 8);
  host.raw(Buffer.concat([header, head]));
  assert.deepEqual((await host.next()).value, deep);
});

withWorker('long byte strings travel as bodies', async (host) => {
  const bytes = new Uint8Array(100_000).fill(7);
  assert.equal((await host.call(1, 'size', { bytes })).value, 100_000);
  const deep = [16 << 10, (16 << 10) - 1, 100_000].map((size) => ({ bytes: bytes.subarray(0, size) }));
  const echo = await host.call(2, 'echo', { deep });
  assert.equal(echo.bodies, true);
  assert.deepEqual(echo.value, { deep });
  const short = await host.call(3, 'echo', bytes.subarray(0, (16 << 10) - 1));
  assert.equal(short.bodies, false);
});

withWorker('an exception carries its type, its stack and its cause', async (host) => {
  const { kind, value } = await host.call(1, 'fail', ['no']);
  assert.equal(kind, KIND.ERROR);
  assert.deepEqual([value.kind, value.type, value.message], ['exception', 'RangeError', 'no']);
  assert.match(value.traceback, /worker\.mjs:\d+/);
  assert.deepEqual([value.cause.type, value.cause.message], ['TypeError', 'the reason']);
});

withWorker('wrong calls are refused with the reason', async (host) => {
  const error = async (...call) => (await host.call(1, ...call)).value;
  const unknown = await error('ad', {});
  assert.deepEqual([unknown.kind, unknown.nearest], ['unknown_command', ['add']]);
  const missing = await error('add', { a: 1 });
  assert.deepEqual([missing.kind, missing.parameter], ['bad_argument', 'b']);
  const strange = await error('add', { a: 1, b: 2, c: 3 });
  assert.deepEqual([strange.kind, strange.parameter], ['bad_argument', 'c']);
  assert.equal((await error('add', [1, 2, 3])).kind, 'bad_argument');
  const unsendable = await error('unsendable');
  assert.deepEqual([unsendable.kind, unsendable.path], ['bad_value', 'result.rows[1].price']);
  assert.equal((await error('count', { n: 1 })).kind, 'streaming');
  assert.equal((await error('repeat', ['x', 1 << 20])).kind, 'bad_value');
});

withWorker('arguments that cannot be read fail their call only', async (host) => {
  const frame = Buffer.from('0200000001030000050000000000000091c1', 'hex');
  host.raw(frame);
  const { kind, call, value } = await host.next();
  assert.deepEqual([kind, call, value.kind], [KIND.ERROR, 5n, 'bad_payload']);
  assert.equal((await host.call(6, 'add', [1, 2])).value, 3);
});

withWorker('a stream sends what it has credit for', async (host) => {
  host.send(KIND.CALL, 1, ['count', { n: 5 }, null, { stream: [2, 1000] }]);
  assert.deepEqual([(await host.next()).value, (await host.next()).value], [0, 1]);
  // Nothing more comes without credit: the next frame is the answer to the ping.
  host.send(KIND.PING, 0, 'still there?');
  assert.deepEqual(await host.next(), { kind: KIND.PONG, call: 0n, bodies: false, value: 'still there?' });
  host.send(KIND.CREDIT, 1, [10, 0]);
  for (const expected of [2, 3, 4]) assert.equal((await host.next()).value, expected);
  const end = await host.next();
  assert.deepEqual([end.kind, end.value], [KIND.END, undefined]);
});

withWorker('a stream stops at its bytes, and an item that is longer than all of them passes alone', async (host) => {
  // An item of 48 letters is 50 bytes long, one of 1000 letters 1003.
  host.send(KIND.CALL, 1, ['letters', { sizes: [48, 48, 48, 1000, 48, 48] }, null, { stream: [100, 100] }]);
  const expectItems = async (...sizes) => {
    for (const size of sizes) assert.equal((await host.next()).value.length, size);
    host.send(KIND.PING, 0, 'still there?');
    assert.equal((await host.next()).kind, KIND.PONG);
  };
  await expectItems(48, 48);
  host.send(KIND.CREDIT, 1, [0, 51]);
  await expectItems(48, 1000);
  host.send(KIND.CREDIT, 1, [50, 1002]);
  await expectItems();
  host.send(KIND.CREDIT, 1, [0, 1]);
  await expectItems(48);
  host.send(KIND.CREDIT, 1, [0, 50]);
  assert.equal((await host.next()).value.length, 48);
  assert.equal((await host.next()).kind, KIND.END);
});

withWorker('an async stream and a plain command are streams, too', async (host) => {
  host.send(KIND.CALL, 1, ['tick', { n: 2, ms: 1 }, null, { stream: [9, 1000] }]);
  const kinds = [];
  for (let frames = 0; frames < 3; frames += 1) kinds.push((await host.next()).kind);
  assert.deepEqual(kinds, [KIND.ITEM, KIND.ITEM, KIND.END]);
  host.send(KIND.CALL, 2, ['add', [1, 2], null, { stream: [1, 1] }]);
  assert.equal((await host.next()).value, 3);
  assert.equal((await host.next()).kind, KIND.END);
});

withWorker('a cancelled stream ends, even while it waits for credit', async (host) => {
  host.send(KIND.CALL, 1, ['count', { n: 5 }, null, { stream: [1, 1000] }]);
  assert.equal((await host.next()).value, 0);
  host.send(KIND.CANCEL, 1, 1);
  const { kind, value } = await host.next();
  assert.deepEqual([kind, value.kind], [KIND.ERROR, 'cancelled']);
});

withWorker('a cancel reaches a call that looks, and stage 2 one that does not', async (host) => {
  host.send(KIND.CALL, 1, ['wait', { ms: 60_000 }, null]);
  host.send(KIND.CANCEL, 1, 1);
  assert.equal((await host.next()).value.kind, 'cancelled');
  host.send(KIND.CALL, 2, ['deaf', {}, null]);
  host.send(KIND.CANCEL, 2, 1);
  host.send(KIND.PING, 0, 1);
  assert.equal((await host.next()).kind, KIND.PONG);
  host.send(KIND.CANCEL, 2, 2);
  assert.equal((await host.next()).value.kind, 'cancelled');
  host.send(KIND.CANCEL, 99, 1); // an unknown call is ignored
  assert.equal((await host.call(3, 'add', [1, 1])).value, 2);
});

withWorker('a call whose time is over is not started', async (host) => {
  host.send(KIND.CALL, 1, ['wait', { ms: 30 }, null]);
  host.send(KIND.CALL, 2, ['echo', {}, 1]);
  assert.equal((await host.next()).value, 'done');
  assert.equal((await host.next()).value.kind, 'deadline');
});

withWorker('many calls of one command are one frame each way', async (host) => {
  host.send(KIND.CALLS, 7, ['add', [[1, 2], { a: 3, b: 4 }, [1], ['x', 'y']], null]);
  const { kind, call, value } = await host.next();
  assert.deepEqual([kind, call], [KIND.RESULTS, 7n]);
  assert.deepEqual([value[0], value[1], value[3]], [[true, 3], [true, 7], [true, 'xy']]);
  assert.deepEqual([value[2][0], value[2][1].kind], [false, 'bad_argument']);
});

withWorker('answers that are too long together come in several frames, and one too long by itself fails alone', async (host) => {
  const texts = [4000, 4000, 4000, 10, 20_000, 9900].map((length) => 'x'.repeat(length));
  host.send(KIND.CALLS, 8, ['repeat', texts.map((text) => ['x', text.length]), null]);
  const frames = [];
  do frames.push(await host.next()); while (frames.at(-1).more);
  assert.deepEqual(frames.map(({ kind, call, value }) => [kind, call, value.length]), [2, 2, 1, 1].map((count) => [KIND.RESULTS, 8n, count]));
  const entries = frames.flatMap(({ value }) => value);
  texts.forEach((text, index) => {
    if (index !== 4) assert.deepEqual(entries[index], [true, text]);
  });
  assert.deepEqual([entries[4][0], entries[4][1].kind], [false, 'bad_value']);
  assert.match(entries[4][1].message, /^result: longer than a frame, which holds 10000 bytes/);
}, { max_frame: 10_000 });

withWorker('one call at a time, in order, unless there is room for more', async (host) => {
  host.send(KIND.CALL, 1, ['wait', { ms: 20 }, null]);
  host.send(KIND.CALL, 2, ['add', [1, 2], null]);
  assert.equal((await host.next()).call, 1n);
  assert.equal((await host.next()).call, 2n);
});

withWorker('with room for two, a short call overtakes a long one', async (host) => {
  host.send(KIND.CALL, 1, ['wait', { ms: 60_000 }, null]);
  assert.equal((await host.call(2, 'add', [1, 2])).call, 2n);
}, { concurrency: 2 });

withWorker('the host is asked and answers', async (host) => {
  const { kind, call, value: [id, tool, args] } = await host.call(1, 'ask', { tool: 'lookup', args: { key: 'k' } });
  assert.deepEqual([kind, call, tool, args], [KIND.HOST_CALL, 1n, 'lookup', { key: 'k' }]);
  host.send(KIND.HOST_RESULT, 1, [id, { found: true }]);
  assert.deepEqual((await host.next()).value, { found: true });
  const asked = await host.call(2, 'ask', { tool: 'lookup', args: {} });
  host.send(KIND.HOST_ERROR, 2, [asked.value[0], { kind: 'exception', message: 'no such key' }]);
  const { value } = await host.next();
  assert.deepEqual([value.type, value.message], ['HostError', 'no such key']);
});

withWorker('a nested call is served while its parent waits for the host', async (host) => {
  const { value: [id] } = await host.call(1, 'ask', { tool: 'again', args: {} });
  const nested = await host.call(2, 'add', [20, 22], { nested: 1 });
  assert.deepEqual([nested.call, nested.value], [2n, 42]);
  host.send(KIND.HOST_RESULT, 1, [id, nested.value]);
  assert.equal((await host.next()).value, 42);
});

withWorker('a stream of the host is taken with credit, and given back early', async (host) => {
  const { value: [id, , , options] } = await host.call(1, 'sum', { tool: 'rows', args: {}, limit: 3 });
  assert.ok(options.stream.length === 2 && options.stream.every((count) => count > 0));
  host.send(KIND.HOST_ITEM, 1, [id, 1]);
  assert.deepEqual(await host.next(), { kind: KIND.HOST_CREDIT, call: 1n, bodies: false, value: [id, 1, 3] });
  host.send(KIND.HOST_ITEM, 1, [id, 2]);
  assert.deepEqual((await host.next()).kind, KIND.HOST_CANCEL);
  assert.equal((await host.next()).value, 3);
  const whole = await host.call(2, 'sum', { tool: 'rows', args: {} });
  host.send(KIND.HOST_ITEM, 2, [whole.value[0], 5]);
  host.send(KIND.HOST_END, 2, [whole.value[0]]);
  assert.equal((await host.next()).kind, KIND.HOST_CREDIT);
  assert.equal((await host.next()).value, 5);
});

withWorker('logs and progress belong to their call', async (host) => {
  const log = await host.call(1, 'report', {}, { session: 's-1' });
  assert.deepEqual([log.kind, log.call, log.value], [KIND.LOG, 1n, ['info', 'began', { command: 'report', session: 's-1' }]]);
  assert.deepEqual((await host.next()).value, [0.5, 'half']);
  assert.equal((await host.next()).value, null);
});

withWorker("the engine's own commands are answered", async (host) => {
  assert.equal((await host.call(1, 'snakepit.health')).value, null);
  assert.equal((await host.call(2, 'snakepit.session_end', { session: 's' })).value, null);
});

withWorker('DRAIN finishes what is there, then BYE', async (host) => {
  host.send(KIND.CALL, 1, ['wait', { ms: 20 }, null]);
  host.send(KIND.CALL, 2, ['add', [1, 2], null]);
  host.send(KIND.DRAIN, 0);
  const frames = [await host.next(), await host.next(), await host.next()];
  assert.deepEqual(frames.map((it) => it.kind), [KIND.RESULT, KIND.RESULT, KIND.BYE]);
  assert.equal(await host.exited, 0);
});

withWorker('a worker whose host is gone exits', async (host) => {
  host.send(KIND.CALL, 1, ['deaf', {}, null]);
  host.socket.end();
  assert.equal(await host.exited, 0);
});

for (const [name, hex] of [
  ['a frame that is too long', 'ffffffff010300000100000000000000'],
  ['another version', '00000000020300000100000000000000'],
  ['an unknown kind', '00000000016300000100000000000000'],
  ['an unknown flag', '00000000010302000100000000000000'],
  ['a second HELLO', '010000000101000000000000000000 00c0'.replaceAll(' ', '')],
  ['a frame of the worker', '0100000001040000010000000000000000'],
]) {
  withWorker(`${name} is a fault: a sentence, and the worker exits`, async (host) => {
    host.raw(Buffer.from(hex, 'hex'));
    const { kind, value } = await host.next();
    assert.equal(kind, KIND.FAULT);
    assert.equal(typeof value, 'string');
    assert.equal(await host.exited, 1);
  });
}

test('a worker that cannot start says why', { timeout: 30_000 }, async () => {
  const folder = mkdtempSync(join(tmpdir(), 'snakepit-js-'));
  const program = join(folder, 'broken.mjs');
  const library = new URL('./snakepit.mjs', import.meta.url);
  writeFileSync(program, `import { serve } from '${library}';\nserve(() => import('./absent.mjs'));\n`);
  const host = new Host({ program: `file://${program}` });
  try {
    const { kind, call, value } = await host.hello();
    assert.deepEqual([kind, call, value.kind], [KIND.ERROR, 0n, 'start']);
    assert.match(value.message, /absent\.mjs/);
    assert.notEqual(await host.exited, 0);
  } finally {
    host.end();
    rmSync(folder, { recursive: true });
  }
});

test('the slate names the call that was started last', { timeout: 30_000 }, async () => {
  const folder = mkdtempSync(join(tmpdir(), 'snakepit-js-'));
  const path = join(folder, 'slate');
  writeFileSync(path, Buffer.alloc(4096));
  const slate = openSync(path, 'r+');
  const host = new Host({ slate });
  try {
    const ready = await host.hello();
    assert.deepEqual(ready.value.features, ['slate']);
    await host.call(11, 'add', [1, 2]);
    host.send(KIND.CALLS, 12, ['echo', [1, 2, 3], null]);
    await host.next();
    const page = readFileSync(path);
    const words = [0, 8, 16].map((at) => Number(page.readBigUInt64LE(at)));
    assert.deepEqual(words.slice(0, 2), [12, 3]);
    assert.ok(words[2] >= 1);
  } finally {
    host.end();
    closeSync(slate);
    rmSync(folder, { recursive: true });
  }
});
