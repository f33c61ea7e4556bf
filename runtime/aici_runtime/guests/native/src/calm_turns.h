/* The stepper's side of the usual turn in C; `protocol/calm_turns.py` is the reference. `structures.py` declares the
   same fields in the same order. */
#pragma once

#include "guest_loop.h"
#include "turn_message.h"

/* A sequence of the engine. `slot` NULL: Python serves the sequence. The last fields are those of the running turn. */
struct sequence {
    uint8_t *slot;
    uint32_t seq_id;
    uint32_t pool; /* the number of the pool; NO_POOL: the guest has a process of its own */
    uint32_t turn, kind, backtrack, token;
};

#define NO_POOL UINT32_MAX

struct calm_turns {
    int (*sem_wait)(void *semaphore); /* of the libc that Python has loaded */
    int (*sem_post)(void *semaphore);
    struct mailbox requests, responses;
    struct slot_layout layout;
    struct sequence *sequences; /* by increasing seq_id */
    uint8_t **pools;            /* the slots of the pools */
    uint8_t *rows;              /* the mask region */
    size_t region_bytes;
    uint64_t limit_ns;          /* the longest wait for the guests */
    uint64_t until_ns;          /* later turns are for Python (CLOCK_MONOTONIC) */
    uint64_t started_ns;        /* when the guests of the latest turn had their requests */
    uint32_t num_sequences, num_pools, row_bytes;
    uint32_t is_patient;        /* a turn may shorten the wait */
    uint32_t turn;              /* counts the turns */
    uint32_t engine_core;       /* where the engine's thread ran in the latest turn; NO_CORE: not known */
    uint32_t longest_us;        /* the most that the guests of a turn have computed together */
};

enum turn_outcome {
    NOT_BEGUN, /* the message is for Python, and no guest has heard of the turn */
    BEGUN,     /* the guests have their requests, and not all replies are usual: Python reads the replies */
};
