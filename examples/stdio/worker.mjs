#!/usr/bin/env node
// A worker in Node that speaks spec/stdio.md: many calls at a time, streams, and cancel.
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

const commands = {
  add: ({ a, b }) => a + b,
  nap: ({ seconds }, signal) => sleep(seconds * 1000, `slept ${seconds} s`, { signal }),
  async *count({ n }, signal) {
    for (let i = 0; i < n; i++) {
      signal.throwIfAborted();
      yield i;
    }
  },
};

const underWay = new Map();
const say = (message) => process.stdout.write(JSON.stringify(message) + "\n");

async function serve({ id, command, args }) {
  const controller = new AbortController();
  underWay.set(id, controller);
  try {
    if (!Object.hasOwn(commands, command)) throw Object.assign(new Error(`no command ${command}`), { kind: "unknown_command" });
    const result = await commands[command](args, controller.signal);
    if (result?.[Symbol.asyncIterator]) {
      for await (const item of result) say({ id, item });
      say({ id, end: true });
    } else say({ id, result: result ?? null });
  } catch ({ kind, name, message, stack }) {
    say({ id, error: { kind, type: name, message, traceback: stack } });
  }
  underWay.delete(id);
}

createInterface({ input: process.stdin })
  .on("line", (line) => { const message = JSON.parse(line); message.cancel ? underWay.get(message.cancel)?.abort() : serve(message); })
  .on("close", () => process.exit());
say({ status: "ready", pid: process.pid, language: `Node ${process.version}`, commands: Object.keys(commands), features: ["safe-integers"] });
