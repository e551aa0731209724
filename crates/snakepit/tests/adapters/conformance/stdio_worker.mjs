// The worker of docs/adapters-contract.md over lines of JSON (spec/stdio.md) in plain JavaScript, as far as its numbers
// and texts allow: what a newcomer writes after reading the specification, with JSON.parse and JSON.stringify.
import { createInterface } from "node:readline";

class ConformanceError extends Error {
  name = "ConformanceError";
}

function deep_inside(message) {
  throw new ConformanceError(message);
}

const commands = {
  echo: ({ value }) => value,
  add: ({ a, b }) => a + b,
  fail: ({ message }) => deep_inside(message),
};

const say = (message) => process.stdout.write(JSON.stringify(message) + "\n");

function serve({ id, command, args }) {
  try {
    if (!Object.hasOwn(commands, command)) {
      const message = `there is no command ${command}; there is ${Object.keys(commands).join(", ")}`;
      return say({ id, error: { kind: "unknown_command", type: "UnknownCommand", message } });
    }
    say({ id, result: commands[command](args) });
  } catch ({ name, message, stack }) {
    say({ id, error: { type: name, message, traceback: stack } });
  }
}

const way = process.env.CONFORMANCE_WAY ?? "ready";
if (way === "ends-before-ready") {
  process.stderr.write("no, thank you\n", () => process.exit(3));
} else if (way === "never-ready") {
  setInterval(() => {}, 1 << 30);
} else {
  createInterface({ input: process.stdin })
    .on("line", (line) => {
      const message = JSON.parse(line);
      if (!message.cancel) serve(message);
    })
    .on("close", () => process.exit());
  say({
    status: "ready",
    pid: process.pid,
    commands: Object.keys(commands),
    language: `Node ${process.version}`,
    features: ["safe-integers"],
  });
}
