// A request that cannot be answered; its message says what is wrong, as those of the server do.
export class RequestError extends Error {}
