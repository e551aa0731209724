// The host's side of the wire: just enough for the tests of the worker.

import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

import { FrameReader, KIND, frame } from './frames.mjs';
import { Reader } from './values.mjs';

export class Host {
  #frames = [];
  #waiting = null;
  #ended = false;

  constructor({ program = './worker.mjs', slate } = {}) {
    const path = fileURLToPath(new URL(program, import.meta.url));
    const env = { ...process.env, SNAKEPIT_FD: '3', ...(slate === undefined ? {} : { SNAKEPIT_SLATE_FD: '4' }) };
    // For a 'pipe', Node creates a pair of connected Unix sockets.
    const stdio = ['ignore', 'ignore', 'pipe', 'pipe', ...(slate === undefined ? [] : [slate])];
    this.child = spawn(process.execPath, [path], { stdio, env });
    this.socket = this.child.stdio[3];
    this.stderr = '';
    this.child.stderr.on('data', (text) => (this.stderr += text));
    this.exited = new Promise((resolve) => this.child.on('exit', (code, signal) => resolve(signal ?? code)));
    const reader = new FrameReader((received) => this.#push(received));
    reader.maxFrame = 64 << 20;
    this.socket.on('data', (chunk) => reader.push(chunk));
    this.socket.on('error', () => {});
    this.socket.on('close', () => {
      this.#ended = true;
      this.#waiting?.();
    });
  }

  #push({ kind, call, bodies, more, payload }) {
    const value = payload.length === 0 ? undefined : Reader.payload(payload, bodies, 2);
    this.#frames.push({ kind, call, bodies, ...(more ? { more } : {}), value });
    this.#waiting?.();
  }

  /** Returns the next frame, or undefined when the worker has closed the socket. */
  async next() {
    while (this.#frames.length === 0 && !this.#ended) {
      await new Promise((resolve) => (this.#waiting = resolve));
    }
    return this.#frames.shift();
  }

  send(kind, call, ...value) {
    this.raw(Buffer.concat(frame(kind, BigInt(call), ...value)));
  }

  raw(bytes) {
    this.socket.write(bytes);
  }

  async hello(more = {}) {
    const hello = { protocol: 1, engine: 'test', pool: 'p', worker: 'p-1', concurrency: 1, max_frame: 1 << 20 };
    this.send(KIND.HELLO, 0, { ...hello, ...more });
    return this.next();
  }

  /** Makes a call, and returns its answer. */
  async call(id, command, args = {}, options = undefined) {
    this.send(KIND.CALL, id, [command, args, null, ...(options ? [options] : [])]);
    return this.next();
  }

  end() {
    this.child.kill('SIGKILL');
  }
}
