/* Serve the usual turns of an engine: send n requests, wait for n replies, copy n masks. Returns to Python at the first
   message that is not usual, and leaves that message in the mailbox. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "calm_turns.h"
#include "turn_message.h"
#include "words.h"

#define DEAD UINT32_MAX

/* The operations of a worker; TOLD is a turn with a token. */
enum kind { MID = 0, TURN = 3, TOLD };

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint32_t word_at(const uint8_t *words, uint32_t index) {
    uint32_t word;
    memcpy(&word, words + 4 * (size_t)index, sizeof word);
    return word;
}

static struct sequence *find(const struct calm_turns *turns, uint32_t seq_id) {
    uint32_t from = 0, to = turns->num_sequences;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        if (turns->sequences[middle].seq_id < seq_id) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    int is_there = from < turns->num_sequences && turns->sequences[from].seq_id == seq_id;
    return is_there && turns->sequences[from].slot != NULL ? &turns->sequences[from] : NULL;
}

/* Read a message as `decode_calm` and `CalmTurns.begin` do. Return the number of ops; 0 if the turn is not usual. */
static uint32_t read_turn(struct calm_turns *turns, const uint8_t *message, size_t length, struct header *header,
                          struct sequence **ops) {
    if (length < sizeof *header) {
        return 0;
    }
    memcpy(header, message, sizeof *header);
    int is_hurried = header->hurried != NO_PATIENCE && header->hurried != 0;
    if (memcmp(header->magic, MAGIC, sizeof header->magic) != 0 || header->tokens != header->posts ||
        header->pre_ops != 0 || header->clones != 0 || header->freed != 0 || header->name_bytes != 0 || is_hurried ||
        header->ops > MAX_OPS || header->asked > header->ops || header->posts > header->asked ||
        header->ops * (size_t)turns->row_bytes >= turns->region_bytes) {
        return 0;
    }
    uint32_t posts = header->posts, asked_at = 4 * posts, ops_at = asked_at + header->asked;
    const uint8_t *words = message + sizeof *header;
    if (length != sizeof *header + 4 * ((size_t)ops_at + header->ops)) {
        return 0;
    }
    turns->turn++;
    for (uint32_t k = 0; k < header->ops; k++) {
        struct sequence *sequence = ops[k] = find(turns, word_at(words, ops_at + k));
        if (sequence == NULL || sequence->turn == turns->turn) {
            return 0;
        }
        sequence->turn = turns->turn;
        sequence->kind = MID;
    }
    for (uint32_t k = 0; k < header->asked; k++) {
        struct sequence *sequence = find(turns, word_at(words, asked_at + k));
        if (sequence == NULL || sequence->turn != turns->turn || sequence->kind != MID) {
            return 0;
        }
        sequence->kind = TURN;
    }
    for (uint32_t k = 0; k < posts; k++) {
        struct sequence *sequence = find(turns, word_at(words, k));
        if (sequence == NULL || sequence->turn != turns->turn || sequence->kind != TURN ||
            word_at(words, 2 * posts + k) != 1) {
            return 0;
        }
        sequence->kind = TOLD;
        sequence->backtrack = word_at(words, posts + k);
        sequence->token = word_at(words, 3 * posts + k);
    }
    return header->ops;
}

static uint8_t *put_list(uint8_t *to, uint32_t number) {
    *to++ = '[';
    to = put_number(to, number);
    *to++ = ']';
    return to;
}

