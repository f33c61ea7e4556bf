/* Turns in binary form (`turn_message.py`), and the mailboxes under semaphores that carry them
   (`channels/semaphore_mailbox.py`). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define MAGIC "\xfftrn"
#define NO_PATIENCE UINT32_MAX
#define NO_CORE UINT32_MAX
#define MAX_OPS 512 /* of a usual turn */

struct mailbox {
    uint8_t *memory; /* a u32, the length of the message, then the message */
    size_t size;
    void *writable, *readable;
};

/* The doubles follow the words without padding. */
struct header {
    char magic[4] __attribute__((nonstring));
    uint32_t posts, tokens, pre_ops, asked, ops, clones, freed, hurried, name_bytes, core;
    uint8_t most_s[8], hurried_s[8];
};

/* The microseconds of each op follow. */
struct answer_head {
    char magic[4] __attribute__((nonstring));
    uint32_t ops;
};
