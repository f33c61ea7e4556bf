"""The mailboxes between an engine and the runtime, over shared memory."""