/* `WorkerHandle.send_request` of the request that `worker_requests.py` describes */
static void send_request(const struct calm_turns *turns, const struct sequence *sequence, uint32_t row) {
    const struct slot_layout *layout = &turns->layout;
    uint8_t *slot = sequence->slot, *request = slot + layout->request_bytes;
    int is_mid = sequence->kind == MID, is_told = sequence->kind == TOLD;
    uint32_t head[4] = {is_mid ? MID : TURN, is_mid ? 0 : sequence->seq_id, row, is_told ? sequence->backtrack : 0};
    memcpy(request, head, sizeof head);
    uint8_t *end = request + sizeof head;
    if (sequence->kind != TURN) {
        end = put_list(end, is_told ? sequence->token : sequence->seq_id);
    }
    store(slot, layout->number, (load(slot, layout->number) + 1) & 0x7FFFFFFF);
    store(slot, layout->response, 0);
    store(slot, layout->mid_started, 0);
    store(slot, layout->request, (uint32_t)(end - request));
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* either the supervisor sees no response, or the stepper sees the death */
    if (load(slot, layout->gone) != 0) {
        store(slot, layout->response, DEAD);
    }
    if (sequence->pool == NO_POOL) {
        wake(slot, layout->request);
    }
}

/* `GuestPools.ring` */
static void ring_pools(const struct calm_turns *turns, struct sequence *const *ops, uint32_t num_ops) {
    for (uint32_t pool = 0; pool < turns->num_pools; pool++) {
        for (uint32_t row = 0; row < num_ops; row++) {
            if (ops[row]->pool == pool) {
                uint8_t *slot = turns->pools[pool];
                __atomic_store_n(slot + turns->layout.bell, slot[turns->layout.bell] + 1, __ATOMIC_RELEASE); /* BY_STEPPER */
                wake(slot, turns->layout.bell);
                break;
            }
        }
    }
}

/* Wait for a response until `deadline_ns`. Return its length; 0 without a response, and for a dead worker. */
static uint32_t wait_response(const struct calm_turns *turns, const struct sequence *sequence, uint64_t deadline_ns) {
    const struct slot_layout *layout = &turns->layout;
    int is_pooled = sequence->pool != NO_POOL;
    uint8_t *waited = is_pooled ? turns->pools[sequence->pool] : sequence->slot;
    uint32_t offset = is_pooled ? layout->answered : layout->response;
    struct timespec until = {(time_t)(deadline_ns / 1000000000u), (long)(deadline_ns % 1000000000u)};
    for (;;) {
        uint32_t seen = load(waited, offset), length = load(sequence->slot, layout->response);
        if (length != 0) {
            return length == DEAD ? 0 : length;
        }
        /* The time of this futex operation is absolute, on CLOCK_MONOTONIC. */
        long result = syscall(SYS_futex, waited + offset, FUTEX_WAIT_BITSET, is_pooled ? seen : 0, &until, NULL,
                              FUTEX_BITSET_MATCH_ANY);
        if (result != 0 && errno == ETIMEDOUT) {
            length = load(sequence->slot, layout->response);
            return length == DEAD ? 0 : length;
        }
    }
}

/* `usual_turn_reply` and `usual_mid_reply` in `worker_results.py`. Return the microseconds; -1 for other replies. */
static int64_t usual_micros(const uint8_t *reply, uint32_t length, int is_turn) {
    static const char form[] = "{\"error\":\"\",\"result\":null,\"storage\":[],\"logs\":\"\",\"micros\":";
    const uint32_t form_at = (is_turn ? 4 : 0) + 8, digits_at = form_at + sizeof form - 1;
    uint8_t copy[96]; /* the worker may change the reply while the stepper reads */
    if (length > sizeof copy || length < digits_at + 2) {
        return -1;
    }
    memcpy(copy, reply, length);
    if ((is_turn && memcmp(copy, "\0\0\0\0", 4) != 0) || memcmp(copy + form_at - 8, "\1\0\1\0", 4) != 0 ||
        memcmp(copy + form_at, form, sizeof form - 1) != 0 || copy[length - 1] != '}') {
        return -1;
    }
    uint32_t num_digits = length - 1 - digits_at;
    if (num_digits > 9 || (copy[digits_at] == '0' && num_digits > 1)) {
        return -1;
    }
    int64_t micros = 0;
    for (uint32_t k = digits_at; k < length - 1; k++) {
        if (copy[k] < '0' || copy[k] > '9') {
            return -1;
        }
        micros = 10 * micros + copy[k] - '0';
    }
    return micros;
}

