/* Serve the usual turns of an engine: send n requests, wait for n replies, copy the masks. Some guests only hear of a
   token, mostly of the last one, and give no mask: their results are in the JSON of the answer. Returns to Python at the
   first message that is not usual, and leaves that message in the mailbox. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "calm_turns.h"
#include "turn_message.h"
#include "words.h"

#define DEAD UINT32_MAX

/* The operations of a worker; TOLD is a turn with a token. PRE and POST give no mask: POST tells of a token. */
enum kind { MID, PRE, POST, TURN, TOLD };

/* The most sequences of a turn that give no mask, and the most bytes of their results of post and of pre: alone, and as
   an entry of the answer. */
enum { MAX_TOLD = 64, RESULT_MAX = 128, ENTRY_MAX = RESULT_MAX + 16 };

/* `ops`: first the sequences with rows, then those without. */
struct turn {
    struct header header;
    struct sequence *ops[MAX_OPS + MAX_TOLD];
    uint32_t num_rows, num_ops, micros[MAX_OPS];
    uint8_t post[MAX_TOLD * ENTRY_MAX], pre[MAX_TOLD * ENTRY_MAX]; /* entries of JSON, joined by commas */
    uint32_t post_len, pre_len;
};

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

/* Read a message as `decode_calm` and `CalmTurns.begin` do, and guests that are asked for no mask besides. Return 0 if
   the turn is not usual. */
