/* Answer a request of the stepper, as `workers/guest_server.py` and `guests/driver_v1.py` do. */
#include <string.h>
#include <time.h>

#include "guest_loop.h"
#include "words.h"

enum operation { MID, PRE, POST, TURN };

struct head {
    uint32_t operation, seq_id, row, backtrack;
};

/* The results of guests that say nothing, and of pre as the runtime writes it: `driver.py`, `driver_v1.py`. */
#define DOES_NOT_STOP "{\"stop\":false}"
#define GUEST_GOES_ON "{\"num_forks\":1,\"suspend\":false,\"ff_tokens\":[]}"
#define GOES_ON "{\"suspend\":false,\"num_forks\":1,\"ff_tokens\":[]}"
#define SAMPLES "{\"SampleWithBias\":{}}"

#define TEXT(literal) (const uint8_t *)(literal), (uint32_t)(sizeof(literal) - 1)

static uint8_t *put(uint8_t *to, const uint8_t *from, size_t length) {
    memcpy(to, from, length);
    return to + length;
}

static uint8_t *put_word(uint8_t *to, uint32_t word) { return put(to, (const uint8_t *)&word, sizeof word); }

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Write a result without error, log and variables: `_plain` in `driver.py`. */
static uint8_t *put_result(uint8_t *to, const uint8_t *result, uint32_t length, uint64_t started_ns) {
    to = put(to, TEXT("{\"error\":\"\",\"result\":"));
    to = put(to, result, length);
    to = put(to, TEXT(",\"storage\":[],\"logs\":\"\",\"micros\":"));
    to = put_number(to, (now_ns() - started_ns) / 10000 * 10);
    return put(to, TEXT("}"));
}

/* Run a callback whose argument is in `host->argument`. Return whether the guest has answered with `usual`, and nothing
   else needs Python. */
static int call(struct host *host, struct guest *guest, const void *function, const uint8_t *usual,
                uint32_t usual_len) {
    struct call *made = &guest->calls[guest->num_calls++];
    __atomic_store_n(guest->interrupted, 0, __ATOMIC_RELEASE); /* an interrupt after the end of the intended call */
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* either the watchdog interrupts after the store, or the word is seen */
    if (load(guest->slot, host->layout.leave) != 0) {
        *made = (struct call){0};
        return 0;
    }
    value values[2] = {{.i32 = guest->handle}};
    host->has_result = host->has_mask = host->has_used_python = 0;
    host->takes_mask = function == guest->mid;
    running = guest;
    made->trap = NULL;
    made->elapsed_ns = now_ns();
    made->error = host->wasmtime.func_call_unchecked(guest->context, function, values, 2, &made->trap);
    made->elapsed_ns = now_ns() - made->elapsed_ns;
    running = NULL;
    made->has_mask = host->has_mask;
    made->result_len = (uint32_t)host->result_len;
    made->result = host->has_result ? host->result : NULL;
    if (made->error != NULL || made->trap != NULL || !host->has_result || host->has_used_python ||
        host->result_len != usual_len || memcmp(host->result, usual, usual_len) != 0) {
        return 0;
    }
    made->result = usual; /* `host->result` is the next call's */
    return 1;
}

static int call_post(struct host *host, struct guest *guest, const uint8_t *tokens, size_t length,
                     uint32_t backtrack) {
    uint8_t *end = put(host->argument, TEXT("{\"tokens\":"));
    end = put(end, tokens, length);
    end = put(end, TEXT(",\"backtrack\":"));
    /* The engine counts the sampled token, which was never appended; the guest never saw the token. */
    end = put_number(end, backtrack != 0 ? backtrack - 1 : 0);
    end = put(end, TEXT("}"));
    host->argument_len = (size_t)(end - host->argument);
    return call(host, guest, guest->post, TEXT(DOES_NOT_STOP));
}

static int call_pre(struct host *host, struct guest *guest) {
    host->argument_len = (size_t)(put(host->argument, TEXT("{}")) - host->argument);
    return call(host, guest, guest->pre, TEXT(GUEST_GOES_ON));
}

static int call_mid(struct host *host, struct guest *guest, const uint8_t *fork_group, size_t length) {
    uint8_t *end = put(host->argument, TEXT("{\"fork_group\":"));
    if (fork_group != NULL) {
        end = put(end, fork_group, length);
    } else {
        *end++ = '[';
        end = put_number(end, guest->seq_id);
        *end++ = ']';
    }
    end = put(end, TEXT("}"));
    host->argument_len = (size_t)(end - host->argument);
    return call(host, guest, guest->mid, TEXT(SAMPLES));
}

static int is_cancelled(const struct host *host, const uint8_t *slot) {
    uint32_t number = load(slot, host->layout.number);
    return number != 0 && load(slot, host->layout.cancelled) == number;
}

