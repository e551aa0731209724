// Errors of a call, and the map in which they are sent.

import { BadPayload, BadValue } from './values.mjs';

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

/** The error of a host's tool. `error` is the map that the host sent. */
export class HostError extends Error {
  name = 'HostError';

  constructor(error) {
    super(error?.message ?? 'a tool of the host failed');
    this.error = error;
  }
}

/** Returns the map of spec/wire.md, section Errors. */
export function errorMap(error, depth = 0) {
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

/** Replaces letters that cannot be sent, so that the text of an error can be. */
const wellFormed = (text) => text.replace(/\p{Surrogate}/gu, '\ufffd');
