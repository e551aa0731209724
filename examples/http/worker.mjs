// A worker in Node: `snakepit::http(["node", "worker.mjs"])`. Its commands are `add` and `echo`.
import http from "node:http";

const commands = {
  add: ({ a, b }) => a + b,
  echo: (args) => args,
};

const server = http.createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const command = commands[request.url.slice(1)];
  const answer = command ? command(JSON.parse(Buffer.concat(chunks))) : { detail: "Not Found" };
  response.writeHead(command ? 200 : 404, { "content-type": "application/json" });
  response.end(JSON.stringify(answer));
});

// The directory is private to this user.
const socket = process.env.SNAKEPIT_SOCKET;
server.listen(socket, () => {
  console.log(JSON.stringify({ status: "ready", socket, pid: process.pid, commands: Object.keys(commands), features: ["safe-integers"] }));
});