static int is_detached(const struct host *host, const uint8_t *slot) {
    uint32_t number = load(slot, host->layout.detached);
    return number != 0 && load(slot, host->layout.number) == number;
}

/* `WorkerSlot.start_mask_write` */
static int start_mask_write(const struct host *host, uint8_t *slot) {
    if (is_detached(host, slot)) {
        return 0;
    }
    store(slot, host->layout.writing, load(slot, host->layout.number));
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* either the stepper sees the word above, or the loop the word below */
    if (is_detached(host, slot)) {
        store(slot, host->layout.writing, 0);
        return 0;
    }
    return 1;
}

/* Write the mask of the latest call as a row. */
static void put_mask(const struct host *host, uint8_t *slot) {
    const struct mask_format *format = &host->format;
    const uint8_t *bits = format->without_bias;
    uint8_t *to = slot + host->layout.mask;
    if (host->has_mask) {
        uint32_t whole = format->vocab_size / 8, rest = format->vocab_size % 8;
        if (rest != 0) {
            host->mask[whole++] &= (uint8_t)((1u << rest) - 1);
        }
        memset(host->mask + whole, 0, format->mask_bytes - whole);
        bits = host->mask;
    }
    switch (format->element_bytes) {
    case 0:
        memcpy(to, bits, format->mask_bytes);
        break;
    case 2:
        for (uint32_t k = 0; k < format->vocab_size; k++) {
            ((uint16_t *)(void *)to)[k] = bits[k / 8] >> k % 8 & 1 ? 0 : (uint16_t)format->denied;
        }
        break;
    default:
        for (uint32_t k = 0; k < format->vocab_size; k++) {
            ((uint32_t *)(void *)to)[k] = bits[k / 8] >> k % 8 & 1 ? 0 : format->denied;
        }
    }
}

/* Write the rest of the response: that of a mid whose mask is in the slot. */
static uint8_t *put_mid(uint8_t *to, uint64_t started_ns) {
    uint8_t *end = put_result(to + 8, TEXT("null"), started_ns);
    to = put_word(to, 1 | 1 << 16); /* a mask, already written */
    put_word(to, (uint32_t)(end - to - 4));
    return end;
}

static enum outcome finish(struct host *host, struct guest *guest, const uint8_t *end) {
    uint8_t *slot = guest->slot;
    aici_lock_guests(&host->lock);
    __atomic_store_n(&guest->is_busy, 0, __ATOMIC_RELEASE);
    aici_unlock_guests(&host->lock);
    guest->num_calls = 0;
    store(slot, host->layout.request, 0);
    store(slot, host->layout.response, (uint32_t)(end - slot - host->layout.response_bytes));
    return ANSWERED;
}

enum outcome serve(struct host *host, struct guest *guest) {
    uint8_t *slot = guest->slot, *end = slot + host->layout.response_bytes;
    const uint8_t *request = slot + host->layout.request_bytes, *rest = request + sizeof(struct head);
    size_t length = load(slot, host->layout.request) - sizeof(struct head);
    struct head head;
    memcpy(&head, request, sizeof head);
    guest->num_calls = 0;
    if (head.operation > TURN || !guest->is_usual || length > host->request_max) {
        return FOR_PYTHON;
    }
    __atomic_store_n(&guest->is_busy, 1, __ATOMIC_RELEASE);
    if (head.operation != MID) {
        int is_turn = head.operation == TURN, has_post = head.operation == POST || (is_turn && length != 0);
        uint8_t *start = end;
        guest->seq_id = head.seq_id;
        end += 4;
        uint64_t started_ns = now_ns();
        if (has_post && !call_post(host, guest, rest, length, head.backtrack)) {
            return FOR_PYTHON;
        }
        if (has_post && !is_turn) {
            end = put_result(end, TEXT(DOES_NOT_STOP), started_ns);
            started_ns = now_ns();
        }
        put_word(start, (uint32_t)(end - start - 4)); /* in a turn 0: post and pre say nothing but to go on */
        if (!call_pre(host, guest)) {
            return FOR_PYTHON;
        }
        if (!is_turn) {
            return finish(host, guest, put_result(end, TEXT(GOES_ON), started_ns));
        }
        if (is_cancelled(host, slot)) {
            return FOR_PYTHON;
        }
        store(slot, host->layout.mid_started, (uint32_t)(now_ns() / 1000000) & 0x7FFFFFFF ?: 1);
    }
    uint64_t started_ns = now_ns();
    if (!call_mid(host, guest, head.operation == MID ? rest : NULL, length) || !start_mask_write(host, slot)) {
        return FOR_PYTHON;
    }
    put_mask(host, slot);
    return finish(host, guest, put_mid(end, started_ns));
}