static uint64_t wait_ns(const struct calm_turns *turns, const struct header *header) {
    double most_s;
    memcpy(&most_s, header->most_s, sizeof most_s);
    if (!turns->is_patient || header->hurried == NO_PATIENCE || !(most_s * 1e9 < (double)turns->limit_ns)) {
        return turns->limit_ns;
    }
    return most_s > 0 ? (uint64_t)(most_s * 1e9) : 0;
}

/* Serve a turn. On success, return the number of ops, with the microseconds of each; 0 otherwise. */
static uint32_t serve_turn(struct calm_turns *turns, const uint8_t *message, size_t length, uint32_t *micros,
                           enum turn_outcome *outcome) {
    struct header header;
    struct sequence *ops[MAX_OPS];
    *outcome = NOT_BEGUN;
    uint32_t num_ops = read_turn(turns, message, length, &header, ops);
    if (num_ops == 0 || 4 + sizeof(struct answer_head) + 4 * (size_t)num_ops > turns->responses.size) {
        return 0;
    }
    *outcome = BEGUN;
    if (header.core != NO_CORE) {
        turns->engine_core = header.core;
    }
    for (uint32_t row = 0; row < num_ops; row++) {
        send_request(turns, ops[row], row);
    }
    ring_pools(turns, ops, num_ops);
    turns->started_ns = now_ns();
    uint64_t deadline_ns = turns->started_ns + wait_ns(turns, &header);
    uint32_t spent_us = 0;
    for (uint32_t row = num_ops; row-- > 0;) { /* the last first: by then most workers have replied */
        const uint8_t *slot = ops[row]->slot;
        uint32_t reply_len = wait_response(turns, ops[row], deadline_ns);
        int64_t spent = usual_micros(slot + turns->layout.response_bytes, reply_len, ops[row]->kind != MID);
        if (spent < 0) {
            return 0;
        }
        micros[row] = (uint32_t)spent;
        spent_us += (uint32_t)spent;
        memcpy(turns->rows + row * (size_t)turns->row_bytes, slot + turns->layout.mask, turns->row_bytes);
    }
    turns->longest_us = spent_us > turns->longest_us ? spent_us : turns->longest_us;
    return num_ops;
}

static void wait_semaphore(const struct calm_turns *turns, void *semaphore) {
    while (turns->sem_wait(semaphore) != 0) {
        /* A signal: its handler is in the thread of the supervisor. */
    }
}

static void put_answer(const struct calm_turns *turns, const uint32_t *micros, uint32_t num_ops) {
    const struct mailbox *mailbox = &turns->responses;
    struct answer_head head = {MAGIC, num_ops};
    uint32_t length = sizeof head + 4 * num_ops;
    wait_semaphore(turns, mailbox->writable);
    memcpy(mailbox->memory, &length, sizeof length);
    memcpy(mailbox->memory + 4, &head, sizeof head);
    memcpy(mailbox->memory + 4 + sizeof head, micros, 4 * (size_t)num_ops);
    turns->sem_post(mailbox->readable);
}

/* Serve turns until a message is for Python. The message is in the mailbox, unread. */
EXPORT uint32_t aici_serve_turns(struct calm_turns *turns) {
    const struct mailbox *mailbox = &turns->requests;
    uint32_t micros[MAX_OPS], length, empty = 0;
    enum turn_outcome outcome;
    for (;;) {
        wait_semaphore(turns, mailbox->readable);
        memcpy(&length, mailbox->memory, sizeof length);
        uint32_t num_ops = 0;
        outcome = NOT_BEGUN;
        if (length <= mailbox->size - 4 && now_ns() < turns->until_ns) {
            num_ops = serve_turn(turns, mailbox->memory + 4, length, micros, &outcome);
        }
        if (num_ops == 0) {
            turns->sem_post(mailbox->readable);
            return outcome;
        }
        memcpy(mailbox->memory, &empty, sizeof empty);
        turns->sem_post(mailbox->writable);
        put_answer(turns, micros, num_ops);
    }
}