static int read_turn(struct calm_turns *turns, const uint8_t *message, size_t length, struct turn *turn) {
    struct header *header = &turn->header;
    if (length < sizeof *header) {
        return 0;
    }
    memcpy(header, message, sizeof *header);
    int is_hurried = header->hurried != NO_PATIENCE && header->hurried != 0;
    if (memcmp(header->magic, MAGIC, sizeof header->magic) != 0 || header->tokens != header->posts ||
        header->pre_ops != 0 || header->clones != 0 || header->freed != 0 || header->name_bytes != 0 || is_hurried ||
        header->ops > MAX_OPS || header->asked > MAX_OPS || header->posts > header->asked ||
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
        struct sequence *sequence = turn->ops[k] = find(turns, word_at(words, ops_at + k));
        if (sequence == NULL || sequence->turn == turns->turn) {
            return 0;
        }
        sequence->turn = turns->turn;
        sequence->kind = MID;
    }
    turn->num_rows = turn->num_ops = header->ops;
    for (uint32_t k = 0; k < header->asked; k++) {
        struct sequence *sequence = find(turns, word_at(words, asked_at + k));
        if (sequence == NULL) {
            return 0;
        }
        if (sequence->turn != turns->turn) {
            if (turn->num_ops == turn->num_rows + MAX_TOLD) {
                return 0;
            }
            turn->ops[turn->num_ops++] = sequence;
            sequence->turn = turns->turn;
            sequence->kind = PRE;
        } else if (sequence->kind == MID) {
            sequence->kind = TURN;
        } else {
            return 0;
        }
    }
    for (uint32_t k = 0; k < posts; k++) {
        struct sequence *sequence = find(turns, word_at(words, k));
        if (sequence == NULL || sequence->turn != turns->turn || (sequence->kind != TURN && sequence->kind != PRE) ||
            word_at(words, 2 * posts + k) != 1) {
            return 0;
        }
        sequence->kind = sequence->kind == TURN ? TOLD : POST;
        sequence->backtrack = word_at(words, posts + k);
        sequence->token = word_at(words, 3 * posts + k);
    }
    return turn->num_ops != 0;
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
    int is_mid = sequence->kind == MID, is_told = sequence->kind == TOLD || sequence->kind == POST;
    uint32_t head[4] = {sequence->kind == TOLD ? TURN : sequence->kind, is_mid ? 0 : sequence->seq_id, row,
                        is_told ? sequence->backtrack : 0};
    memcpy(request, head, sizeof head);
    uint8_t *end = request + sizeof head;
    if (is_mid || is_told) {
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

/* Match a result without error, log and variables: `form`, then its microseconds. Return them; -1 for other results. */
static int64_t micros_of(const uint8_t *result, uint32_t length, const char *form) {
    uint32_t form_len = (uint32_t)strlen(form);
    if (length < form_len + 2 || memcmp(result, form, form_len) != 0 || result[length - 1] != '}') {
        return -1;
    }
    const uint8_t *digits = result + form_len;
    uint32_t num_digits = length - 1 - form_len;
    if (num_digits > 9 || (digits[0] == '0' && num_digits > 1)) {
        return -1;
    }
    int64_t micros = 0;
    for (uint32_t k = 0; k < num_digits; k++) {
        if (digits[k] < '0' || digits[k] > '9') {
            return -1;
        }
        micros = 10 * micros + digits[k] - '0';
    }
    return micros;
}

#define FORM(result) "{\"error\":\"\",\"result\":" result ",\"storage\":[],\"logs\":\"\",\"micros\":"

/* `usual_turn_reply` and `usual_mid_reply` in `worker_results.py`. Return the microseconds; -1 for other replies. */
static int64_t usual_micros(const uint8_t *reply, uint32_t length, int is_turn) {
    const uint32_t form_at = (is_turn ? 4 : 0) + 8;
    uint8_t copy[96]; /* the worker may change the reply while the stepper reads */
    if (length > sizeof copy || length < form_at) {
        return -1;
    }
    memcpy(copy, reply, length);
    if ((is_turn && memcmp(copy, "\0\0\0\0", 4) != 0) || memcmp(copy + form_at - 8, "\1\0\1\0", 4) != 0) {
        return -1;
    }
    return micros_of(copy + form_at, length - form_at, FORM("null"));
}

static int64_t post_micros(const uint8_t *result, uint32_t length) {
    int64_t micros = micros_of(result, length, FORM("{\"stop\":false}"));
    return micros >= 0 ? micros : micros_of(result, length, FORM("{\"stop\":true}"));
}

static int64_t pre_micros(const uint8_t *result, uint32_t length) {
    int64_t micros = micros_of(result, length, FORM("{\"suspend\":false,\"num_forks\":1,\"ff_tokens\":[]}"));
    return micros >= 0 ? micros
                       : micros_of(result, length, FORM("{\"suspend\":false,\"num_forks\":0,\"ff_tokens\":[]}"));
}

/* Append `"number":result` to entries of JSON. Return their length. */
static uint32_t put_entry(uint8_t *entries, uint32_t end, uint32_t number, const uint8_t *result, uint32_t length) {
    uint8_t *to = entries + end;
    if (end != 0) {
        *to++ = ',';
    }
    *to++ = '"';
    to = put_number(to, number);
    *to++ = '"';
    *to++ = ':';
    memcpy(to, result, length);
    return (uint32_t)(to + length - entries);
}

/* Add the results of post and pre, in a reply as `split_post_pre` reads it, to the answer. Return the microseconds; -1
   for results that are not usual. */
static int64_t put_post_pre(struct turn *turn, const struct sequence *sequence, const uint8_t *reply, uint32_t length) {
    uint8_t copy[4 + 2 * RESULT_MAX]; /* the worker may change the reply while the stepper reads */
    uint32_t post_len;
    if (length > sizeof copy || length < sizeof post_len) {
        return -1;
    }
    memcpy(copy, reply, length);
    memcpy(&post_len, copy, sizeof post_len);
    if (post_len > length - sizeof post_len) {
        return -1;
    }
    const uint8_t *post = copy + sizeof post_len, *pre = post + post_len;
    uint32_t pre_len = length - (uint32_t)sizeof post_len - post_len;
    if (post_len > RESULT_MAX || pre_len > RESULT_MAX || (sequence->kind == PRE && post_len != 0)) {
        return -1;
    }
    int64_t after = sequence->kind == PRE ? 0 : post_micros(post, post_len), before = pre_micros(pre, pre_len);
    if (after < 0 || before < 0) {
        return -1;
    }
    if (post_len != 0) {
        turn->post_len = put_entry(turn->post, turn->post_len, sequence->seq_id, post, post_len);
    }
    turn->pre_len = put_entry(turn->pre, turn->pre_len, sequence->seq_id, pre, pre_len);
    return after + before;
}

static uint64_t wait_ns(const struct calm_turns *turns, const struct header *header) {
    double most_s;
    memcpy(&most_s, header->most_s, sizeof most_s);
    if (!turns->is_patient || header->hurried == NO_PATIENCE || !(most_s * 1e9 < (double)turns->limit_ns)) {
        return turns->limit_ns;
    }
    return most_s > 0 ? (uint64_t)(most_s * 1e9) : 0;
}

/* The most bytes of an answer, with its length and the names in its JSON. */
static size_t most_bytes(const struct turn *turn) {
    size_t num_told = turn->num_ops - turn->num_rows;
    return 4 + sizeof(struct answer_head) + 4 * (size_t)turn->num_rows + 64 + 2 * ENTRY_MAX * num_told;
}

/* Serve a turn: fill in the microseconds and results. Return 0 if it is for Python. */
static int serve_turn(struct calm_turns *turns, const uint8_t *message, size_t length, struct turn *turn,
                      enum turn_outcome *outcome) {
    *outcome = NOT_BEGUN;
    if (!read_turn(turns, message, length, turn) || most_bytes(turn) > turns->responses.size) {
        return 0;
    }
    *outcome = BEGUN;
    if (turn->header.core != NO_CORE) {
        turns->engine_core = turn->header.core;
    }
    for (uint32_t k = 0; k < turn->num_ops; k++) {
        send_request(turns, turn->ops[k], k < turn->num_rows ? k : 0);
    }
    ring_pools(turns, turn->ops, turn->num_ops);
    turns->started_ns = now_ns();
    uint64_t deadline_ns = turns->started_ns + wait_ns(turns, &turn->header);
    uint32_t spent_us = 0;
    turn->post_len = turn->pre_len = 0;
    for (uint32_t k = turn->num_rows; k < turn->num_ops; k++) {
        const struct sequence *sequence = turn->ops[k];
        uint32_t reply_len = wait_response(turns, sequence, deadline_ns);
        int64_t spent = put_post_pre(turn, sequence, sequence->slot + turns->layout.response_bytes, reply_len);
        if (spent < 0) {
            return 0;
        }
        spent_us += (uint32_t)spent;
    }
    for (uint32_t row = turn->num_rows; row-- > 0;) { /* the last first: by then most workers have replied */
        const uint8_t *slot = turn->ops[row]->slot;
        uint32_t reply_len = wait_response(turns, turn->ops[row], deadline_ns);
        int64_t spent = usual_micros(slot + turns->layout.response_bytes, reply_len, turn->ops[row]->kind != MID);
        if (spent < 0) {
            return 0;
        }
        turn->micros[row] = (uint32_t)spent;
        spent_us += (uint32_t)spent;
        memcpy(turns->rows + row * (size_t)turns->row_bytes, slot + turns->layout.mask, turns->row_bytes);
    }
    turns->longest_us = spent_us > turns->longest_us ? spent_us : turns->longest_us;
    return 1;
}

static void wait_semaphore(const struct calm_turns *turns, void *semaphore) {
    while (turns->sem_wait(semaphore) != 0) {
        /* A signal: its handler is in the thread of the supervisor. */
    }
}

static uint8_t *put(uint8_t *to, const void *from, size_t length) {
    memcpy(to, from, length);
    return to + length;
}

#define PUT_TEXT(to, literal) put(to, literal, sizeof(literal) - 1)

/* `encode_answer` */
static void put_answer(const struct calm_turns *turns, const struct turn *turn) {
    const struct mailbox *mailbox = &turns->responses;
    struct answer_head head = {MAGIC, turn->num_rows};
    wait_semaphore(turns, mailbox->writable);
    uint8_t *start = mailbox->memory + 4, *end = put(start, &head, sizeof head);
    end = put(end, turn->micros, 4 * (size_t)turn->num_rows);
    if (turn->num_ops > turn->num_rows) {
        end = PUT_TEXT(end, "{\"post_seqs\":{");
        end = put(end, turn->post, turn->post_len);
        end = PUT_TEXT(end, "},\"pre_seqs\":{");
        end = put(end, turn->pre, turn->pre_len);
        end = PUT_TEXT(end, "},\"seqs\":{}}");
    }
    uint32_t length = (uint32_t)(end - start);
    memcpy(mailbox->memory, &length, sizeof length);
    turns->sem_post(mailbox->readable);
}

/* Serve turns until a message is for Python. The message is in the mailbox, unread. */
EXPORT uint32_t aici_serve_turns(struct calm_turns *turns) {
    const struct mailbox *mailbox = &turns->requests;
    struct turn turn;
    uint32_t length, empty = 0;
    enum turn_outcome outcome;
    for (;;) {
        wait_semaphore(turns, mailbox->readable);
        memcpy(&length, mailbox->memory, sizeof length);
        int is_served = 0;
        outcome = NOT_BEGUN;
        if (length <= mailbox->size - 4 && now_ns() < turns->until_ns) {
            is_served = serve_turn(turns, mailbox->memory + 4, length, &turn, &outcome);
        }
        if (!is_served) {
            turns->sem_post(mailbox->readable);
            return outcome;
        }
        memcpy(mailbox->memory, &empty, sizeof empty);
        turns->sem_post(mailbox->writable);
        put_answer(turns, &turn);
    }
}
