/* The loop of a worker in C: the usual requests of the stepper to guests of ABI v1, without Python. Whatever is not
   usual is left to Python, which calls this code and is the reference: every answer has the bytes that Python writes.

   Python fills the structs; `structures.py` declares the same fields in the same order. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

/* wasmtime_val_raw_t */
typedef union {
    uint32_t i32;
    uint64_t i64[2];
} value;

/* wasmtime_func_unchecked_callback_t; returns a trap or NULL */
typedef void *(*callback)(void *env, void *caller, value *values, size_t num_values);

/* Functions of the wasmtime library that Python has loaded. */
struct wasmtime {
    void *(*func_call_unchecked)(void *context, const void *function, value *values, size_t num_values, void **trap);
    uint8_t *(*memory_data)(void *context, const void *memory);
    size_t (*memory_data_size)(void *context, const void *memory);
};

/* Byte offsets in a worker slot; see `memory/worker_slots.py`. */
struct slot_layout {
    uint32_t request, response, cancelled, number, detached, writing, bell, answered, leave, mid_started;
    uint32_t request_bytes, response_bytes, mask, gone;
};

/* How a row of the mask region encodes the bits of a mask. */
struct mask_format {
    uint32_t mask_bytes;    /* of a mask of bits */
    uint32_t vocab_size;
    uint32_t element_bytes; /* 0: a row is a mask of bits, of mask_bytes */
    uint32_t denied;        /* the bits of the element of a token that is not allowed; 0 means allowed */
    const uint8_t *without_bias; /* the mask of a guest that returns none */
};

/* A call of a guest's callback. The strings belong to the loop and last until the next call. */
struct call {
    void *error, *trap;
    const uint8_t *result; /* NULL: none */
    uint32_t result_len;
    uint32_t has_mask;
    uint64_t elapsed_ns;
};

/* A guest. Python may change a guest while the loop does not run. */
struct guest {
    void *context;
    const void *memory, *post, *pre, *mid;
    uint8_t *memory_data;
    uint32_t *interrupted; /* 1 = the running call is to end */
    uint8_t *slot;
    uint32_t handle;
    uint32_t number;       /* for `attend` */
    uint32_t seq_id;
    uint32_t is_busy;      /* at work on a request, may be interrupted; cleared under the lock */
    uint32_t is_usual;     /* the guest has not failed, and neither log nor variables wait for an answer */
    uint32_t num_calls;    /* made for the request that Python is to answer */
    struct call calls[3];
};

/* One per process. */
struct host {
    struct wasmtime wasmtime;
    struct slot_layout layout;
    struct mask_format format;
    uint32_t request_max, result_max, process_arg;
    uint32_t lock;               /* the watchdog's: 0 = free, 1 = taken, 2 = taken and waited for */
    void (*attend)(uint32_t number); /* Python: the host functions in Python act for this guest now */
    callback refuse;             /* Python: values 0 and 1 are out of range; returns the trap */
    uint8_t *argument, *result, *mask; /* of request_max + 64, result_max and mask_bytes bytes */
    /* The call of `running`. */
    size_t argument_len, result_len;
    uint32_t has_result, has_mask, takes_mask, has_used_python;
};

/* The environment of a host function: the same function in Python. */
struct host_function {
    struct host *host;
    callback python;
};

/* A pool. `in_round`: the bell was heard, and not all requests are answered. `has_news`: Python knows of further
   guests; another thread sets the word. */
struct pool {
    uint8_t *slot;
    struct guest **guests;
    uint32_t num_guests, heard, in_round, has_news;
};

/* The guest that runs in the loop on this thread; NULL: another thread starts guests meanwhile. */
extern __thread struct guest *running;

enum outcome { ANSWERED, FOR_PYTHON };

void aici_lock_guests(uint32_t *lock);
void aici_unlock_guests(uint32_t *lock);

enum outcome serve(struct host *host, struct guest *guest);
